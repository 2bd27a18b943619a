"""Kafka's ssl.* settings."""

import ssl
import sys
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.tls.settings import TlsSettings, TlsSource, build_context
from tests.support.broker.certificates import Identity, make_identity, simple_name


@pytest.fixture(scope="module")
def authority() -> Identity:
    return make_identity(simple_name("authority"))


@pytest.fixture(scope="module")
def broker(authority: Identity) -> Identity:
    return make_identity(simple_name("broker"), authority)


def inline(identity: Identity, **more: str | None) -> TlsSettings:
    return TlsSettings.from_config(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": identity.key_pem(),
            "ssl.keystore.certificate.chain": identity.certificate_pem,
            **{"ssl." + name.replace("_", "."): value for name, value in more.items()},
        }
    )


def test_a_key_and_a_chain_in_the_settings(broker: Identity) -> None:
    context = build_context(inline(broker))
    assert context.verify_mode is ssl.CERT_NONE
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize("password", [None, "secret"])
def test_a_key_and_a_chain_in_one_line(
    broker: Identity, authority: Identity, password: str | None
) -> None:
    """As Kafka accepts them: a properties file joins the lines of a value."""

    def in_one_line(pem: str) -> str:
        return " ".join(pem.split("\n"))

    settings = inline(
        broker,
        keystore_key=in_one_line(broker.key_pem(password)),
        key_password=password,
        keystore_certificate_chain=in_one_line(broker.certificate_pem + authority.certificate_pem),
        truststore_type="PEM",
        truststore_certificates=in_one_line(authority.certificate_pem),
        client_auth="required",
    )
    assert build_context(settings).cert_store_stats()["x509"] == 1


@pytest.mark.parametrize("password", [None, "secret"])
def test_a_pem_file_with_key_and_chain(
    tmp_path: Path, broker: Identity, password: str | None
) -> None:
    path = tmp_path / "broker.pem"
    path.write_text(broker.certificate_pem + broker.key_pem(password))
    settings = TlsSettings(keystore_type="PEM", keystore_location=str(path), key_password=password)
    assert build_context(settings).cert_store_stats()["x509"] == 0


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_pkcs12_file_under_either_name(
    tmp_path: Path, broker: Identity, authority: Identity, kind: str
) -> None:
    """Java opens PKCS12 files as JKS too, and JKS is the default of the setting."""
    path = tmp_path / "broker.p12"
    path.write_bytes(broker.pkcs12("secret"))
    trust = tmp_path / "trust.p12"
    trust.write_bytes(authority.pkcs12("changeit"))
    settings = TlsSettings(
        keystore_type=kind,
        keystore_location=str(path),
        keystore_password="secret",
        truststore_type=kind,
        truststore_location=str(trust),
        truststore_password="changeit",
        client_auth="required",
    )
    context = build_context(settings)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats()["x509"] == 1


def test_pkcs12_without_the_package_says_how_to_convert(
    tmp_path: Path, broker: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker.p12"
    path.write_bytes(broker.pkcs12("secret"))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(KafkaError, match="openssl pkcs12 -in"):
        build_context(TlsSettings(keystore_location=str(path), keystore_password="secret"))


@pytest.mark.parametrize(
    ("auth", "mode"),
    [
        ("none", ssl.CERT_NONE),
        ("requested", ssl.CERT_OPTIONAL),
        ("REQUIRED", ssl.CERT_REQUIRED),
    ],
)
def test_client_auth(
    broker: Identity, authority: Identity, auth: str, mode: ssl.VerifyMode
) -> None:
    settings = inline(
        broker,
        client_auth=auth,
        truststore_type="PEM",
        truststore_certificates=authority.certificate_pem,
    )
    assert build_context(settings).verify_mode is mode


@pytest.mark.parametrize(
    ("protocols", "suites", "lowest", "highest"),
    [
        ("TLSv1.3", "", "TLSv1_3", "TLSv1_3"),
        ("TLSv1.2", "", "TLSv1_2", "TLSv1_2"),
        ("", "TLS_AES_256_GCM_SHA384", "TLSv1_3", "TLSv1_3"),
        ("", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLSv1_2", "TLSv1_2"),
        ("", "TLS_AES_128_GCM_SHA256, ECDHE-RSA-AES128-GCM-SHA256", "TLSv1_2", "TLSv1_3"),
    ],
)
def test_protocols_and_suites(
    broker: Identity, protocols: str, suites: str, lowest: str, highest: str
) -> None:
    context = build_context(inline(broker, enabled_protocols=protocols, cipher_suites=suites))
    assert (context.minimum_version.name, context.maximum_version.name) == (lowest, highest)


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA", "DHE-RSA-AES256-SHA"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
    ],
)
def test_suites_by_their_java_names(broker: Identity, suite: str, name: str) -> None:
    context = build_context(inline(broker, cipher_suites=suite))
    older = [c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]
    assert older == [name]


def test_the_error_of_unusable_settings_says_what_to_change(
    tmp_path: Path, broker: Identity, authority: Identity
) -> None:
    jks = tmp_path / "broker.jks"
    jks.write_bytes(bytes.fromhex("feedfeed00000002"))
    p12 = tmp_path / "broker.p12"
    p12.write_bytes(broker.pkcs12("secret"))
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    locked = tmp_path / "locked.pem"
    locked.write_text(broker.certificate_pem + broker.key_pem("secret"))
    key, chain = broker.key_pem(), broker.certificate_pem
    cases = [
        (TlsSettings(), "needs a key and a certificate"),
        (TlsSettings(keystore_location=str(jks)), "keytool -importkeystore"),
        (TlsSettings("PEM", str(jks)), "keytool -importkeystore"),
        (TlsSettings("PKCS12", str(p12), "wrong"), r"ssl\.keystore\.password right"),
        (TlsSettings("PEM", str(tmp_path / "none")), "cannot be read: No such file"),
        (TlsSettings("PEM", str(text)), r"cannot be used.*private key"),
        (TlsSettings("PEM", str(locked)), r"ssl\.key\.password"),
        (TlsSettings("PEM", str(locked), "x"), r"use ssl\.key\.password"),
        (TlsSettings("PEM", keystore_key=key), "certificate.chain is missing"),
        (TlsSettings("PEM", keystore_certificate_chain=chain), "keystore.key is missing"),
        (TlsSettings(keystore_key=key, keystore_certificate_chain=chain), "type=PEM only"),
        (TlsSettings("PEM", str(text), None, key, chain), "not both"),
        (inline(authority, keystore_certificate_chain=""), "chain is missing"),
        (inline(broker, client_auth="maybe"), "none, requested, required"),
        (inline(broker, enabled_protocols="SSLv3"), "use TLSv1"),
        (inline(broker, cipher_suites="NO_SUCH"), "OpenSSL knows"),
        (inline(broker, enabled_protocols="TLSv1.3", cipher_suites="AES128-SHA"), "no suite"),
        (inline(broker, client_auth="required", truststore_location=str(jks)), "keytool"),
        (
            inline(
                broker,
                client_auth="required",
                truststore_type="PEM",
                truststore_location=str(text),
            ),
            "has no certificates",
        ),
        (
            inline(broker, client_auth="required", truststore_certificates=chain),
            "truststore.type=PEM only",
        ),
    ]
    for settings, message in cases:
        with pytest.raises(KafkaError, match=message) as raised:
            build_context(settings)
        assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_contexts_are_recreated_when_files_or_settings_change(
    tmp_path: Path, broker: Identity
) -> None:
    path = tmp_path / "broker.pem"
    path.write_text(broker.certificate_pem + broker.key_pem())
    source = TlsSource(TlsSettings("PEM", str(path)))
    first = source.context
    assert not source.reload()
    assert source.context is first
    path.write_text("broken")
    with pytest.raises(KafkaError):
        source.reload()
    assert source.context is first
    path.write_text(broker.key_pem() + broker.certificate_pem)
    assert source.reload()
    second = source.context
    assert second is not first
    assert source.reload(inline(broker))
    assert source.context is not second
