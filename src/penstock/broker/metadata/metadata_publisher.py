"""Who hears of the cluster's changes: replicas, authorizer, quotas, and the broker's settings."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.broker.config.component_config import cleaner_settings, set_limits, tls_settings
from penstock.broker.metadata.topic_rules import election_rules
from penstock.controller.election import elect_leaderless
from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    AclKey,
    AclRecord,
    Change,
    ConfigKey,
    ConfigRecord,
    Delete,
    PartitionRecord,
    Put,
)
from penstock.controller.result import ControllerResult
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.server.socket_server import SocketServer

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


logger = logging.getLogger("penstock.settings")

_UNCLEAN = "unclean.leader.election.enable"
_EXPIRATION = "producer.id.expiration.ms"
_VERIFICATION = "transaction.partition.verification.enable"
_OF_TOPICS = ("log.", "message.", "min.", "compression.", "unclean.")
"""How settings of the broker begin that topics without their own take over."""


class MetadataPublisher:
    """Passes changes on, once the image has them."""

    def __init__(self, broker: "Broker", server: SocketServer) -> None:
        self._broker = broker
        self._server = server
        self._elections: set[asyncio.Task[None]] = set()
        broker.config.subscribe("", self._reconfigured)

    def apply(self, changes: Sequence[Change]) -> None:
        broker = self._broker
        broker.quotas.apply(changes)
        self._authorizer(changes)
        kinds = {_kind_of_settings(change) for change in changes}
        if "brokers" in kinds:
            broker.config.set_dynamic(
                broker.image.config("brokers", DEFAULT_ENTITY),
                broker.image.config("brokers", str(broker.broker_id)),
            )
            self._reload_tls()
        if "client-metrics" in kinds:
            broker.telemetry.subscriptions_changed()
        broker.replicas.apply(changes)
        broker.groups.apply(changes)
        broker.transactions.apply(changes)
        self._limit_producers(_partitions(changes))
        if any(_allows_unclean_elections(change) for change in changes):
            self._elect_leaderless()

    def _authorizer(self, changes: Sequence[Change]) -> None:
        authorizer = self._broker.authorizer.acl_authorizer
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
        if any(name.startswith("log.cleaner.") for name in names):
            broker.cleaner.settings = cleaner_settings(broker.config)
        if any(name.startswith(_OF_TOPICS) for name in names):
            broker.replicas.reconfigure()
        if names & {_EXPIRATION, _VERIFICATION}:
            self._limit_producers(replica.partition.key for replica in broker.replicas)
        if _UNCLEAN in names:
            self._elect_leaderless()

    def _reload_tls(self) -> None:
        """Keys and certificates may have changed, in the settings or in the files they name."""
        for spec in self._broker.config.listeners:
            if not spec.protocol.tls:
                continue
            try:
                settings = tls_settings(self._broker.config, spec.name)
                if self._server.reload_tls(spec.name, settings):
                    logger.info("listener %s has new keys and certificates", spec.name)
            except KafkaError as error:
                logger.error("listener %s keeps its certificates: %s", spec.name, error.message)

    def _limit_producers(self, partitions: Iterable[TopicPartition]) -> None:
        expiration_ms = self._broker.config.int(_EXPIRATION)
        verify = self._broker.config.bool(_VERIFICATION)
        for partition in partitions:
            log = self._broker.logs.get(partition)
            if log is not None:
                log.producers.producer_id_expiration_ms = expiration_ms
                log.verify_transactions = verify

    def _elect_leaderless(self) -> None:
        """Where unclean elections are allowed now, who waits for one gets it (R5)."""
        broker = self._broker
        rules = election_rules(broker.config, broker.image)
        if not elect_leaderless(broker.image, rules):
            return

        async def elect() -> None:
            await broker.controller.run(
                lambda image: ControllerResult(elect_leaderless(image, rules), None)
            )

        task = asyncio.get_running_loop().create_task(elect())
        self._elections.add(task)
        task.add_done_callback(self._elections.discard)


def _partitions(changes: Iterable[Change]) -> Iterator[TopicPartition]:
    """Those that are new or have changed."""
    for change in changes:
        match change:
            case Put(PartitionRecord() as record):
                yield record.key


def _allows_unclean_elections(change: Change) -> bool:
    match change:
        case Put(ConfigRecord(entity=(("topics", _),), values=values)):
            return values.get(_UNCLEAN, "").strip().lower() == "true"
    return False


def _kind_of_settings(change: Change) -> str | None:
    """What has got other settings: `brokers`, `topics` …; None where nothing has."""
    match change:
        case Put(ConfigRecord(entity=((kind, _), *_))) | Delete(ConfigKey(entity=((kind, _), *_))):
            return kind
    return None
