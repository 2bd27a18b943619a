"""The certificates that listeners use, and whether others may replace them (X2)."""

from collections.abc import Mapping

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import changed_tls_settings, tls_settings
from penstock.broker.config.listeners import ListenerSpec
from penstock.net.tls.own_certificate import (
    OwnCertificate,
    check_names_are_kept,
    own_certificate,
)
from penstock.net.tls.settings import TlsSettings, build_context


class ListenerCertificates:
    """Remembers the names in each listener's certificate, since its file may change."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._in_use: dict[str, OwnCertificate] = {}

    def load(self) -> None:
        """Reads the certificates of all listeners, when they have been opened with them."""
        for spec in self._config.listeners:
            if spec.protocol.tls:
                self.replaced(spec)

    def replaced(self, spec: ListenerSpec) -> None:
        """The listener uses the certificate of the current settings from now on."""
        certificate = own_certificate(tls_settings(self._config, spec))
        if certificate is not None:
            self._in_use[spec.name] = certificate

    def check_changes(self, changes: Mapping[str, str]) -> None:
        """Raises KafkaError unless the listeners could use the keys of changed settings."""
        for spec in self._config.listeners:
            settings = changed_tls_settings(self._config, spec, changes)
            if settings is not None:
                build_context(settings)
                self.check(spec, settings)

    def check(self, spec: ListenerSpec, settings: TlsSettings) -> None:
        """Raises KafkaError if the certificate of these settings has other names."""
        old, new = self._in_use.get(spec.name), own_certificate(settings)
        if old is not None and new is not None:
            check_names_are_kept(
                old,
                new,
                dn_may_change=self._config.bool("ssl.allow.dn.changes"),
                san_may_change=self._config.bool("ssl.allow.san.changes"),
            )
