"""Kafka's `ssl.*` settings as an SSLContext, for listeners and, in part, for clients."""

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.net.tls.key_stores import (
    as_file,
    check_format,
    invalid,
    key_store_to_pem,
    read_store,
    trust_store_to_pem,
    with_lines,
)

_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_TLS_13_SUITE: Final = re.compile(r"TLS_(AES|CHACHA20)_")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The settings by their Kafka names, without `ssl.`; an empty one is None."""

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: str | None = None
    keystore_key: str | None = None
    keystore_certificate_chain: str | None = None
    key_password: str | None = None
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = None
    truststore_certificates: str | None = None
    client_auth: str = "none"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, config: Mapping[str, str | None]) -> "TlsSettings":
        """Reads `ssl.keystore.type` and so on; missing settings have Kafka's defaults."""

        def text(name: str) -> str | None:
            return config.get("ssl." + name) or None

        def names(name: str) -> tuple[str, ...]:
            return tuple(
                element.strip() for element in (text(name) or "").split(",") if element.strip()
            )

        return cls(
            keystore_type=text("keystore.type") or "JKS",
            keystore_location=text("keystore.location"),
            keystore_password=text("keystore.password"),
            keystore_key=text("keystore.key"),
            keystore_certificate_chain=text("keystore.certificate.chain"),
            key_password=text("key.password"),
            truststore_type=text("truststore.type") or "JKS",
            truststore_location=text("truststore.location"),
            truststore_password=text("truststore.password"),
            truststore_certificates=text("truststore.certificates"),
            client_auth=(text("client.auth") or "none").lower(),
            enabled_protocols=names("enabled.protocols") or ("TLSv1.2", "TLSv1.3"),
            cipher_suites=names("cipher.suites"),
        )


class TlsSource:
    """The context for new connections of a listener; rebuilt when settings or files change."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._stamps = _stamps(settings)
        self.context = build_context(settings)

    def reload(
        self,
        settings: TlsSettings | None = None,
        check: Callable[[TlsSettings], None] | None = None,
    ) -> bool:
        """Applies new settings or changed files; returns whether anything has changed.

        `check` is called before that, and may raise KafkaError to refuse what has changed.
        Raises KafkaError, and keeps the old context, if the new ones cannot be used.
        """
        settings = settings or self._settings
        stamps = _stamps(settings)
        if settings == self._settings and stamps == self._stamps:
            return False
        context = build_context(settings)
        if check is not None:
            check(settings)
        self.context = context
        self._settings = settings
        self._stamps = stamps
        return True


def build_context(settings: TlsSettings) -> ssl.SSLContext:
    """Returns the context of a server; raises KafkaError that names the setting to change."""
    context = new_context(ssl.PROTOCOL_TLS_SERVER, settings)
    if not load_key(context, settings):
        raise invalid(
            "a listener with SSL needs a key and a certificate: set ssl.keystore.location, or "
            "ssl.keystore.type=PEM with ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    try:
        context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    except KeyError:
        raise invalid(
            f"ssl.client.auth={settings.client_auth}: set it to one of {', '.join(_CLIENT_AUTH)}"
        ) from None
    if context.verify_mode is not ssl.CERT_NONE:
        load_trusted(context, settings)
    return context


def new_context(side: int, settings: TlsSettings) -> ssl.SSLContext:
    """Returns a context with versions and cipher suites, without keys and certificates."""
    context = ssl.SSLContext(side)
    # A connection may end without a close_notify: frames have lengths, so nothing is lost.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    _set_versions_and_ciphers(context, settings)
    return context


def new_client_context(settings: TlsSettings, *, check_hostname: bool) -> ssl.SSLContext:
    """Returns the context of connections to a broker, which verifies the broker's certificate.

    The caller loads the certificates: `load_trusted`, `load_key`.
    """
    context = new_context(ssl.PROTOCOL_TLS_CLIENT, settings)
    # As in Java, a trusted certificate need not be that of an authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = check_hostname
    return context


def build_client_context(settings: TlsSettings, *, check_hostname: bool) -> ssl.SSLContext:
    """Returns the context with which a broker connects to others with the same settings."""
    context = new_client_context(settings, check_hostname=check_hostname)
    load_trusted(context, settings)
    load_key(context, settings)
    return context


def _stamps(settings: TlsSettings) -> tuple[int, ...]:
    paths = (settings.keystore_location, settings.truststore_location)
    return tuple(
        os.stat(path).st_mtime_ns if path is not None and os.path.exists(path) else 0
        for path in paths
    )


def _set_versions_and_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    unknown = [name for name in settings.enabled_protocols if name not in _VERSIONS]
    if unknown:
        raise invalid(f"ssl.enabled.protocols has {', '.join(unknown)}: use {', '.join(_VERSIONS)}")
    versions = sorted(_VERSIONS[name] for name in settings.enabled_protocols)
    suites = settings.cipher_suites
    older = [suite for suite in suites if not _TLS_13_SUITE.match(suite)]
    if suites and len(older) == len(suites):
        versions = [v for v in versions if v is not ssl.TLSVersion.TLSv1_3]
    elif suites and not older:
        versions = [v for v in versions if v is ssl.TLSVersion.TLSv1_3]
    if not versions:
        raise invalid("ssl.cipher.suites has no suite for the versions of ssl.enabled.protocols")
    context.minimum_version = versions[0]
    context.maximum_version = versions[-1]
    if older:
        try:
            context.set_ciphers(":".join(map(_openssl_name, older)))
        except ssl.SSLError:
            raise invalid(
                f"ssl.cipher.suites={','.join(suites)} has none that OpenSSL knows"
            ) from None


def _openssl_name(suite: str) -> str:
    """Converts TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 to ECDHE-RSA-AES256-GCM-SHA384."""
    if not suite.startswith("TLS_"):
        return suite
    name = suite[4:].replace("_WITH_", "-").replace("_", "-").removeprefix("RSA-")
    name = re.sub(r"(AES|CAMELLIA|ARIA)-(\d+)", r"\1\2", name).replace("-CBC-", "-")
    return re.sub(r"(POLY1305)-SHA256$", r"\1", name)


class OwnKey(NamedTuple):
    """A private key with its certificates; `where` names their settings, for errors."""

    where: str
    pem: bytes
    password: str | None

    def __repr__(self) -> str:
        return f"OwnKey({self.where})"


def load_key(context: ssl.SSLContext, settings: TlsSettings) -> bool:
    """Loads the context's own key and certificates; returns False if the settings have none."""
    key = read_own_key(settings)
    if key is None:
        return False
    use_key(context, *key)
    return True


def read_own_key(settings: TlsSettings) -> OwnKey | None:
    """Returns key and certificates of the settings or of the key store; None if there are none."""
    path = settings.keystore_location
    if settings.keystore_key is not None:
        _check_inline(settings)
        chain = settings.keystore_certificate_chain or ""
        pem = f"{settings.keystore_key}\n{chain}\n".encode()
        where = "ssl.keystore.key with ssl.keystore.certificate.chain"
        return OwnKey(where, pem, settings.key_password)
    if settings.keystore_certificate_chain is not None:
        raise invalid("ssl.keystore.certificate.chain is set, ssl.keystore.key is missing")
    if path is None:
        return None
    where = f"ssl.keystore.location={path}"
    pem = read_store("ssl.keystore.location", path)
    if settings.keystore_type.upper() != "PEM":
        return OwnKey(where, key_store_to_pem(path, pem, settings.keystore_password), None)
    if settings.keystore_password is not None:
        raise invalid("ssl.keystore.password is not for PEM: use ssl.key.password")
    check_format("ssl.keystore", path, pem)
    return OwnKey(where, pem, settings.key_password)


_WEAKNESSES: Final = {
    "CA_MD_TOO_WEAK": "a certificate is signed with a weak hash such as SHA-1 or MD5",
    "EE_KEY_TOO_SMALL": "the key of the certificate is too small",
    "CA_KEY_TOO_SMALL": "the key of a certificate in the chain is too small",
}
"""OpenSSL's reasons for refusing certificates that are well-formed."""


def use_key(context: ssl.SSLContext, where: str, pem: bytes, password: str | None) -> None:
    """Loads a key with its certificates; `where` names their settings, for errors."""
    try:
        with as_file(with_lines(pem)) as name:
            # Without a password OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(name, password=password or "")
    except (ssl.SSLError, ValueError) as error:
        weakness = _WEAKNESSES.get(getattr(error, "reason", None) or "")
        if weakness is not None:
            raise invalid(
                f"{where} cannot be used: {weakness}, which OpenSSL refuses; issue the certificate "
                "again with SHA-256 and an RSA key of 2048 bits or an EC key"
            ) from None
        raise invalid(
            f"{where} cannot be used: it must hold a private key and its certificate chain in PEM, "
            f"and ssl.key.password must be right ({error})"
        ) from None


def _check_inline(settings: TlsSettings) -> None:
    if settings.keystore_type.upper() != "PEM":
        raise invalid("ssl.keystore.key is for ssl.keystore.type=PEM only")
    if settings.keystore_certificate_chain is None:
        raise invalid("ssl.keystore.key is set, ssl.keystore.certificate.chain is missing")
    if settings.keystore_location is not None:
        raise invalid("set ssl.keystore.location or ssl.keystore.key, not both")


def load_trusted(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Loads the trusted certificates: those of the settings, or the system's."""
    path = settings.truststore_location
    if settings.truststore_certificates is not None:
        if settings.truststore_type.upper() != "PEM":
            raise invalid("ssl.truststore.certificates is for ssl.truststore.type=PEM only")
        if path is not None:
            raise invalid("set ssl.truststore.location or ssl.truststore.certificates, not both")
        pem = settings.truststore_certificates.encode()
        where = "ssl.truststore.certificates"
    elif path is None:
        is_client = context.protocol is ssl.PROTOCOL_TLS_CLIENT
        context.load_default_certs(
            ssl.Purpose.SERVER_AUTH if is_client else ssl.Purpose.CLIENT_AUTH
        )
        return
    else:
        where = f"ssl.truststore.location={path}"
        pem = read_store("ssl.truststore.location", path)
        if settings.truststore_type.upper() == "PEM":
            check_format("ssl.truststore", path, pem)
        else:
            pem = trust_store_to_pem(path, pem, settings.truststore_password)
    use_trusted(context, where, pem)


def use_trusted(context: ssl.SSLContext, where: str, pem: bytes) -> None:
    """Loads trusted certificates; `where` names their setting, for errors."""
    try:
        context.load_verify_locations(cadata=with_lines(pem).decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise invalid(f"{where} has no certificates in PEM ({error})") from None
