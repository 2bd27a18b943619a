"""Passes metadata changes on to the broker's components: replicas, coordinators, ACLs, settings."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.config.component_config import cleaner_settings, set_limits, tls_settings
from penstock.controller.election import elect_leaderless
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
from penstock.controller.result import ControllerResult
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.server.socket_server import SocketServer

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


logger = logging.getLogger(__name__)

_UNCLEAN = "unclean.leader.election.enable"
_EXPIRATION = "producer.id.expiration.ms"
_VERIFICATION = "transaction.partition.verification.enable"
_TOPIC_DEFAULTS = ("log.", "message.", "min.", "compression.", "unclean.")
"""Prefixes of the broker settings that are defaults of topic settings."""


class MetadataPublisher:
    """Notifies the components of changes that the image has already applied.

    The failure of one component does not keep the changes from the others.
    """

    def __init__(
        self, broker: "Broker", server: SocketServer, on_tls_reloaded: Callable[[], None]
    ) -> None:
        """`on_tls_reloaded` is called after a listener has got new keys or certificates."""
        self._broker = broker
        self._server = server
        self._on_tls_reloaded = on_tls_reloaded
        self._elections: set[asyncio.Task[None]] = set()
        broker.config.subscribe("", self._apply_broker_settings)

    def apply(self, changes: Sequence[Change]) -> None:
        broker = self._broker
        for component in (
            broker.quotas.apply,
            self._update_authorizer,
            self._update_settings,
            broker.replicas.apply,
            broker.groups.apply,
            broker.transactions.apply,
            self._elect_if_allowed,
        ):
            try:
                component(changes)
            except Exception:
                logger.exception("a component failed to apply metadata changes")

    def _update_settings(self, changes: Sequence[Change]) -> None:
        broker = self._broker
        entity_kinds = {_entity_kind(change) for change in changes}
        if "brokers" in entity_kinds:
            broker.config.set_dynamic(
                broker.image.config("brokers", DEFAULT_ENTITY),
                broker.image.config("brokers", str(broker.broker_id)),
            )
            self._reload_tls()
        if "client-metrics" in entity_kinds:
            broker.telemetry.subscriptions_changed()

    def leaderships_changed(
        self, led: Sequence[TopicPartition], others: Sequence[TopicPartition]
    ) -> None:
        """Applies limits to the logs of replicas, which may be new, and loads coordinators."""
        self._update_producer_limits([*led, *others])
        self._broker.groups.leaderships_changed(led, others)
        self._broker.transactions.leaderships_changed(led, others)

    def _elect_if_allowed(self, changes: Sequence[Change]) -> None:
        if any(_allows_unclean_elections(change) for change in changes):
            self._elect_leaderless()

    def _update_authorizer(self, changes: Sequence[Change]) -> None:
        authorizer = self._broker.authorizer.acl_authorizer
        if authorizer is None:
            return
        for change in changes:
            match change:
                case Put(AclRecord() as record):
                    authorizer.put(record.key, record.entries)
                case Delete(AclKey() as key):
                    authorizer.delete(key)

    def _apply_broker_settings(self, names: frozenset[str]) -> None:
        """Applies dynamic settings of the broker that have changed."""
        broker = self._broker
        set_limits(self._server.limits, broker.config)
        if any(name.startswith("log.cleaner.") for name in names):
            broker.cleaner.settings = cleaner_settings(broker.config)
        if any(name.startswith(_TOPIC_DEFAULTS) for name in names):
            broker.replicas.reconfigure()
        if names & {_EXPIRATION, _VERIFICATION}:
            self._update_producer_limits(replica.partition.key for replica in broker.replicas)
        if _UNCLEAN in names:
            self._elect_leaderless()

    def _reload_tls(self) -> None:
        """Reloads keys and certificates, whose settings or files may have changed."""
        certificates = self._broker.certificates
        for spec in self._broker.config.listeners:
            if not spec.protocol.tls:
                continue
            try:
                settings = tls_settings(self._broker.config, spec)
                check = partial(certificates.check, spec)
                if self._server.reload_tls(spec.name, settings, check):
                    certificates.replaced(spec)
                    self._on_tls_reloaded()
                    logger.info("listener %s uses new keys and certificates", spec.name)
            except KafkaError as error:
                logger.error("listener %s keeps its old certificates: %s", spec.name, error.message)

    def _update_producer_limits(self, partitions: Iterable[TopicPartition]) -> None:
        expiration_ms = self._broker.config.int(_EXPIRATION)
        verify = self._broker.config.bool(_VERIFICATION)
        for partition in partitions:
            log = self._broker.logs.get(partition)
            if log is not None:
                log.producers.producer_id_expiration_ms = expiration_ms
                log.verify_transactions = verify

    def _elect_leaderless(self) -> None:
        """Elects leaders for partitions whose topic allows unclean elections now (R5)."""
        if not self._broker.controller.is_active:
            return

        async def elect() -> None:
            try:
                await self._broker.controller.run_election(
                    lambda image, rules: ControllerResult(elect_leaderless(image, rules), None)
                )
            except KafkaError as error:
                logger.error("leaders could not be elected: %s", error.message)

        task = asyncio.get_running_loop().create_task(elect())
        self._elections.add(task)
        task.add_done_callback(self._elections.discard)


def _allows_unclean_elections(change: Change) -> bool:
    match change:
        case Put(ConfigRecord(entity=(("topics", _),), values=values)):
            return values.get(_UNCLEAN, "").strip().lower() == "true"
    return False


def _entity_kind(change: Change) -> str | None:
    """Returns the kind of entity whose settings change: `brokers`, `topics`…; or None."""
    match change:
        case Put(ConfigRecord(entity=((kind, _), *_))) | Delete(ConfigKey(entity=((kind, _), *_))):
            return kind
    return None
