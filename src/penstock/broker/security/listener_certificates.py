"""The certificates that listeners use, and whether others may replace them (X2)."""

import ssl
from collections.abc import Mapping
from typing import NamedTuple

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import changed_tls_settings, tls_settings
from penstock.broker.config.listeners import ListenerSpec
from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.tls.own_certificate import (
    OwnCertificate,
    check_names_are_kept,
    own_certificate,
)
from penstock.net.tls.settings import TlsSettings, build_client_context, build_context
from penstock.net.tls.trial_handshake import handshake_error


class _Contexts(NamedTuple):
    """Both sides of a connection between brokers."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    @classmethod
    def build(cls, settings: TlsSettings) -> "_Contexts":
        client = build_client_context(settings, check_hostname=False)
        return cls(build_context(settings), client)


class ListenerCertificates:
    """Remembers the names in each listener's certificate, since its file may change."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._in_use: dict[str, OwnCertificate] = {}
        self._between_brokers: _Contexts | None = None
        """Those of the inter-broker listener; None if brokers would not trust each other."""

    def load(self) -> None:
        """Reads the certificates of all listeners, when they have been opened with them."""
        for spec in self._config.listeners:
            if spec.protocol.tls:
                self.replaced(spec)

    def replaced(self, spec: ListenerSpec) -> None:
        """The listener uses the certificate of the current settings from now on."""
        settings = tls_settings(self._config, spec)
        certificate = own_certificate(settings)
        if certificate is not None:
            self._in_use[spec.name] = certificate
        if spec.name == self._config.inter_broker_listener:
            self._between_brokers = _trusting_contexts(settings)

    def check_changes(self, changes: Mapping[str, str]) -> None:
        """Raises KafkaError unless the listeners could use the keys of changed settings."""
        for spec in self._config.listeners:
            settings = changed_tls_settings(self._config, spec, changes)
            if settings is not None:
                build_context(settings)
                self.check(spec, settings)

    def check(self, spec: ListenerSpec, settings: TlsSettings) -> None:
        """Raises KafkaError if the certificate has other names, or brokers would not trust it."""
        old, new = self._in_use.get(spec.name), own_certificate(settings)
        if old is not None and new is not None:
            check_names_are_kept(
                old,
                new,
                dn_may_change=self._config.bool("ssl.allow.dn.changes"),
                san_may_change=self._config.bool("ssl.allow.san.changes"),
            )
        in_use = self._between_brokers
        if spec.name == self._config.inter_broker_listener and in_use is not None:
            changed = _Contexts.build(settings)
            error = handshake_error(changed.server, in_use.client) or handshake_error(
                in_use.server, changed.client
            )
            if error is not None:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"brokers with the new keys and those with the old ones would not trust each "
                    f"other ({error}): first add the new authority to the trust store of "
                    "every broker",
                )


def _trusting_contexts(settings: TlsSettings) -> _Contexts | None:
    """Returns None if brokers with these settings would not trust each other."""
    try:
        contexts = _Contexts.build(settings)
    except KafkaError:  # a trust store that cannot be read, which a single node does not need
        return None
    return contexts if handshake_error(contexts.server, contexts.client) is None else None
