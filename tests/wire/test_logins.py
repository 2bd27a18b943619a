"""SASL logins and client certificates over the wire (X1, X2, E3)."""

import gc
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from penstock.broker.request import Session
from penstock.core.errors import ErrorCode
from penstock.net.server.connection import Connection
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.records.record import Record
from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.certificates import Identity, make_identity, simple_name
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import (
    AUTHORIZER,
    SASL_SETTINGS,
    handshake,
    plain_login,
    plain_token,
    scram_login,
    set_password,
)
from tests.support.protocol.admin import create_topic, try_produce
from tests.support.protocol.scram_client import ScramClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("logins"), SASL_SETTINGS) as running:
        yield running


@pytest.fixture
def anonymous(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect("PLAINTEXT") as client:
        yield client


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect("SASL_PLAINTEXT") as wire_client:
        yield wire_client


def serves(client: WireClient) -> bool:
    return bool(client.request(MetadataRequest([]), 9).brokers)


# --- SASL


def test_listeners_have_their_own_logins_and_addresses(
    client: WireClient, anonymous: WireClient
) -> None:
    """X1: every listener returns its own address in Metadata."""
    assert plain_login(client, "ann").error_code == 0
    inside, outside = (
        item.request(MetadataRequest([]), 9).brokers[0] for item in (client, anonymous)
    )
    assert inside.port == client.sock.getpeername()[1]
    assert outside.port == anonymous.sock.getpeername()[1]


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_scram_password_is_set_and_changed(
    broker: RunningBroker, anonymous: WireClient, mechanism: ScramMechanism
) -> None:
    assert set_password(anonymous, mechanism, "carl,=", "first").error_code == 0
    with broker.connect("SASL_PLAINTEXT") as client:
        assert scram_login(client, mechanism, "carl,=", "first").error_code == 0
        assert serves(client)
    assert set_password(anonymous, mechanism, "carl,=", "second").error_code == 0
    with broker.connect("SASL_PLAINTEXT") as client:
        response = scram_login(client, mechanism, "carl,=", "first")
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()
    with broker.connect("SASL_PLAINTEXT") as client:
        assert scram_login(client, mechanism, "carl,=", "second").error_code == 0


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "ann-secret")])
def test_a_wrong_password_closes_the_connection(
    client: WireClient, user: str, password: str
) -> None:
    """E3: the message does not tell whether the user exists."""
    response = plain_login(client, user, password)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wrong user name or password" in response.error_message
    assert handshake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed()


def test_requests_before_the_login_close_the_connection(client: WireClient) -> None:
    client.send(MetadataRequest([]), 9)
    assert client.is_closed()


def test_an_unknown_mechanism_gets_the_supported_ones(client: WireClient) -> None:
    response = handshake(client, "GSSAPI")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert plain_login(client, "ann").error_code == 0


def test_tokens_need_a_handshake_first(client: WireClient) -> None:
    response = client.request(SaslAuthenticateRequest(plain_token("ann", "ann-secret")), 2)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_login_at_a_plaintext_listener_is_rejected(anonymous: WireClient) -> None:
    assert handshake(anonymous, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    response = anonymous.request(SaslAuthenticateRequest(b"x"), 2)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert serves(anonymous)


def send_bare(client: WireClient, token: bytes) -> None:
    client.sock.sendall(struct.pack(">i", len(token)) + token)


def test_old_clients_send_bare_tokens(client: WireClient) -> None:
    """SaslHandshake version 0: tokens are sent without a request header."""
    assert handshake(client, "PLAIN", 0).error_code == 0
    send_bare(client, plain_token("ann", "ann-secret"))
    assert client.receive_frame() == b""
    assert serves(client)


def test_old_clients_use_scram(broker: RunningBroker, anonymous: WireClient) -> None:
    set_password(anonymous, ScramMechanism.SCRAM_SHA_256, "dora", "pw")
    with broker.connect("SASL_PLAINTEXT") as client:
        assert handshake(client, "SCRAM-SHA-256", 0).error_code == 0
        scram = ScramClient("sha256", "dora", "pw")
        send_bare(client, scram.first())
        send_bare(client, scram.final(client.receive_frame()))
        assert scram.accepts(client.receive_frame())
        assert serves(client)


def test_a_wrong_bare_token_closes_the_connection(client: WireClient) -> None:
    assert handshake(client, "PLAIN", 0).error_code == 0
    send_bare(client, plain_token("ann", "wrong"))
    assert client.is_closed()


def test_credentials_are_described_without_secrets(anonymous: WireClient) -> None:
    set_password(anonymous, ScramMechanism.SCRAM_SHA_512, "emil", "pw", 8192)

    def described(*users: str) -> Any:
        request = DescribeUserScramCredentialsRequest([UserName(user) for user in users])
        return anonymous.request(request, 0).results

    (result,) = described("emil")
    assert [(info.mechanism, info.iterations) for info in result.credential_infos] == [(2, 8192)]
    assert "emil" in {item.user for item in described()}
    missing, duplicate = described("nobody", "emil", "emil")
    assert missing.error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert duplicate.error_code == ErrorCode.DUPLICATE_RESOURCE
    deletion = AlterUserScramCredentialsRequest([ScramCredentialDeletion("emil", 2)])
    assert anonymous.request(deletion, 0).results[0].error_code == 0
    assert described("emil")[0].error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert anonymous.request(deletion, 0).results[0].error_code == ErrorCode.RESOURCE_NOT_FOUND


def test_too_few_iterations_are_rejected(anonymous: WireClient) -> None:
    result = set_password(anonymous, ScramMechanism.SCRAM_SHA_256, "ann", "pw", 100)
    assert result.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert "4096" in result.error_message


# --- reauthentication


def test_a_second_login_is_rejected_without_reauthentication(client: WireClient) -> None:
    assert plain_login(client, "ann").session_lifetime_ms == 0
    assert handshake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert serves(client)


def test_a_login_is_renewed_on_the_same_connection(tmp_path: Path) -> None:
    name = "listener.name.sasl_plaintext.plain.connections.max.reauth.ms"
    with running_broker(tmp_path, {**SASL_SETTINGS, name: "60000"}) as broker:
        with broker.connect("SASL_PLAINTEXT") as client:
            for _ in range(2):
                assert plain_login(client, "ann").session_lifetime_ms == 60_000
                assert serves(client)
            response = plain_login(client, "bob")
            assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed()
        with broker.connect("PLAINTEXT") as admin:
            set_password(admin, ScramMechanism.SCRAM_SHA_256, "ann", "pw")
        with broker.connect("SASL_PLAINTEXT") as client:
            response = scram_login(client, ScramMechanism.SCRAM_SHA_256, "ann", "pw")
            assert response.session_lifetime_ms == 0
        with broker.connect("SASL_PLAINTEXT") as client:
            assert plain_login(client, "ann").error_code == 0
            assert handshake(client, "SCRAM-SHA-256").error_code == 0
            response = client.request(SaslAuthenticateRequest(b"n,,n=ann,r=nonce"), 2)
            assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "a login with PLAIN cannot be renewed with SCRAM-SHA-256" in (
                response.error_message
            )
            assert client.is_closed()


def test_a_login_that_is_not_renewed_expires(tmp_path: Path) -> None:
    settings = {**SASL_SETTINGS, "connections.max.reauth.ms": "1"}
    with running_broker(tmp_path, settings) as broker, broker.connect("SASL_PLAINTEXT") as client:
        assert plain_login(client, "ann").session_lifetime_ms == 1
        for _ in range(100):
            client.send(MetadataRequest([]), 9)
            try:
                client.receive_frame()
            except ConnectionError:
                break
        else:
            pytest.fail("the broker went on serving after connections.max.reauth.ms")


# --- TLS


class Tls:
    """A certificate authority, the certificate of a broker, and clients with or without one."""

    def __init__(self) -> None:
        self.authority = make_identity(simple_name("authority"))
        self.server = make_identity(simple_name("localhost"), self.authority)

    def settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self.server.key_pem(),
            "ssl.keystore.certificate.chain": self.server.certificate_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority.certificate_pem,
        }

    def secure(
        self, client: WireClient, directory: Path, identity: Identity | None = None
    ) -> WireClient:
        context = ssl.create_default_context(cadata=self.authority.certificate_pem)
        if identity is not None:
            file = directory / "client.pem"
            file.write_text(identity.key_pem() + identity.certificate_pem)
            context.load_cert_chain(file)
        client.sock = context.wrap_socket(client.sock, server_hostname="localhost")
        return client


@pytest.fixture(scope="module")
def tls() -> Tls:
    return Tls()


def test_the_principal_is_taken_from_the_certificate(tmp_path: Path, tls: Tls) -> None:
    settings = {
        **tls.settings(),
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=Ops.*$/$1/L,DEFAULT",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ann;User:CN=other",
    }
    ops = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Ops"),
            x509.NameAttribute(NameOID.COMMON_NAME, "ANN"),
        ]
    )
    with running_broker(tmp_path, settings) as broker:
        for name, allowed in ((ops, True), (simple_name("other"), True), (None, False)):
            identity = None if name is None else make_identity(name, tls.authority)
            with tls.secure(broker.connect(), tmp_path, identity) as client:
                code = create_topic(client, f"t{name is ops}")
                expected = ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                assert code is expected
                if identity is None:
                    response = try_produce(client, "tTrue", Record(0, 0, None, b"x"))
                    assert "User:ANONYMOUS" in response.error_message


def test_a_certificate_without_a_mapping_rule_is_rejected(tmp_path: Path, tls: Tls) -> None:
    settings = {
        **tls.settings(),
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=only-me$/me/",
    }
    with running_broker(tmp_path, settings) as broker:
        unknown_identity = make_identity(simple_name("stranger"), tls.authority)
        with tls.secure(broker.connect(), tmp_path, unknown_identity) as client:
            client.send(SaslHandshakeRequest("PLAIN"), 1)
            assert client.is_closed()
        allowed_identity = make_identity(simple_name("only-me"), tls.authority)
        with tls.secure(broker.connect(), tmp_path, allowed_identity) as client:
            assert serves(client)


def test_a_login_over_tls(tmp_path: Path, tls: Tls) -> None:
    settings = {
        **SASL_SETTINGS,
        **tls.settings(),
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": SASL_SETTINGS[
            "listener.name.sasl_plaintext.plain.sasl.jaas.config"
        ],
    }
    with running_broker(tmp_path, settings) as broker:
        with tls.secure(broker.connect("SASL_SSL"), tmp_path) as client:
            assert plain_login(client, "ann").error_code == 0
            assert serves(client)
        with tls.secure(broker.connect("SASL_SSL"), tmp_path) as client:
            assert plain_login(client, "ann", "wrong").error_code == (
                ErrorCode.SASL_AUTHENTICATION_FAILED
            )


def test_the_challenge_of_an_unknown_user_survives_a_restart(tmp_path: Path) -> None:
    """X2: otherwise a restart would tell apart who exists."""

    def challenges() -> dict[str, bytes]:
        with running_broker(tmp_path, SASL_SETTINGS) as broker:
            with broker.connect("PLAINTEXT") as admin:
                set_password(admin, ScramMechanism.SCRAM_SHA_256, "ann", "pencil", 8192)
            salts = {}
            for user in ("ann", "eve", "mallory"):
                with broker.connect("SASL_PLAINTEXT") as client:
                    handshake(client, "SCRAM-SHA-256")
                    token = ScramClient("sha256", user, "x").first()
                    response = client.request(SaslAuthenticateRequest(token), 2)
                    salts[user] = response.auth_bytes.partition(b",")[2]
        return salts

    first = challenges()
    assert first == challenges()
    assert len(set(first.values())) == 3
    assert {challenge.partition(b",i=")[2] for challenge in first.values()} == {b"8192"}
    assert len({len(challenge) for challenge in first.values()}) == 1


def test_closed_connections_need_no_collection_of_garbage(broker: RunningBroker) -> None:
    check_closed_connections(broker)


def test_the_audit_log_keeps_no_closed_connection(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    audit.mkdir()
    settings = {**SASL_SETTINGS, "audit.log.dir": str(audit)}
    with running_broker(tmp_path, settings) as broker:
        check_closed_connections(broker)


def check_closed_connections(broker: RunningBroker) -> None:
    """Otherwise those of a minute stay in memory: the broker collects rarely."""

    def connections() -> int:
        return sum(isinstance(item, Connection | Session) for item in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = connections()
        for number in range(6):
            with broker.connect("SASL_PLAINTEXT") as client, broker.connect("PLAINTEXT") as other:
                if number % 2:
                    assert handshake(client, "PLAIN").error_code == 0
                other.request(MetadataRequest([]), 9)
        deadline = time.monotonic() + 10
        while connections() > before:
            assert time.monotonic() < deadline, "closed connections refer to each other in circles"
            time.sleep(0.05)
    finally:
        gc.enable()
