"""TLS of a client: its context, from Kafka's `ssl_…` settings or those of kafka-python (X1)."""

import re
import ssl
from typing import Final

from penstock.client.errors import ConfigError
from penstock.client.settings import CommonOptions, items
from penstock.core.errors import KafkaError
from penstock.net.tls.key_stores import read_store
from penstock.net.tls.settings import (
    TlsSettings,
    load_key,
    load_trusted,
    new_context,
    use_key,
    use_trusted,
)

_SETTING: Final = re.compile(r"(?<![\w/.-])ssl(?:\.[a-z]+)+(?![\w/-])")


def client_context(settings: CommonOptions) -> ssl.SSLContext | None:
    """The context for all connections of a client; None where the protocol has no TLS.

    The broker's certificate is always checked, and its name too unless
    `ssl_endpoint_identification_algorithm` is empty or `ssl_check_hostname` is False. ConfigError
    names the setting that does not fit.
    """
    if not settings["security_protocol"].endswith("SSL"):
        return None
    given: object = settings["ssl_context"]
    if given is not None:
        if not isinstance(given, ssl.SSLContext):
            raise ConfigError(f"ssl_context is a {type(given).__name__}, not an ssl.SSLContext")
        return given
    tls = _tls_settings(settings)
    try:
        context = new_context(ssl.PROTOCOL_TLS_CLIENT, tls)
        # As in Java, a certificate that is trusted need not be an authority's.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = _checks_hostname(settings)
        _trust(context, settings, tls)
        _identify(context, settings, tls)
    except KafkaError as error:
        raise ConfigError(_with_our_names(error.message)) from None
    return context


def server_hostname(host: str) -> str:
    """The name that a broker's certificate must have, from the host of its address."""
    return host.strip("[]").partition("%")[0].rstrip(".")


def _tls_settings(settings: CommonOptions) -> TlsSettings:
    return TlsSettings(
        keystore_type=settings["ssl_keystore_type"],
        keystore_location=settings["ssl_keystore_location"] or None,
        keystore_password=settings["ssl_keystore_password"] or None,
        keystore_key=settings["ssl_keystore_key"] or None,
        keystore_certificate_chain=settings["ssl_keystore_certificate_chain"] or None,
        key_password=settings["ssl_key_password"] or None,
        truststore_type=settings["ssl_truststore_type"],
        truststore_location=settings["ssl_truststore_location"] or None,
        truststore_password=settings["ssl_truststore_password"] or None,
        truststore_certificates=settings["ssl_truststore_certificates"] or None,
        enabled_protocols=tuple(items(settings["ssl_enabled_protocols"])),
        cipher_suites=tuple(items(settings["ssl_cipher_suites"])),
    )


def _checks_hostname(settings: CommonOptions) -> bool:
    algorithm = settings["ssl_endpoint_identification_algorithm"]
    if algorithm.lower() not in ("https", ""):
        raise ConfigError(
            f"ssl_endpoint_identification_algorithm={algorithm}: it is https, or empty for no check"
        )
    return bool(algorithm) and settings["ssl_check_hostname"]


def _trust(context: ssl.SSLContext, settings: CommonOptions, tls: TlsSettings) -> None:
    path = settings["ssl_cafile"]
    if not path:
        load_trusted(context, tls)
        return
    if tls.truststore_location is not None or tls.truststore_certificates is not None:
        raise ConfigError("set ssl_cafile or ssl_truststore_…, not both")
    use_trusted(context, f"ssl_cafile={path}", _read_pem("ssl_cafile", path))


def _identify(context: ssl.SSLContext, settings: CommonOptions, tls: TlsSettings) -> None:
    certificate, key = settings["ssl_certfile"], settings["ssl_keyfile"]
    if not certificate:
        if key:
            raise ConfigError("ssl_keyfile is set, ssl_certfile is missing")
        load_key(context, tls)
        return
    if tls.keystore_location is not None or tls.keystore_key is not None:
        raise ConfigError("set ssl_certfile and ssl_keyfile, or ssl_keystore_…, not both")
    where = f"ssl_certfile={certificate}"
    pem = _read_pem("ssl_certfile", certificate)
    if key:
        where += f" with ssl_keyfile={key}"
        pem = _read_pem("ssl_keyfile", key) + b"\n" + pem
    use_key(context, where, pem, tls.key_password)


def _read_pem(setting: str, path: str) -> bytes:
    data = read_store(setting, path)
    if b"-----BEGIN " not in data:
        raise ConfigError(f"{setting}={path} is not in PEM; other stores go into ssl_…store_…")
    return data


def _with_our_names(message: str) -> str:
    """The settings in a message that is written for brokers, as keyword arguments."""
    return _SETTING.sub(lambda match: match[0].replace(".", "_"), message)
