"""Delegation tokens over the wire: who may create, renew, end and see them, and logins (X2)."""

import base64
import json
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Admin, Consumer, Producer
from penstock.client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    DelegationToken,
    PatternType,
    ResourceType,
)
from penstock.client.errors import AuthenticationError
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from penstock.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from penstock.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.security.delegation_token import token_hmac
from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, handshake, logged_in, plain_login
from tests.support.broker.loop_time import loop_time
from tests.support.client.cli import Cli
from tests.support.cluster.brokers import running_cluster
from tests.support.protocol.scram_client import ScramClient

SECRET = "the brokers' own"
DAY_MS = 86_400_000
SHA_256 = ScramMechanism.SCRAM_SHA_256
MECHANISMS = pytest.mark.parametrize("mechanism", list(ScramMechanism))


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        **SASL_SETTINGS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:admin",
        "delegation.token.secret.key": SECRET,
        "group.initial.rebalance.delay.ms": "0",
    }


def sasl_address(broker: RunningBroker) -> str:
    (port,) = (item.port for item in broker.addresses if item.listener == "SASL_PLAINTEXT")
    return f"127.0.0.1:{port}"


def plain_admin(broker: RunningBroker, user: str) -> Admin:
    return Admin(
        bootstrap_servers=sasl_address(broker),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=f"{user}-secret",
    )


def token_settings(broker: RunningBroker, token: DelegationToken) -> dict[str, Any]:
    return {
        "bootstrap_servers": sasl_address(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": token.token_id,
        "sasl_plain_password": token.password,
        "sasl_tokenauth": True,
    }


@pytest.fixture(scope="module")
def ann(broker: RunningBroker) -> Iterator[Admin]:
    with plain_admin(broker, "ann") as admin:
        yield admin


@pytest.fixture(scope="module")
def bob(broker: RunningBroker) -> Iterator[Admin]:
    with plain_admin(broker, "bob") as admin:
        yield admin


def token_login(client: WireClient, mechanism: ScramMechanism, token_id: str, password: str) -> Any:
    scram = ScramClient(mechanism.digest, token_id, password, extensions=",tokenauth=true")
    assert handshake(client, mechanism.mechanism_name).error_code == 0
    challenge = client.request(SaslAuthenticateRequest(scram.first()), 2)
    assert challenge.error_code == 0, challenge.error_message
    verdict = client.request(SaslAuthenticateRequest(scram.final(challenge.auth_bytes)), 2)
    assert verdict.error_code or scram.accepts(verdict.auth_bytes)
    return verdict


def refusal(code: ErrorCode) -> Any:
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


# --- the life of a token


def test_a_token_is_created_renewed_described_and_ended(ann: Admin, bob: Admin) -> None:
    before_ms = int(time.time() * 1000)
    token = ann.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=2 * DAY_MS)
    assert (token.owner, token.requester) == ("User:ann", "User:ann")
    assert token.hmac == token_hmac(SECRET, token.token_id)
    assert token.issue_timestamp >= before_ms
    assert token.expiry_timestamp == token.issue_timestamp + DAY_MS
    assert token.max_timestamp == token.issue_timestamp + 2 * DAY_MS
    assert ann.describe_delegation_token() == [token]
    assert bob.describe_delegation_token(["User:bob"]) == [token]  # as a renewer
    assert ann.describe_delegation_token([]) == []
    assert ann.describe_delegation_token(["User:nobody"]) == []

    expiry_ms = bob.renew_delegation_token(token.password, renew_period_ms=3 * DAY_MS)
    assert token.expiry_timestamp <= expiry_ms <= int(time.time() * 1000) + DAY_MS
    assert ann.expire_delegation_token(token.hmac, expiry_period_ms=10 * DAY_MS) == (
        token.max_timestamp
    )
    ann.expire_delegation_token(token.hmac)
    assert ann.describe_delegation_token() == []
    with refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
        ann.renew_delegation_token(token.hmac)


@pytest.mark.parametrize("version", range(4))
def test_every_version_has_the_same_token(broker: RunningBroker, version: int) -> None:
    with logged_in(broker, "bob") as client:
        created = client.request(
            CreateDelegationTokenRequest(renewers=[CreatableRenewers("User", "ann")]), version
        )
        assert (created.error_code, created.principal_name) == (0, "bob")
        owner = DescribeDelegationTokenOwner("User", "bob")
        (described,) = client.request(DescribeDelegationTokenRequest([owner]), version).tokens
        assert (described.token_id, described.hmac) == (created.token_id, created.hmac)
        assert described.renewers[0].principal_name == "ann"
        assert described.token_requester_principal_name == ("bob" if version > 2 else "")
        low = min(version, 2)
        renewed = client.request(RenewDelegationTokenRequest(created.hmac, 1000), low)
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms < created.expiry_timestamp_ms
        assert client.request(ExpireDelegationTokenRequest(created.hmac, -1), low).error_code == 0
        assert client.request(DescribeDelegationTokenRequest([owner]), version).tokens == []


def test_only_owners_and_renewers_change_a_token(ann: Admin, bob: Admin) -> None:
    token = ann.create_delegation_token()
    with refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
        bob.renew_delegation_token(token.hmac)
    with refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
        bob.expire_delegation_token(token.hmac)
    assert bob.describe_delegation_token() == []
    ann.expire_delegation_token(token.hmac)


def test_rights_to_tokens_of_others(broker: RunningBroker, ann: Admin, bob: Admin) -> None:
    """KIP-373: CREATE_TOKENS and DESCRIBE_TOKENS of a user, or DESCRIBE of the token."""
    with refusal(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
        bob.create_delegation_token(owner="User:ann")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_acls([_allow(ResourceType.USER, "User:ann", AclOperation.CREATE_TOKENS)])
        token = bob.create_delegation_token(owner="User:ann")
        assert (token.owner, token.requester) == ("User:ann", "User:bob")
        assert ann.describe_delegation_token() == [token]
        assert bob.describe_delegation_token() == [token]
        with refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
            bob.renew_delegation_token(token.hmac)
        ann.expire_delegation_token(token.hmac)
        token = ann.create_delegation_token()
        assert bob.describe_delegation_token() == []
        for acl in (
            _allow(ResourceType.USER, "User:ann", AclOperation.DESCRIBE_TOKENS),
            _allow(ResourceType.DELEGATION_TOKEN, token.token_id, AclOperation.DESCRIBE),
        ):
            admin.create_acls([acl])
            assert bob.describe_delegation_token() == [token]
            admin.delete_acls([AclBindingFilter(*acl)])
    ann.expire_delegation_token(token.hmac)


def _allow(resource: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        resource, name, PatternType.LITERAL, "User:bob", "*", operation, AclPermission.ALLOW
    )


def test_requests_need_a_login_other_than_with_a_token(broker: RunningBroker, ann: Admin) -> None:
    token = ann.create_delegation_token()
    requests = (
        CreateDelegationTokenRequest(),
        RenewDelegationTokenRequest(token.hmac),
        ExpireDelegationTokenRequest(token.hmac),
        DescribeDelegationTokenRequest(None),
    )
    with broker.connect("PLAINTEXT") as anonymous, broker.connect("SASL_PLAINTEXT") as client:
        assert token_login(client, SHA_256, token.token_id, token.password).error_code == 0
        for request in requests:
            for connection in (anonymous, client):
                response: Any = connection.request(request, 2)
                assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert [each.token_id for each in ann.describe_delegation_token()] == [token.token_id]
    ann.expire_delegation_token(token.hmac)


def test_owner_and_renewers_must_be_users(broker: RunningBroker, ann: Admin) -> None:
    with refusal(ErrorCode.INVALID_PRINCIPAL_TYPE):
        ann.create_delegation_token(renewers=["Group:bob"])
    with plain_admin(broker, "admin") as admin, refusal(ErrorCode.INVALID_PRINCIPAL_TYPE):
        admin.create_delegation_token(owner="Group:ann")


def test_a_token_has_limits(ann: Admin) -> None:
    for count, length in ((1000, 32), (100_000, 1)):
        renewers = [f"User:{'x' * length}"] * count
        with refusal(ErrorCode.POLICY_VIOLATION):
            ann.create_delegation_token(renewers=renewers)


def test_giant_requests_run_in_slices(broker: RunningBroker) -> None:
    """X5: as in test_giant_requests.py, which has no login."""
    names = [f"user-{number}" for number in range(20_000)]
    renewers = [CreatableRenewers("User", name) for name in names]
    owners = [DescribeDelegationTokenOwner("User", name) for name in names]
    with loop_time(broker) as longest, logged_in(broker, "ann") as client:
        created: Any = client.request(CreateDelegationTokenRequest(renewers=renewers), 3)
        assert created.error_code == ErrorCode.POLICY_VIOLATION
        assert client.request(DescribeDelegationTokenRequest(owners), 3).tokens == []
        seconds, callback = broker.call(lambda _: longest.take())
    assert seconds < 0.1, callback


# --- logins


@MECHANISMS
def test_a_client_logs_in_as_the_owner(
    broker: RunningBroker, ann: Admin, mechanism: ScramMechanism
) -> None:
    token = ann.create_delegation_token()
    with broker.connect("SASL_PLAINTEXT") as client:
        verdict = token_login(client, mechanism, token.token_id, token.password)
        assert verdict.error_code == 0
        assert 0 < verdict.session_lifetime_ms <= DAY_MS  # KIP-368
        assert client.request(MetadataRequest([]), 9).brokers
        ann.renew_delegation_token(token.hmac, renew_period_ms=100_000)
        again = token_login(client, mechanism, token.token_id, token.password)
        assert again.error_code == 0
        assert again.session_lifetime_ms <= 100_000
    ann.expire_delegation_token(token.hmac)
    with broker.connect("SASL_PLAINTEXT") as client:
        verdict = token_login(client, mechanism, token.token_id, token.password)
        assert verdict.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_wrong_credentials_do_not_tell_whether_there_is_a_token(
    broker: RunningBroker, ann: Admin
) -> None:
    """The challenge for a known id is that for the same id without a token."""
    token = ann.create_delegation_token()

    def attempt(token_id: str) -> tuple[bytes, str]:
        scram = ScramClient("sha256", token_id, "wrong", extensions=",tokenauth=true")
        with broker.connect("SASL_PLAINTEXT") as client:
            handshake(client, "SCRAM-SHA-256")
            challenge = client.request(SaslAuthenticateRequest(scram.first()), 2)
            verdict = client.request(SaslAuthenticateRequest(scram.final(challenge.auth_bytes)), 2)
        assert verdict.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        return challenge.auth_bytes.split(b",", 1)[1], verdict.error_message

    known = attempt(token.token_id)
    ann.expire_delegation_token(token.hmac)
    assert attempt(token.token_id) == known
    salt, iterations = attempt("another")[0].split(b",")
    known_salt, known_iterations = known[0].split(b",")
    assert iterations == known_iterations
    assert abs(len(base64.b64decode(salt[2:])) - len(base64.b64decode(known_salt[2:]))) <= 2


def test_a_replayed_proof_is_refused(broker: RunningBroker, ann: Admin) -> None:
    token = ann.create_delegation_token()
    scram = ScramClient("sha256", token.token_id, token.password, extensions=",tokenauth=true")
    with broker.connect("SASL_PLAINTEXT") as client:
        handshake(client, "SCRAM-SHA-256")
        challenge = client.request(SaslAuthenticateRequest(scram.first()), 2)
        proof = scram.final(challenge.auth_bytes)
        assert client.request(SaslAuthenticateRequest(proof), 2).error_code == 0
    with broker.connect("SASL_PLAINTEXT") as client:
        handshake(client, "SCRAM-SHA-256")
        client.request(SaslAuthenticateRequest(scram.first()), 2)
        verdict = client.request(SaslAuthenticateRequest(proof), 2)
        assert verdict.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    ann.expire_delegation_token(token.hmac)


def test_a_token_is_no_password_of_a_user(broker: RunningBroker, ann: Admin) -> None:
    """Without the extension the id is the name of a user, which does not exist."""
    token = ann.create_delegation_token()
    settings = {**token_settings(broker, token), "sasl_tokenauth": False}
    with pytest.raises(AuthenticationError), Admin(**settings) as admin:
        admin.list_topics()
    ann.expire_delegation_token(token.hmac)


def test_our_clients_use_a_token(broker: RunningBroker, ann: Admin) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for kind, name in ((ResourceType.TOPIC, "orders"), (ResourceType.GROUP, "readers")):
            admin.create_acls(
                [
                    AclBinding(
                        *(kind, name, PatternType.LITERAL, "User:ann", "*"),
                        AclOperation.ALL,
                        AclPermission.ALLOW,
                    )
                ]
            )
    token = ann.create_delegation_token()
    settings = token_settings(broker, token)
    with Producer(**settings) as producer:
        producer.send("orders", b"first").result(10)
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token.token_id}" password="{token.password}" tokenauth="true";'
    )
    settings = {
        "bootstrap_servers": sasl_address(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_jaas_config": jaas,
    }
    with Consumer(group_id="readers", auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe("orders")
        assert [record.value for record in consumer.poll(10.0)] == [b"first"]
    ann.expire_delegation_token(token.hmac)


def test_the_command_line(broker: RunningBroker, tmp_path: Path) -> None:
    def user(name: str, jaas: str, mechanism: str) -> Cli:
        file = tmp_path / f"{name}.properties"
        module = "org.apache.kafka.common.security."
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={mechanism}\nsasl.jaas.config={module}{jaas};\n"
        )
        return Cli(sasl_address(broker), "--command-config", str(file))

    cli = user(
        "ann", 'plain.PlainLoginModule required username="ann" password="ann-secret"', "PLAIN"
    )
    created = cli.json("token", "create", "--renewer", "User:bob", "--max-lifetime", "100000")
    assert created["ends_ms"] == created["issued_ms"] + 100_000
    password = created.pop("hmac")
    assert cli.json("token", "list", "--owner", "User:ann") == [created]
    assert password in cli("token", "list", "--hmac").output
    assert password not in cli("token", "list").output
    holder = user(
        "holder",
        f'scram.ScramLoginModule required username="{created["token"]}" password="{password}" '
        "tokenauth=true",
        "SCRAM-SHA-256",
    )
    holder("topic", "list")
    assert "not with a token" in holder.refused("token", "list")
    renewed = cli.json("token", "renew", created["token"], "--period", "1000")
    assert renewed["expires_ms"] < created["expires_ms"]
    assert "--yes" in cli.refused("token", "expire", created["token"], status=2)
    assert "has ended" in cli("token", "expire", created["token"], "--yes").output
    assert "penstock token list" in cli.refused("token", "renew", created["token"])


def test_the_audit_log_names_the_token(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    settings = {
        **SASL_SETTINGS,
        "delegation.token.secret.key": SECRET,
        "audit.log.dir": str(tmp_path / "audit"),
    }
    with running_broker(tmp_path / "data", settings) as broker, plain_admin(broker, "ann") as ann:
        token = ann.create_delegation_token(renewers=["User:bob"])
        with Admin(**token_settings(broker, token)) as admin:
            admin.list_topics()
        ann.expire_delegation_token(token.hmac)
    (file,) = (tmp_path / "audit").iterdir()
    assert token.password not in file.read_text()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["principal"] for event in events if event.get("token") == token.token_id] == [
        "User:ann"
    ]
    changes = [event for event in events if event["event"] == "change"]
    assert [event["api"] for event in changes] == [
        "CREATE_DELEGATION_TOKEN",
        "EXPIRE_DELEGATION_TOKEN",
    ]
    assert changes[0]["resource"] == token.token_id
    assert changes[0]["details"]["renewers"] == ["User:bob"]


# --- expiry and restarts


def test_expired_tokens_are_refused_and_removed(tmp_path: Path) -> None:
    settings = {
        **SASL_SETTINGS,
        "delegation.token.master.key": SECRET,  # the former name
        "delegation.token.expiry.check.interval.ms": "100",
    }
    with running_broker(tmp_path, settings) as broker, plain_admin(broker, "ann") as ann:
        token = ann.create_delegation_token(max_lifetime_ms=300)
        with broker.connect("SASL_PLAINTEXT") as client:
            login = token_login(client, SHA_256, token.token_id, token.password)
            deadline = time.monotonic() + 10
            while ann.describe_delegation_token() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert ann.describe_delegation_token() == []
            if login.error_code == 0:
                client.send(MetadataRequest([]), 9)
                assert client.is_closed()  # the session has ended with the token
        with broker.connect("SASL_PLAINTEXT") as client:
            verdict = token_login(client, SHA_256, token.token_id, token.password)
            assert verdict.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
            ann.renew_delegation_token(token.hmac)


def test_an_expired_token_that_is_still_stored_is_refused(tmp_path: Path) -> None:
    settings = {
        **SASL_SETTINGS,
        "delegation.token.secret.key": SECRET,
        "delegation.token.max.tokens.per.owner": "2",
    }
    with running_broker(tmp_path, settings) as broker, plain_admin(broker, "ann") as ann:
        token = ann.create_delegation_token()
        ann.create_delegation_token()
        with refusal(ErrorCode.POLICY_VIOLATION):
            ann.create_delegation_token()
        expiry_ms = ann.expire_delegation_token(token.hmac, expiry_period_ms=0)
        while time.time() * 1000 <= expiry_ms + 1:
            time.sleep(0.001)
        assert len(ann.describe_delegation_token()) == 2
        ann.create_delegation_token()  # the expired one does not count
        for change in (ann.renew_delegation_token, ann.expire_delegation_token):
            period = {} if change == ann.renew_delegation_token else {"expiry_period_ms": 5}
            with refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED):
                change(token.hmac, **period)
        with broker.connect("SASL_PLAINTEXT") as client:
            verdict = token_login(client, SHA_256, token.token_id, token.password)
            assert verdict.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "expired" in verdict.error_message


def test_tokens_survive_a_restart_and_need_the_secret(tmp_path: Path) -> None:
    settings = {**SASL_SETTINGS, "delegation.token.secret.key": SECRET}
    with running_broker(tmp_path, settings) as broker, plain_admin(broker, "ann") as ann:
        token = ann.create_delegation_token()
    with running_broker(tmp_path, settings) as broker, plain_admin(broker, "ann") as ann:
        assert ann.describe_delegation_token() == [token]
        with Admin(**token_settings(broker, token)) as admin:
            admin.list_topics()
        ann.renew_delegation_token(token.hmac)
    with running_broker(tmp_path, SASL_SETTINGS) as broker, plain_admin(broker, "ann") as ann:
        for call in (
            ann.create_delegation_token,
            ann.describe_delegation_token,
            lambda: ann.renew_delegation_token(token.hmac),
            lambda: ann.expire_delegation_token(token.hmac),
        ):
            with refusal(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
                call()
        with (
            pytest.raises(AuthenticationError, match=r"delegation\.token\.secret\.key"),
            Admin(**token_settings(broker, token)) as admin,
        ):
            admin.list_topics()


def test_all_brokers_of_a_cluster_accept_a_token(tmp_path: Path) -> None:
    settings = {**SASL_SETTINGS, "delegation.token.secret.key": SECRET}
    with running_cluster(tmp_path, brokers=2, settings=settings) as cluster:

        def logs_in(broker_id: int) -> bool:
            with cluster.connect(broker_id, "SASL_PLAINTEXT") as client:
                login = token_login(client, SHA_256, created.token_id, password)
                return bool(login.error_code == 0)

        def is_refused(broker_id: int) -> bool:
            return not logs_in(broker_id)

        with cluster.connect(0, "SASL_PLAINTEXT") as ann:
            assert plain_login(ann, "ann").error_code == 0
            created: Any = ann.request(CreateDelegationTokenRequest(), 3)
        password = base64.b64encode(created.hmac).decode()
        for broker_id in (0, 1):
            cluster.wait_until(partial(logs_in, broker_id), "a login")
        with cluster.connect(1, "SASL_PLAINTEXT") as ann:
            assert plain_login(ann, "ann").error_code == 0
            request = ExpireDelegationTokenRequest(created.hmac, -1)
            assert ann.request(request, 2).error_code == 0
        for broker_id in (1, 0):
            cluster.wait_until(partial(is_refused, broker_id), "a refusal")
