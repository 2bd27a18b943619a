"""SASL clients: RFC 7677's example, logins at our own server, and settings (X2, E3)."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import AuthenticationError, ConfigError
from penstock.client.security import login_factory
from penstock.client.settings import CommonOptions, resolve
from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.client.sasl import scram as scram_module
from penstock.net.client.sasl.client import SaslClient
from penstock.net.client.sasl.credentials import Credentials
from penstock.net.client.sasl.plain import PlainClient
from penstock.net.client.sasl.scram import ScramClient
from penstock.security.sasl.plain import PlainServer
from penstock.security.sasl.scram import ScramServer
from penstock.security.sasl.server import SaslServer
from penstock.security.scram_credential import ScramMechanism, salted_password
from tests.support.protocol.scram_client import credential_from_password, credential_lookup

SHA_256 = ScramMechanism.SCRAM_SHA_256
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


def options(**settings: Any) -> CommonOptions:
    base = {"bootstrap_servers": "b:9092", "security_protocol": "SASL_SSL"}
    return resolve(CommonOptions, {**base, **settings})


def login(**settings: Any) -> SaslClient:
    create = login_factory(options(**settings))
    assert create is not None
    return create("b")


def scram_server(mechanism: ScramMechanism, users: dict[str, str]) -> ScramServer:
    credentials = {
        user: credential_from_password(mechanism, password, b"salt")
        for user, password in users.items()
    }
    return ScramServer(mechanism, credential_lookup(mechanism, credentials), "server-nonce")


def exchange(client: SaslClient, server: SaslServer) -> None:
    token: bytes | None = client.initial_response()
    while token is not None:
        token = client.evaluate_challenge(server.step(token))
    assert server.done


def test_scram_follows_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, Credentials("user", "pencil"), "rOprNGfwEbeRWgbNEkqO")
    assert client.initial_response() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = client.evaluate_challenge(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert final == f"c=biws,r={nonce},p={proof}".encode()
    assert client.evaluate_challenge(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@given(user=names, password=names, mechanism=st.sampled_from(ScramMechanism))
def test_scram_authenticates_with_the_server_only_with_the_right_password(
    user: str, password: str, mechanism: ScramMechanism
) -> None:
    server = scram_server(mechanism, {user: password})
    client = ScramClient(mechanism, Credentials(user, password), "client-nonce")
    exchange(client, server)
    assert server.principal_name == user
    wrong = ScramClient(mechanism, Credentials(user, password + "x"), "client-nonce")
    with pytest.raises(KafkaError, match="wrong user name or password"):
        exchange(wrong, scram_server(mechanism, {user: password}))


def test_scram_derives_the_salted_password_once_for_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes milliseconds in which a client does nothing else."""
    derived: list[bytes] = []

    def derive(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
        derived.append(salt)
        return salted_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(scram_module, "salted_password", derive)
    settings = options(
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="ann",
        sasl_plain_password="ann-secret",
    )
    create = login_factory(settings)
    assert create is not None
    for host in ("a", "b", "a"):
        exchange(create(host), scram_server(SHA_256, {"ann": "ann-secret"}))
    assert derived == [b"salt"]
    with pytest.raises(KafkaError, match="wrong user name or password"):
        exchange(create("a"), scram_server(SHA_256, {"ann": "another"}))
    assert derived == [b"salt"]


@given(user=names, password=names)
def test_plain_authenticates_with_the_server(user: str, password: str) -> None:
    server = PlainServer({user: password})
    exchange(PlainClient(Credentials(user, password)), server)
    assert server.principal_name == user


SERVER_FIRST = "r=nonce-and-more,s=c2FsdA==,i=4096"


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("r=other,s=c2FsdA==,i=4096", "nonce"),
        ("r=nonce,s=c2FsdA==,i=4096", "nonce"),
        ("r=nonce-and-more,s=c2FsdA==,i=1000", "1000 iterations, allowed are 4096 to 1000000"),
        ("r=nonce-and-more,s=c2FsdA==,i=999999999", "999999999 iterations"),
        ("r=nonce-and-more,s=c2F,i=4096", "base64"),
        ("m=x,r=nonce-and-more,s=c2FsdA==,i=4096", "extension"),
        ("r=nonce-and-more,s=c2FsdA==", "cannot be read"),
        ("", "cannot be read"),
        ("\udcff", "UTF-8"),
    ],
)
def test_scram_rejects_an_invalid_first_message(first: str, reason: str) -> None:
    client = ScramClient(SHA_256, Credentials("ann", "ann-secret"), "nonce")
    client.initial_response()
    with pytest.raises(AuthenticationError, match=reason) as failure:
        client.evaluate_challenge(first.encode(errors="surrogateescape"))
    assert "user ann with SCRAM-SHA-256" in failure.value.message
    assert "ann-secret" not in str(failure.value)


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (b"v=" + base64.b64encode(b"x" * 32), "does not know the password.*SASL_SSL"),
        (b"e=invalid-proof", "says invalid-proof: check the user name and the password"),
        (b"", "cannot be read"),
        (b"v=x", "base64"),
    ],
)
def test_scram_demands_the_brokers_proof(final: bytes, reason: str) -> None:
    """A server that accepts every login has not proved anything."""
    client = ScramClient(SHA_256, Credentials("ann", "ann-secret"), "nonce")
    client.initial_response()
    assert client.evaluate_challenge(SERVER_FIRST.encode()) is not None
    with pytest.raises(AuthenticationError, match=reason) as failure:
        client.evaluate_challenge(final)
    assert failure.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not failure.value.retriable


def test_scram_ends_once() -> None:
    server = scram_server(SHA_256, {"ann": "ann-secret"})
    client = ScramClient(SHA_256, Credentials("ann", "ann-secret"), "nonce")
    exchange(client, server)
    with pytest.raises(AuthenticationError, match="has ended"):
        client.evaluate_challenge(b"v=AAAA")


def test_there_is_no_login_without_sasl() -> None:
    for protocol in ("PLAINTEXT", "SSL"):
        assert login_factory(options(security_protocol=protocol, sasl_plain_username="ann")) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl_plain_username": "ann", "sasl_plain_password": "ann-secret"},
        {"sasl_jaas_config": 'MODULE required username="ann" password="ann-secret";'},
    ],
    ids=["names", "jaas"],
)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
def test_a_login_from_settings(mechanism: str, settings: dict[str, str]) -> None:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    filled = {key: value.replace("MODULE", module) for key, value in settings.items()}
    client = login(sasl_mechanism=mechanism, **filled)
    assert (client.mechanism, client.user) == (mechanism.upper(), "ann")
    users = {"ann": "ann-secret"}
    scram_mechanism = ScramMechanism.__members__.get(mechanism.upper().replace("-", "_"))
    exchange(
        client,
        PlainServer(users) if scram_mechanism is None else scram_server(scram_mechanism, users),
    )


def test_each_connection_has_its_own_nonce() -> None:
    make = login_factory(
        options(sasl_mechanism="SCRAM-SHA-256", sasl_plain_username="a", sasl_plain_password="b")
    )
    assert make is not None
    assert make("b").initial_response() != make("b").initial_response()


def test_a_delegation_token_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram_module, "random_nonce", lambda: "nonce")
    jaas = f'{SCRAM_MODULE} required username="id" password="hmac" tokenauth="true";'
    client = login(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas)
    assert client.initial_response() == b"n,,n=id,r=nonce,tokenauth=true"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sasl_mechanism": "DIGEST-MD5"}, "sasl_mechanism=DIGEST-MD5 is not supported"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "sasl_mechanism=OAUTHBEARER needs a source of tokens"),
        ({"sasl_mechanism": "PLAIN"}, "sasl_plain_username is missing"),
        (
            {"sasl_mechanism": "PLAIN", "sasl_plain_username": "ann"},
            "sasl_plain_password is missing: sasl_mechanism=PLAIN",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_plain_username": "a", "sasl_jaas_config": "x"},
            "not both",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_plain_username": "a\0", "sasl_plain_password": "x"},
            "NUL",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "a",
                "sasl_plain_password": "\ud800",
            },
            "not valid Unicode",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": f"{SCRAM_MODULE} required;"},
            "ScramLoginModule, but sasl_mechanism needs .*PlainLoginModule",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": f"{PLAIN_MODULE} required;"},
            "sasl_jaas_config has no username",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f'{PLAIN_MODULE} required username="a";',
            },
            "sasl_jaas_config has no password",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": f"{PLAIN_MODULE} required"},
            "sasl_jaas_config: .* semicolon",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": f"{PLAIN_MODULE} required;" * 2},
            "2 login modules",
        ),
    ],
)
def test_the_error_of_incomplete_settings_names_the_setting(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        login(**settings)


def test_the_password_is_in_no_repr() -> None:
    account = Credentials("ann", "ann-secret")
    clients: list[Callable[[], object]] = [
        lambda: account,
        lambda: PlainClient(account),
        lambda: ScramClient(SHA_256, account, "n"),
    ]
    for make in clients:
        assert "ann-secret" not in f"{make()!r} {make()!s}"
