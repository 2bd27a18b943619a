"""TLS of the client: settings, and handshakes with a broker's context in memory (X1, E3)."""

import contextlib
import ssl
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from penstock.client.errors import ConfigError
from penstock.client.security import tls_context
from penstock.client.settings import CommonOptions, resolve
from penstock.net.client.node_connection import server_hostname
from penstock.net.client.tls_errors import handshake_error
from penstock.net.tls.settings import TlsSettings, build_context
from tests.support.broker.certificates import Identity, make_identity, simple_name


class Parties(NamedTuple):
    authority: Identity
    broker: Identity
    alice: Identity
    stranger: Identity

    def server(self, **more: Any) -> ssl.SSLContext:
        return build_context(
            TlsSettings(
                keystore_type="PEM",
                keystore_key=self.broker.key_pem(),
                keystore_certificate_chain=self.broker.certificate_pem,
                truststore_type="PEM",
                truststore_certificates=self.authority.certificate_pem,
                **more,
            )
        )


@pytest.fixture(scope="module")
def parties() -> Parties:
    authority = make_identity(simple_name("authority"))
    return Parties(
        authority,
        make_identity(simple_name("broker"), authority),
        make_identity(simple_name("alice"), authority),
        make_identity(simple_name("stranger")),
    )


def options(**settings: Any) -> CommonOptions:
    base = {"bootstrap_servers": "b:9092", "security_protocol": "SSL"}
    return resolve(CommonOptions, {**base, **settings})


def context_of(**settings: Any) -> ssl.SSLContext:
    context = tls_context(options(**settings))
    assert context is not None
    return context


def trusting(identity: Identity) -> dict[str, str]:
    return {
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": identity.certificate_pem,
    }


def shake_hands(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost"
) -> str | None:
    """Returns the client's name on the server, after the server has returned a byte."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                if side is ours:
                    raise
    with contextlib.suppress(ssl.SSLError):
        theirs.write(b"x")
    assert ours.read(1) == b"x"
    certificate = theirs.getpeercert(binary_form=True)
    if certificate is None:
        return None
    subject = x509.load_der_x509_certificate(certificate).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def handshake_failure(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost"
) -> str:
    with pytest.raises(ssl.SSLError) as failure:
        shake_hands(client, server, name)
    explained = handshake_error(failure.value, "b:9093")
    assert not explained.retriable
    assert "broker b:9093" in explained.message
    return explained.message


# --- Contexts


def test_there_is_no_context_without_tls() -> None:
    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        assert tls_context(options(security_protocol=protocol)) is None
    assert tls_context(options(security_protocol="SASL_SSL")) is not None


def test_certificate_and_host_name_are_verified_by_default() -> None:
    context = context_of()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    "settings", [{"ssl_endpoint_identification_algorithm": ""}, {"ssl_check_hostname": False}]
)
def test_verification_of_the_host_name_can_be_switched_off(
    parties: Parties, settings: dict[str, object]
) -> None:
    context = context_of(**trusting(parties.authority), **settings)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert shake_hands(context, parties.server(), "other.example") is None


def test_a_context_of_the_user_is_used_unchanged() -> None:
    own = ssl.create_default_context()
    assert tls_context(options(ssl_context=own)) is own
    with pytest.raises(ConfigError, match="ssl_context is a str"):
        tls_context(options(ssl_context="context"))


def test_versions_and_suites(parties: Parties) -> None:
    context = context_of(
        ssl_enabled_protocols="TLSv1.2",
        ssl_cipher_suites=["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"],
        **trusting(parties.authority),
    )
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert shake_hands(context, parties.server()) is None


def test_stores_in_every_format(parties: Parties, tmp_path: Path) -> None:
    """X1: PKCS12 and PEM, in files and in the settings, under Kafka's and kafka-python's names."""
    authority, alice = parties.authority, parties.alice
    files = {
        "ca.pem": authority.certificate_pem,
        "alice.pem": alice.certificate_pem,
        "alice.key": alice.key_pem("key-secret"),
        "both.pem": alice.key_pem() + alice.certificate_pem,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "ca.p12").write_bytes(authority.pkcs12("changeit"))
    (tmp_path / "alice.p12").write_bytes(alice.pkcs12("secret"))
    path = {file.name: str(file) for file in tmp_path.iterdir()}
    trusts: list[dict[str, str]] = [
        trusting(authority),
        {"ssl_truststore_type": "PEM", "ssl_truststore_location": path["ca.pem"]},
        {"ssl_truststore_location": path["ca.p12"], "ssl_truststore_password": "changeit"},
        {"ssl_cafile": path["ca.pem"]},
        trusting(parties.broker),
    ]
    keys: list[dict[str, str]] = [
        {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": alice.key_pem(),
            "ssl_keystore_certificate_chain": alice.certificate_pem,
        },
        {"ssl_keystore_type": "PEM", "ssl_keystore_location": path["both.pem"]},
        {"ssl_keystore_location": path["alice.p12"], "ssl_keystore_password": "secret"},
        {
            "ssl_certfile": path["alice.pem"],
            "ssl_keyfile": path["alice.key"],
            "ssl_key_password": "key-secret",
        },
        {"ssl_certfile": path["both.pem"]},
    ]
    server = parties.server(client_auth="required")
    for trust, key in zip(trusts, keys, strict=True):
        assert shake_hands(context_of(**trust, **key), server) == "alice"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl_endpoint_identification_algorithm": "ldaps"}, "algorithm=ldaps: use https"),
        ({"ssl_enabled_protocols": "SSLv3"}, "ssl_enabled_protocols has SSLv3"),
        ({"ssl_cipher_suites": "TLS_NO_SUCH"}, "ssl_cipher_suites=TLS_NO_SUCH has none"),
        ({"ssl_truststore_location": "FOLDER/none"}, "ssl_truststore_location=.*cannot be read"),
        ({"ssl_truststore_location": "FOLDER/ca.pem"}, "in PEM: set ssl_truststore_type=PEM"),
        ({"ssl_truststore_certificates": "x"}, "ssl_truststore_certificates is for ssl_trust"),
        (
            {"ssl_truststore_type": "PEM", "ssl_truststore_location": "FOLDER/empty"},
            "ssl_truststore_location=.*has no certificates",
        ),
        ({"ssl_cafile": "FOLDER/none"}, "ssl_cafile=.*cannot be read"),
        ({"ssl_cafile": "FOLDER/empty"}, "ssl_cafile=.*not in PEM"),
        ({"ssl_cafile": "FOLDER/ca.pem", "ssl_truststore_location": "x"}, "not both"),
        ({"ssl_keyfile": "FOLDER/key.pem"}, "ssl_certfile is missing"),
        ({"ssl_certfile": "FOLDER/ca.pem"}, "ssl_certfile=.*must hold a private key"),
        (
            {"ssl_certfile": "FOLDER/ca.pem", "ssl_keyfile": "FOLDER/locked.pem"},
            "with ssl_keyfile=.*ssl_key_password must be right",
        ),
        ({"ssl_certfile": "FOLDER/ca.pem", "ssl_keystore_location": "x"}, "not both"),
        (
            {"ssl_keystore_type": "PEM", "ssl_keystore_key": "x"},
            "ssl_keystore_certificate_chain is missing",
        ),
        ({"ssl_keystore_certificate_chain": "x"}, "ssl_keystore_key is missing"),
    ],
)
def test_the_error_of_invalid_settings_has_the_names_of_arguments(
    parties: Parties, tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    (tmp_path / "ca.pem").write_text(parties.authority.certificate_pem)
    (tmp_path / "locked.pem").write_text(parties.authority.key_pem("secret"))
    (tmp_path / "empty").touch()
    filled = {key: value.replace("FOLDER", str(tmp_path)) for key, value in settings.items()}
    with pytest.raises(ConfigError, match=message) as failure:
        tls_context(options(**filled))
    assert "ssl." not in failure.value.message.replace("_ssl.c", "")


def test_host_names_for_certificates() -> None:
    assert server_hostname("broker.example.") == "broker.example"
    assert server_hostname("[::1]") == "::1"
    assert server_hostname("fe80::1%eth0") == "fe80::1"


# --- Handshakes that fail


def test_an_authority_that_is_not_trusted(parties: Parties) -> None:
    """E3"""
    message = handshake_failure(context_of(**trusting(parties.stranger)), parties.server())
    assert "not trusted" in message
    assert "ssl_cafile, ssl_truststore_location" in message


@pytest.mark.parametrize("name", ["other.example", "127.0.0.1"])
def test_a_certificate_of_another_host(parties: Parties, name: str) -> None:
    """E3"""
    message = handshake_failure(context_of(**trusting(parties.authority)), parties.server(), name)
    assert "not for this host" in message
    assert name in message
    assert "advertised.listeners" in message


@pytest.mark.parametrize("code", [9, 10])
def test_a_certificate_that_is_expired_or_not_yet_valid(code: int) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code = code
    error.verify_message = "certificate has expired"
    explained = handshake_error(error, "b:9093")
    assert "not valid now (certificate has expired): renew it" in explained.message


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("client", ["nobody", "stranger"])
def test_a_broker_that_demands_a_trusted_client_certificate(
    parties: Parties, version: str, client: str
) -> None:
    """E3"""
    own = (
        {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": parties.stranger.key_pem(),
            "ssl_keystore_certificate_chain": parties.stranger.certificate_pem,
        }
        if client == "stranger"
        else {}
    )
    context = context_of(ssl_enabled_protocols=version, **trusting(parties.authority), **own)
    message = handshake_failure(context, parties.server(client_auth="required"))
    # Before TLS 1.3 a broker had no word for a certificate that is missing.
    unnamed = (version, client) == ("TLSv1.2", "nobody")
    assert ("gives no reason" if unnamed else "demands a client certificate") in message
    assert "ssl_certfile and ssl_keyfile, or ssl_keystore_location" in message


def test_no_common_version(parties: Parties) -> None:
    context = context_of(ssl_enabled_protocols="TLSv1.2", **trusting(parties.authority))
    message = handshake_failure(context, parties.server(enabled_protocols=("TLSv1.3",)))
    assert "ssl_enabled_protocols" in message


def test_a_port_without_tls(parties: Parties) -> None:
    incoming = ssl.MemoryBIO()
    incoming.write(b"\0\0\0\x0aanything at all")
    ours = context_of().wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="localhost")
    with pytest.raises(ssl.SSLError) as failure:
        ours.do_handshake()
    explained = handshake_error(failure.value, "b:9092")
    assert "set security_protocol to PLAINTEXT" in explained.message


def test_an_error_that_does_not_come_from_openssl() -> None:
    unknown = handshake_error(ssl.SSLError(1, "something else"), "b:9092")
    assert "something else" in unknown.message
