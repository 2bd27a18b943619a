"""How this broker connects to others: the security of the inter-broker listener, and timeouts (X1).

The settings are those of the listener, as in Kafka: its TLS keys and trusted certificates, and the
user name and password in its `sasl.jaas.config` of `sasl.mechanism.inter.broker.protocol`.
"""

import ssl
from collections.abc import Callable
from typing import Final, NoReturn

from penstock.broker.config.broker_config import BrokerConfig, ConfigError
from penstock.broker.config.component_config import tls_settings
from penstock.broker.config.listeners import ListenerSpec
from penstock.core.errors import KafkaError
from penstock.net.client.sasl.client import SaslClient, SaslSettings
from penstock.net.client.sasl.mechanisms import MECHANISMS, login_factory
from penstock.net.client.sasl.tickets import KerberosSettings, TicketRenewal
from penstock.net.client.sasl.token_sources import OAuthSettings
from penstock.net.client.settings import ConnectionSettings
from penstock.net.tls.settings import build_client_context
from penstock.security.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, login_module
from penstock.security.krb5_login import (
    JAAS_SETTING,
    SERVICE_NAME_SETTING,
    parse_krb5_login,
    parse_server_login,
    service_name,
)
from penstock.security.sasl.gssapi import GSSAPI
from penstock.security.sasl.oauthbearer import OAUTHBEARER
from penstock.security.sasl.plain import PLAIN

_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
_RECONNECT_BACKOFF_MS: Final = 50
"""Constant: a broker that comes back must not wait for those that back off from it."""


def listener_spec(config: BrokerConfig, name: str) -> ListenerSpec:
    """Returns a listener of this broker, such as that for traffic between brokers."""
    return next(spec for spec in config.advertised if spec.name == name)


def check_inter_broker_settings(config: BrokerConfig) -> None:
    """Raises KafkaError if this broker could not connect to others, or log in there."""
    for name in {config.inter_broker_listener, config.control_plane_listener}:
        inter_broker_settings(config, name, client_id="", request_timeout_ms=0)


def inter_broker_settings(
    config: BrokerConfig, listener: str, *, client_id: str, request_timeout_ms: int
) -> ConnectionSettings:
    """Returns the settings of connections to this listener of other brokers.

    Raises KafkaError that names the setting if this broker could not connect or log in with them.
    """
    spec = listener_spec(config, listener)
    idle_ms = config.int("connections.max.idle.ms")
    return ConnectionSettings(
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        reconnect_backoff_ms=_RECONNECT_BACKOFF_MS,
        reconnect_backoff_max_ms=_RECONNECT_BACKOFF_MS,
        socket_connection_setup_timeout_ms=config.int("socket.connection.setup.timeout.ms"),
        socket_connection_setup_timeout_max_ms=config.int("socket.connection.setup.timeout.max.ms"),
        # A little less than the other broker's limit, so that it does not close a connection in
        # the moment in which a request is sent.
        connections_max_idle_ms=idle_ms * 9 // 10 if idle_ms >= 0 else -1,
        tls=client_tls(config, spec) if spec.protocol.tls else None,
        login=_login(config, spec) if spec.protocol.sasl else None,
    )


def client_tls(config: BrokerConfig, spec: ListenerSpec) -> ssl.SSLContext:
    """Returns the context with which this broker connects to others' listener of this name.

    It has the listener's own key, for brokers that require a certificate of their clients.
    """
    settings = tls_settings(config, spec)
    algorithm = config.listener_setting(spec.name, "ssl.endpoint.identification.algorithm") or ""
    if algorithm.strip().lower() not in ("", "https"):
        raise ConfigError(
            f"{algorithm!r} is not supported",
            "ssl.endpoint.identification.algorithm",
            remedy="set it to https, or to nothing to accept any host name",
        )
    return build_client_context(settings, check_hostname=bool(algorithm.strip()))


def _login(config: BrokerConfig, spec: ListenerSpec) -> Callable[[str], SaslClient]:
    mechanism = config.str(_MECHANISM)
    enabled = config.sasl_mechanisms(spec.name)
    if mechanism not in MECHANISMS:
        _reject(f"{mechanism} is not supported", f"set it to one of {', '.join(enabled)}")
    if mechanism not in enabled:
        _reject(
            f"{mechanism} is not in sasl.enabled.mechanisms of listener {spec.name}",
            f"add it there, or set it to one of {', '.join(enabled)}",
        )
    if mechanism == OAUTHBEARER:
        return login_factory(_token_settings(config, spec))
    if mechanism == GSSAPI:
        return _kerberos_login(config, spec)
    user, password = _credentials(config, spec, mechanism)
    return login_factory(SaslSettings(mechanism, username=user, password=password))


def _kerberos_login(config: BrokerConfig, spec: ListenerSpec) -> Callable[[str], SaslClient]:
    def text(name: str) -> str | None:
        return config.listener_setting(spec.name, name, GSSAPI)

    prefix = f"listener.name.{spec.name.lower()}.gssapi."
    try:
        jaas_config = text(JAAS_SETTING)
        parse_server_login(jaas_config)
        name = service_name(text(SERVICE_NAME_SETTING), parse_krb5_login(jaas_config))
        renewal = TicketRenewal(
            float(text("sasl.kerberos.ticket.renew.window.factor") or 0.8),
            float(text("sasl.kerberos.ticket.renew.jitter") or 0.05),
            int(text("sasl.kerberos.min.time.before.relogin") or 60_000),
        )
        kerberos = KerberosSettings(name, renewal=renewal)
        return login_factory(SaslSettings(GSSAPI, jaas_config=jaas_config, kerberos=kerberos))
    except KafkaError as error:
        # The errors of clients name the argument.
        cause = error.cause.removeprefix(f"{JAAS_SETTING}: ").removeprefix("`sasl_jaas_config`: ")
        setting = prefix + (error.subject or JAAS_SETTING)
        raise ConfigError(cause, setting, remedy=error.remedy) from None


def _token_settings(config: BrokerConfig, spec: ListenerSpec) -> SaslSettings:
    def text(name: str) -> str | None:
        return config.listener_setting(spec.name, name, OAUTHBEARER)

    defaults = OAuthSettings()
    oauth = OAuthSettings(
        text("sasl.oauthbearer.token.endpoint.url"),
        text("sasl.oauthbearer.client.credentials.client.id"),
        text("sasl.oauthbearer.client.credentials.client.secret"),
        text("sasl.oauthbearer.scope"),
        subject_claim=text("sasl.oauthbearer.sub.claim.name") or defaults.subject_claim,
        connect_timeout_ms=int(text("sasl.login.connect.timeout.ms") or 10_000),
        read_timeout_ms=int(text("sasl.login.read.timeout.ms") or 10_000),
        retry_backoff_ms=int(text("sasl.login.retry.backoff.ms") or 100),
        retry_backoff_max_ms=int(text("sasl.login.retry.backoff.max.ms") or 10_000),
        refresh_window_factor=float(text("sasl.login.refresh.window.factor") or 0.8),
        refresh_window_jitter=float(text("sasl.login.refresh.window.jitter") or 0.05),
        refresh_min_period_s=int(text("sasl.login.refresh.min.period.seconds") or 60),
        refresh_buffer_s=int(text("sasl.login.refresh.buffer.seconds") or 300),
    )
    return SaslSettings(OAUTHBEARER, jaas_config=text("sasl.jaas.config"), oauth=oauth)


def _credentials(config: BrokerConfig, spec: ListenerSpec, mechanism: str) -> tuple[str, str]:
    setting = f"listener.name.{spec.name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    module = PLAIN_LOGIN_MODULE if mechanism == PLAIN else SCRAM_LOGIN_MODULE
    example = f'{module} required username="…" password="…";'
    text = config.listener_setting(spec.name, "sasl.jaas.config", mechanism)
    if not text:
        raise ConfigError(
            "is missing: it has the user with which this broker logs in to others",
            setting,
            remedy=f"set it to {example}",
        )
    try:
        options = login_module(text, module).options
    except KafkaError as error:
        cause = error.message.removeprefix("sasl.jaas.config: ")
        raise ConfigError(cause, setting) from None
    user, password = options.get("username"), options.get("password")
    if not user or not password:
        missing = "password" if user else "username"
        raise ConfigError(
            f"has no {missing}, with which this broker logs in to others",
            setting,
            remedy=f"write {example}",
        )
    return user, password


def _reject(cause: str, remedy: str) -> NoReturn:
    raise ConfigError(cause, _MECHANISM, remedy=remedy)
