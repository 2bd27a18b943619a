"""Puts a broker together from its settings, starts it and stops it. The only place that wires.

The order at start: the store and the image, the logs (recovered where needed), the listeners, then
the registration, which makes this broker controller and leader of its partitions. Nothing is
answered before that is done.
"""

import asyncio
import base64
import logging
import random
import resource
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec.structs import replace

from penstock.broker.broker import Broker
from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import (
    chore_intervals,
    cleaner_settings,
    listener,
    new_authorizer,
    new_quotas,
    producer_limits,
    set_limits,
)
from penstock.broker.config.topic_config import topic_config
from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.host import CoordinatorContext
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.coordinator.transaction_markers import TransactionMarkers
from penstock.broker.coordinator.transaction_verification import TransactionVerifier
from penstock.broker.dispatcher import Dispatcher
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.features import NEW_CLUSTER_FEATURES, SUPPORTED_FEATURES
from penstock.broker.metadata.metadata_publisher import MetadataPublisher
from penstock.broker.metadata.producer_id_manager import ProducerIds
from penstock.broker.replica.background_tasks import BackgroundTasks
from penstock.broker.replica.fetch_sessions import FetchSessionCache
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.log_mover import LogMover
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.connection_quotas import protected_listener
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.security.session_factory import SessionFactory
from penstock.broker.workers import Workers
from penstock.cluster.embedded import EmbeddedStore
from penstock.controller.brokers import register_as_controller
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerRecord, Change, Endpoint, Put
from penstock.controller.topic_recovery import recover_topics
from penstock.core.ids import TopicId, TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.server.limits import Limits
from penstock.net.server.socket_server import Address, SocketServer
from penstock.storage.checkpoint.checkpoint_files import load_meta_properties
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.disk import OsDisk
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger("penstock.broker")

STORE_FILE = "penstock-metadata.db"
"""The cluster's metadata, in the first folder of `log.dirs` (or in `metadata.log.dir`)."""

_GRACE_S = 5.0
"""How long clients may take to fetch their last answers."""


class App:
    """One broker, from `start` to `stop`, on the running event loop."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._broker_id = config.int("node.id")
        self._clock = SystemClock()
        self._chance = random.Random()
        self._disk = OsDisk()
        self._image = ClusterImage()
        self._log_dirs = config.list("log.dirs")
        self._workers = Workers()
        self._closing = AsyncExitStack()
        self._logs = LogManager(
            self._disk,
            self._log_dirs,
            self._clock,
            limits=producer_limits(config),
            intervals=chore_intervals(config),
            roll_jitter=lambda limit_ms: self._chance.randrange(limit_ms + 1),
        )

    async def start(self) -> list[Address]:
        """Serves when it returns, and gives back where; KafkaError where it cannot."""
        _raise_file_limit()
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where clients are told to come, once it is started."""
        return self._image.brokers[self._broker_id].endpoints

    async def stop(self) -> None:
        """Answers what is under way, flushes, and marks the folders clean."""
        await self._closing.aclose()

    async def _close_server(self) -> None:
        """Takes no more requests; who waits, for records or for a group, is answered now."""
        closing = asyncio.create_task(self._server.close(_GRACE_S))
        await asyncio.sleep(0)
        for replica in self.broker.replicas:
            replica.finish_waiters()
        self.broker.groups.resign()
        self.broker.transactions.resign()
        await closing

    # --- start

    async def _start(self) -> list[Address]:
        """Whatever is opened says on the way how it is closed, in the opposite order."""
        closing = self._closing
        closing.callback(self._workers.close)
        folder = Path(self._config.text("metadata.log.dir") or self._log_dirs[0])
        folder.mkdir(parents=True, exist_ok=True)
        self._store = EmbeddedStore(folder / STORE_FILE)
        closing.callback(self._store.close)
        self._image.apply(map(Put, self._store.load()))
        cluster_id = self._image.cluster_id or self._found_cluster_id()
        self._follow_stored_settings()
        closing.callback(self._logs.shutdown)
        self._load_logs(cluster_id)
        self._assemble()
        closing.push_async_callback(self._background_tasks.stop)
        closing.push_async_callback(self.broker.log_mover.close)
        closing.push_async_callback(self.broker.groups.close)
        closing.push_async_callback(self.broker.transactions.close)
        closing.push_async_callback(self._dispatcher.close)
        closing.push_async_callback(self._close_server)
        addresses = await self._server.start(
            [listener(self._config, spec) for spec in self._config.listeners]
        )
        self._register(addresses, cluster_id)
        self._background_tasks.start()
        self.broker.log_mover.resume()
        return addresses

    def _found_cluster_id(self) -> str:
        """The cluster that the folders belong to, for a store that is new; else a new one."""
        for path in self._log_dirs:
            known = load_meta_properties(self._disk, path)
            if known is not None and known.cluster_id is not None:
                return known.cluster_id
        return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    def _load_logs(self, cluster_id: str) -> None:
        """Opens the folders. What the store knows nothing of is kept, but not served.

        Where the store is new, the folders tell which topics there are: they were Kafka's, or the
        store was lost.
        """
        self._logs.open(node_id=self._broker_id, cluster_id=cluster_id)
        is_new = not self._image.cluster_id
        strays = self._logs.load(
            lambda topic: topic_config(self._config, self._image.config("topics", topic)).log,
            lambda key, topic_id: is_new or self._belongs(key, topic_id),
        )
        for stray in strays:
            logger.warning(
                "%s is of no topic of this cluster: its folder is now %s",
                stray.partition,
                stray.path,
            )
        logs = {} if not is_new else {log.partition: log for log in self._logs}
        if logs:
            changes = recover_topics(
                self._image,
                {key: log.topic_id for key, log in logs.items()},
                self._broker_id,
                uuid.uuid4,
                {key: log.epochs.latest_epoch or 0 for key, log in logs.items()},
            )
            self._store.commit(changes)
            self._image.apply(changes)
            logger.warning(
                "the metadata store is new, but log.dirs has %d partitions: their topics are "
                "registered with default settings",
                len(logs),
            )

    def _belongs(self, key: TopicPartition, topic_id: TopicId | None) -> bool:
        record = self._image.topics.get(key.topic)
        return (
            record is not None
            and key.partition in record.assignments
            and topic_id in (None, record.topic_id)
        )

    def _follow_stored_settings(self) -> None:
        self._config.set_dynamic(
            self._image.config("brokers", "<default>"),
            self._image.config("brokers", str(self._broker_id)),
        )

    def _assemble(self) -> None:
        config, clock, image, workers = self._config, self._clock, self._image, self._workers
        controller = ControllerHost(image, self._store, workers)
        replicas = ReplicaManager(
            self._broker_id,
            self._logs,
            image,
            workers,
            lambda values: topic_config(config, values),
        )
        self.broker = broker = Broker(
            broker_id=self._broker_id,
            config=config,
            clock=clock,
            workers=workers,
            image=image,
            controller=controller,
            logs=self._logs,
            replicas=replicas,
            log_flusher=LogFlusher(workers),
            authorizer=RequestAuthorizer(new_authorizer(config)),
            quotas=ClientQuotaManager(new_quotas(config), clock),
            fetch_sessions=FetchSessionCache(
                config.int("max.incremental.fetch.session.cache.slots"),
                lambda: self._chance.randrange(1, 2**31),
            ),
            producer_ids=ProducerIds(self._broker_id, controller),
            log_mover=LogMover(self._logs, replicas, workers),
            cleaner=LogCleaner(self._logs, clock, cleaner_settings(config)),
            telemetry=ClientTelemetry(image, config.int("telemetry.max.bytes"), uuid.uuid4),
        )
        surroundings = CoordinatorContext(
            self._broker_id,
            config,
            image,
            replicas,
            broker.log_flusher,
            workers,
            clock,
            broker.create_internal_topic,
        )
        broker.groups = GroupCoordinator(surroundings, broker.authorizer)
        broker.txn_markers = TransactionMarkers(replicas, broker.groups, broker.log_flusher, clock)
        broker.transactions = TransactionCoordinator(
            surroundings, broker.producer_ids, broker.txn_markers
        )
        broker.txn_verification = TransactionVerifier(replicas, broker.transactions, config, clock)
        limits = Limits()
        set_limits(limits, config)
        limits.protected_listener = protected_listener(config)
        sessions = SessionFactory(config, image, clock)
        self._dispatcher = Dispatcher(broker, sessions)
        self._server = SocketServer(
            self._dispatcher,
            limits,
            clock=clock,
            executor=workers.flush,
            throttle=sessions.connection_quotas,
        )
        self._background_tasks = BackgroundTasks(
            self._logs, broker.cleaner, broker.log_flusher, workers
        )
        self._publisher = MetadataPublisher(broker, self._server)
        config.subscribe("", lambda _: self._server.limits_changed())
        controller.preparations.append(replicas.make_logs)
        controller.listeners.append(self._publisher.apply)
        controller.listeners.append(lambda _: self._dispatcher.fast_produce.forget())

    def _register(self, addresses: Sequence[Address], cluster_id: str) -> None:
        """Tells the cluster that this broker is up; its partitions get their leader."""
        record = BrokerRecord(
            broker_id=self._broker_id,
            endpoints=tuple(
                self._config.advertised_endpoints({each.listener: each.port for each in addresses})
            ),
            rack=self._config.text("broker.rack"),
            timestamp_ms=self._clock.now_ms(),
            features=SUPPORTED_FEATURES,
            epoch=0,
        )
        before: list[Change] = [Put(each) for each in self._image.configs.values()]
        before += [Put(each) for each in self._image.acls.values()]
        changes = register_as_controller(
            self._image,
            record,
            cluster_id=cluster_id,
            features=NEW_CLUSTER_FEATURES,
            now_ms=self._clock.now_ms(),
            rules=self.broker.election_rules(),
        )
        epoch = self._store.commit(changes)
        self._image.apply([*changes, Put(replace(record, epoch=epoch))])
        self._publisher.apply([*before, *changes])


def _raise_file_limit() -> None:
    """As many open files as the system lets us have: a partition has several."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
