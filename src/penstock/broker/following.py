"""Who hears of the cluster's changes: replicas, authorizer, quotas, and the broker's settings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.broker.settings import set_limits, tls_settings
from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    AclKey,
    AclRecord,
    Change,
    ConfigKey,
    ConfigRecord,
    Delete,
    Put,
)
from penstock.net.server import Server

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class Following:
    """Passes changes on, once the image has them."""

    def __init__(self, broker: "Broker", server: Server) -> None:
        self._broker = broker
        self._server = server
        broker.config.subscribe("", self._reconfigured)

    def apply(self, changes: Sequence[Change]) -> None:
        broker = self._broker
        broker.quotas.apply(changes)
        self._authorizer(changes)
        if any(_is_of_brokers(change) for change in changes):
            broker.config.set_dynamic(
                broker.image.config("brokers", DEFAULT_ENTITY),
                broker.image.config("brokers", str(broker.broker_id)),
            )
        broker.replicas.apply(changes)
        broker.groups.apply(changes)

    def _authorizer(self, changes: Sequence[Change]) -> None:
        authorizer = self._broker.access.authorizer
        if authorizer is None:
            return
        for change in changes:
            match change:
                case Put(AclRecord() as record):
                    authorizer.put(record.key, record.entries)
                case Delete(AclKey() as key):
                    authorizer.delete(key)

    def _reconfigured(self, names: frozenset[str]) -> None:
        """Dynamic settings of the broker have changed: they take effect now."""
        broker = self._broker
        set_limits(self._server.limits, broker.config)
        for spec in broker.config.listeners:
            if spec.protocol.tls and any("ssl." in name for name in names):
                self._server.reload_tls(spec.name, tls_settings(broker.config, spec.name))
        broker.fetch_sessions.slots = broker.config.int("max.incremental.fetch.session.cache.slots")
        if any(
            name.startswith(("log.", "message.", "min.", "compression.", "unclean."))
            for name in names
        ):
            broker.replicas.reconfigure()


def _is_of_brokers(change: Change) -> bool:
    match change:
        case Put(ConfigRecord(entity=(("brokers", _),))) | Delete(
            ConfigKey(entity=(("brokers", _),))
        ):
            return True
    return False
