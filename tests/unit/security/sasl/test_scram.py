"""SASL SCRAM: the RFCs' own example, Kafka's credentials, and clients that misbehave (X2)."""

import base64
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.security.decoy_credentials import DecoyCredentials
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import ConfigRecord, LoginSecretRecord, Put, Record
from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.sasl.scram import (
    SCRAM_SHA_256_MECHANISM,
    ScramServer,
    decode_saslname,
    encode_saslname,
)
from penstock.security.sasl.server import SaslServer, ServerContext
from penstock.security.scram_credential import (
    CredentialShape,
    ScramCredential,
    ScramMechanism,
    credential_from_salted_password,
    decoy_credential,
    random_text,
    salted_password,
)
from tests.support.protocol.scram_client import (
    ScramClient,
    credential_from_password,
    credential_lookup,
)

SHA_256 = ScramMechanism.SCRAM_SHA_256
SHA_512 = ScramMechanism.SCRAM_SHA_512
MECHANISMS = pytest.mark.parametrize("mechanism", list(ScramMechanism))
NONCE = "3rfcNHYJY1ZVvWVs7j"

# What ScramFormatter of Kafka 4.3.1 makes of the password "pencil" and the salt "4salt".
KAFKA_CREDENTIALS = {
    SHA_256: "salt=NHNhbHQ=,stored_key=icDLYhdfNITsJX2Hk6VVVO7BFDaPbrXB32ZwdgwvwL0=,"
    "server_key=XbIZlb0ZoGJdv4A1457IBzAvqTkabEOFezSbRquANiQ=,iterations=4096",
    SHA_512: "salt=NHNhbHQ=,stored_key=jvLjttYfCtrvNzOtGSh7Dn3Kmh4/CwitYKKnxqXcHdzN87D2MaVbnyU"
    "owf5IspT2jh73iv5haWF1LtjOflOB/A==,server_key=x3InHnPbN3hINAuC8ts4fndgTQaRK/y+d/L"
    "haSf28t7YFDbp+uFeJfcSUOCGNGLtHL/Gw/jpwXsWnRcLzUj8lg==,iterations=4096",
}


def new_server(
    mechanism: ScramMechanism = SHA_256, user: str = "user", password: str = "pencil"
) -> ScramServer:
    credential = credential_from_password(mechanism, password, b"salt")
    return ScramServer(mechanism, credential_lookup(mechanism, {user: credential}), NONCE)


def new_servers(image: ClusterImage) -> Callable[[], SaslServer]:
    """Returns what creates the servers of a broker with these users."""
    context = ServerContext(
        setting=lambda name, mechanism: None,
        user_configs=lambda user: image.config("users", user),
        new_nonce=lambda: NONCE,
        decoys=DecoyCredentials(image),
        now_ms=lambda: 0,
        keys_of=lambda settings: pytest.fail("SCRAM needs no keys"),
        acceptor_of=lambda settings: pytest.fail("SCRAM needs no keytab"),
        report=lambda reason: None,
    )
    return SCRAM_SHA_256_MECHANISM.create(context)


def refusal(step: Callable[[], bytes]) -> str:
    with pytest.raises(KafkaError) as raised:
        step()
    assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    return raised.value.message


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_from_password(SHA_256, "pencil", salt, 4096)
    server: SaslServer = ScramServer(
        SHA_256,
        credential_lookup(SHA_256, {"user": credential}),
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    assert server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert not server.done
    assert (
        server.step(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert server.done
    assert server.principal_name == "user"
    assert server.mechanism == "SCRAM-SHA-256"


@MECHANISMS
def test_credentials_are_those_of_kafka(mechanism: ScramMechanism) -> None:
    credential = credential_from_password(mechanism, "pencil", b"4salt")
    assert credential.to_text() == KAFKA_CREDENTIALS[mechanism]
    assert ScramCredential.from_text(KAFKA_CREDENTIALS[mechanism]) == credential
    salted = salted_password(mechanism, "pencil", b"4salt", 4096)
    assert credential_from_salted_password(mechanism, salted, b"4salt", 4096) == credential


@given(st.binary(), st.binary(), st.binary(), st.integers())
def test_a_credential_survives_being_stored(
    salt: bytes, stored_key: bytes, server_key: bytes, iterations: int
) -> None:
    credential = ScramCredential(salt, stored_key, server_key, iterations)
    assert ScramCredential.from_text(credential.to_text()) == credential
    assert repr(credential) == f"ScramCredential(iterations={iterations})"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=NHNhbHQ=",
        "salt=a,stored_key=,server_key=,iterations=4096",
        "salt=,stored_key=,server_key=,iterations=x",
        "salt=,stored_key=,server_key=,iterations=1,more=1",
    ],
)
def test_a_broken_credential_is_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="set the user's password again"):
        ScramCredential.from_text(text)


@MECHANISMS
@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=a=2Cb=3Dc,"])
def test_a_client_logs_in(mechanism: ScramMechanism, header: str) -> None:
    server = new_server(mechanism, "a,b=c", "pass")
    client = ScramClient(mechanism.digest, "a,b=c", "pass", header=header, extensions=",x=y")
    verdict = server.step(client.final(server.step(client.first())))
    assert client.accepts(verdict)
    assert server.principal_name == "a,b=c"


@given(st.text(min_size=1).filter(lambda text: "\0" not in text), st.text())
def test_any_name_and_password_work(user: str, password: str) -> None:
    server = new_server(SHA_256, user, password)
    client = ScramClient("sha256", user, password)
    assert client.accepts(server.step(client.final(server.step(client.first()))))
    assert server.principal_name == user


@given(st.text())
def test_names_survive_their_encoding(user: str) -> None:
    assert decode_saslname(encode_saslname(user)) == user


@MECHANISMS
def test_unknown_user_and_wrong_password_have_the_same_error(mechanism: ScramMechanism) -> None:
    """An unknown user gets a constant challenge and the same error."""

    def attempt(user: str) -> tuple[bytes, str]:
        server = new_server(mechanism)
        client = ScramClient(mechanism.digest, user, "wrong")
        challenge = server.step(client.first())
        return challenge, refusal(lambda: server.step(client.final(challenge)))

    existing_user, unknown_user = attempt("user"), attempt("eve")
    assert existing_user[1] == unknown_user[1]
    assert attempt("eve") == unknown_user
    assert attempt("mallory")[0] != unknown_user[0]
    assert unknown_user[0].endswith(b",i=4096")
    salt = base64.b64decode(unknown_user[0].split(b",s=")[1].split(b",")[0])
    assert salt.decode().isalnum()
    assert 20 <= len(salt) <= 26


def test_a_credential_with_too_few_iterations_is_not_used() -> None:
    weak = credential_from_password(SHA_256, "pencil", b"salt", 4095)
    image = ClusterImage()
    image.apply(
        [
            Put(LoginSecretRecord(b"the broker's own")),
            Put(ConfigRecord((("users", "user"),), {"SCRAM-SHA-256": weak.to_text()})),
        ]
    )
    server = new_servers(image)()
    client = ScramClient("sha256", "user", "pencil")
    challenge = server.step(client.first())
    assert challenge.endswith(b",i=4096")
    assert "wrong user name or password" in refusal(lambda: server.step(client.final(challenge)))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "invalid first message"),
        (b"n,,n=,r=abc", "invalid first message"),
        (b"n,,n=user", "invalid first message"),
        (b"n,,n=us=er,r=abc", "invalid first message"),
        (b"x,,n=user,r=abc", "invalid first message"),
        (b"n,,n=user,r=a b", "invalid first message"),
        (b"n,,n=\xff,r=abc", "not UTF-8"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding is not supported"),
        (b"n,,m=x,n=user,r=abc", "mandatory SCRAM extension"),
        (b"n,,n=user,r=abc,tokenauth=true", "delegation tokens are disabled"),
        (b"n,a=eve,n=user,r=abc", "authorization id"),
    ],
)
def test_a_bad_first_message(message: bytes, reason: str) -> None:
    assert reason in refusal(lambda: new_server().step(message))


def test_tokenauth_false_is_ignored() -> None:
    assert (
        new_server().step(b"n,,n=user,r=abc,tokenauth=false").startswith(b"r=abc" + NONCE.encode())
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((b"c=biws", b"c=eSws"), "channel binding differs"),
        ((b"c=biws", b"c=a"), "base64"),
        ((NONCE.encode(), b"another"), "nonce"),
        ((b",r=fyko", b",r=xfyko"), "nonce"),
        ((b",p=", b",p=AAAA"), "wrong user name or password"),
        ((b",p=", b",q="), "invalid final message"),
        ((b"c=biws", b"\xff"), "not UTF-8"),
    ],
)
def test_a_bad_final_message(change: tuple[bytes, bytes], reason: str) -> None:
    server = new_server()
    client = ScramClient("sha256", "user", "pencil")
    final = client.final(server.step(client.first()))
    assert change[0] in final
    assert reason in refusal(lambda: server.step(final.replace(*change)))
    assert not server.done


def test_a_proof_is_not_valid_in_another_exchange() -> None:
    client = ScramClient("sha256", "user", "pencil")
    first, second = new_server(), new_server()
    final = client.final(first.step(client.first()))
    second.step(client.first().replace(b"fyko", b"gyko"))
    assert "nonce" in refusal(lambda: second.step(final))


def test_a_completed_exchange_cannot_be_continued() -> None:
    server = new_server()
    client = ScramClient("sha256", "user", "pencil")
    final = client.final(server.step(client.first()))
    with pytest.raises(KafkaError, match="nobody logged in"):
        _ = server.principal_name
    server.step(final)
    with pytest.raises(KafkaError) as raised:
        server.step(final)
    assert raised.value.code is ErrorCode.ILLEGAL_SASL_STATE


@given(st.binary(max_size=60))
def test_arbitrary_messages_never_authenticate(response: bytes) -> None:
    server = new_server()
    client = ScramClient("sha256", "user", "pencil")
    server.step(client.first())
    assert refusal(lambda: server.step(response))


def test_random_text_and_decoys() -> None:
    assert random_text(0) == "0"
    assert int(random_text(2**130 - 1), 36) == 2**130 - 1
    assert int(random_text(2**200 + 77), 36) == 77
    assert decoy_credential(SHA_256, b"a", "x", []) != decoy_credential(SHA_256, b"b", "x", [])


def test_decoys_have_the_iterations_and_salts_of_known_users_in_the_same_proportions() -> None:
    sorted_shapes = sorted(
        [CredentialShape(4096), CredentialShape(8192, 64), CredentialShape(8192, 64)]
    )
    decoys = [decoy_credential(SHA_256, b"a", f"user{n}", sorted_shapes) for n in range(900)]
    shapes = Counter(CredentialShape.of(decoy) for decoy in decoys)
    assert shapes.keys() == set(sorted_shapes)
    assert 500 < shapes[CredentialShape(8192, 64)] < 700


def test_a_decoy_survives_a_restart_and_a_login_resembles_that_of_a_known_user() -> None:
    credential = credential_from_password(SHA_256, "pencil", bytes(range(16)), 8192)
    records: list[Record] = [
        LoginSecretRecord(b"secret"),
        ConfigRecord((("users", "ann"),), {"SCRAM-SHA-256": credential.to_text()}),
    ]

    def challenge(user: str) -> bytes:
        image = ClusterImage()
        image.apply(map(Put, records))
        return new_servers(image)().step(ScramClient("sha256", user, "x").first())

    def shape(user: str) -> tuple[int, bytes]:
        _, salt, iterations = challenge(user).split(b",")
        return len(base64.b64decode(salt.removeprefix(b"s="))), iterations

    assert challenge("eve") == challenge("eve")
    assert shape("eve") == shape("ann") == (16, b"i=8192")


def test_an_unknown_user_takes_the_steps_of_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same parsing and the same hashes: the time of a login does not tell who exists."""
    image = ClusterImage()
    credential = credential_from_password(SHA_256, "pencil", b"s" * 24)
    image.apply(
        [
            Put(LoginSecretRecord(b"secret")),
            Put(ConfigRecord((("users", "ann"),), {"SCRAM-SHA-256": credential.to_text()})),
        ]
    )
    calls: Counter[str] = Counter()

    def count(owner: object, name: str) -> None:
        function = getattr(owner, name)

        def counted(*args: object) -> object:
            calls[name] += 1
            return function(*args)

        monkeypatch.setattr(owner, name, counted)

    count(ScramCredential, "from_text")
    count(ScramMechanism, "hmac")
    count(ScramMechanism, "hash")

    new_server = new_servers(image)

    def steps(user: str) -> Counter[str]:
        calls.clear()
        server = new_server()
        client = ScramClient("sha256", user, "wrong")
        challenge = server.step(client.first())
        assert refusal(lambda: server.step(client.final(challenge)))
        return Counter(calls)

    steps("ann")  # collects the shapes of known credentials, once
    assert steps("ann") == steps("eve")
    assert steps("eve")["from_text"] == 1
