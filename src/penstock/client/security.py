"""TLS and logins of a client, from Kafka's `ssl_…` and `sasl_…` settings or kafka-python's."""

import re
import ssl
from collections.abc import Callable
from typing import Final

from penstock.client.errors import ConfigError
from penstock.client.settings import CommonOptions, items
from penstock.core.errors import KafkaError, nested_text
from penstock.net.client.sasl import mechanisms
from penstock.net.client.sasl.client import SaslClient, SaslSettings
from penstock.net.client.sasl.tickets import KerberosSettings, TicketRenewal
from penstock.net.client.sasl.token_sources import OAuthSettings
from penstock.net.jaas_file import login_of_jaas_file
from penstock.net.tls.key_stores import read_store
from penstock.net.tls.settings import (
    TlsSettings,
    load_key,
    load_trusted,
    new_client_context,
    use_key,
    use_trusted,
)
from penstock.security.jaas_file import CLIENT_SECTION

_SETTING: Final = re.compile(r"(?<![\w/.-])ssl(?:\.[a-z]+)+(?![\w/-])")


def tls_context(settings: CommonOptions) -> ssl.SSLContext | None:
    """Returns the TLS context of all connections of a client; None if the protocol has no TLS.

    The broker's certificate is always verified, and its host name too unless
    `ssl_endpoint_identification_algorithm` is empty or `ssl_check_hostname` is False. Raises
    ConfigError, with the name of the setting, for settings that cannot be used.
    """
    if not settings["security_protocol"].endswith("SSL"):
        return None
    context: object = settings["ssl_context"]
    if context is not None:
        if not isinstance(context, ssl.SSLContext):
            raise ConfigError(f"`ssl_context` is a {type(context).__name__}, not an ssl.SSLContext")
        return context
    tls = _tls_settings(settings)
    try:
        new = new_client_context(tls, check_hostname=_checks_hostname(settings))
        _load_trusted(new, settings, tls)
        _load_key(new, settings, tls)
    except KafkaError as error:
        raise ConfigError(_with_argument_names(nested_text(error))) from None
    return new


def login_factory(settings: CommonOptions) -> Callable[[str], SaslClient] | None:
    """Returns the function that creates the login for a connection to a host; None if the protocol
    has no SASL. Raises ConfigError for a mechanism that is not supported, or missing settings."""
    if not settings["security_protocol"].startswith("SASL_"):
        return None
    return mechanisms.login_factory(
        SaslSettings(
            settings["sasl_mechanism"],
            _jaas_config(settings),
            settings["sasl_plain_username"],
            settings["sasl_plain_password"],
            is_token=settings["sasl_tokenauth"],
            oauth=_oauth_settings(settings),
            kerberos=_kerberos_settings(settings),
        )
    )


def _jaas_config(settings: CommonOptions) -> str | None:
    """Returns `sasl_jaas_config`; if no setting names a user, what the JAAS file has, if any."""
    if settings["sasl_jaas_config"] is not None or settings["sasl_plain_username"] is not None:
        return settings["sasl_jaas_config"]
    try:
        return login_of_jaas_file((CLIENT_SECTION,), settings["sasl_mechanism"])
    except KafkaError as error:
        raise ConfigError(nested_text(error)) from None


def _oauth_settings(settings: CommonOptions) -> OAuthSettings:
    return OAuthSettings(
        settings["sasl_oauthbearer_token_endpoint_url"],
        settings["sasl_oauthbearer_client_credentials_client_id"],
        settings["sasl_oauthbearer_client_credentials_client_secret"],
        settings["sasl_oauthbearer_scope"],
        settings["sasl_oauthbearer_header_urlencode"],
        settings["sasl_oauthbearer_sub_claim_name"],
        settings["sasl_login_connect_timeout_ms"],
        settings["sasl_login_read_timeout_ms"],
        settings["sasl_login_retry_backoff_ms"],
        settings["sasl_login_retry_backoff_max_ms"],
        float(settings["sasl_login_refresh_window_factor"]),
        float(settings["sasl_login_refresh_window_jitter"]),
        settings["sasl_login_refresh_min_period_seconds"],
        settings["sasl_login_refresh_buffer_seconds"],
        settings["sasl_oauth_token_provider"],
    )


def _kerberos_settings(settings: CommonOptions) -> KerberosSettings:
    return KerberosSettings(
        settings["sasl_kerberos_service_name"],
        settings["sasl_kerberos_domain_name"],
        TicketRenewal(
            float(settings["sasl_kerberos_ticket_renew_window_factor"]),
            float(settings["sasl_kerberos_ticket_renew_jitter"]),
            settings["sasl_kerberos_min_time_before_relogin"],
        ),
    )


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
            f"`ssl_endpoint_identification_algorithm`={algorithm}",
            remedy="use https, or an empty text for no check",
        )
    return bool(algorithm) and settings["ssl_check_hostname"]


def _load_trusted(context: ssl.SSLContext, settings: CommonOptions, tls: TlsSettings) -> None:
    path = settings["ssl_cafile"]
    if not path:
        load_trusted(context, tls)
        return
    if tls.truststore_location is not None or tls.truststore_certificates is not None:
        raise ConfigError("set `ssl_cafile` or ssl_truststore_…, not both")
    use_trusted(context, f"`ssl_cafile`={path}", _read_pem("`ssl_cafile`", path))


def _load_key(context: ssl.SSLContext, settings: CommonOptions, tls: TlsSettings) -> None:
    certificate, key = settings["ssl_certfile"], settings["ssl_keyfile"]
    if not certificate:
        if key:
            raise ConfigError("`ssl_keyfile` is set, `ssl_certfile` is missing")
        load_key(context, tls)
        return
    if tls.keystore_location is not None or tls.keystore_key is not None:
        raise ConfigError("set `ssl_certfile` and `ssl_keyfile`, or ssl_keystore_…, not both")
    source = f"`ssl_certfile`={certificate}"
    pem = _read_pem("`ssl_certfile`", certificate)
    if key:
        source += f" with `ssl_keyfile`={key}"
        pem = _read_pem("`ssl_keyfile`", key) + b"\n" + pem
    use_key(context, source, pem, tls.key_password)


def _read_pem(setting: str, path: str) -> bytes:
    data = read_store(setting, path)
    if b"-----BEGIN " not in data:
        raise ConfigError(f"{setting}={path} is not in PEM; other stores go into ssl_…store_…")
    return data


def _with_argument_names(message: str) -> str:
    """Replaces names such as `ssl.key.password` with those of the keyword arguments."""
    return _SETTING.sub(lambda match: f"`{match[0].replace('.', '_')}`", message)
