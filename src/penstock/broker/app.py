"""The wiring of a broker: builds its components from the settings, starts them and stops them.

Start order: the metadata store and the cluster image, the logs (recovered if needed), the
components and their listeners, the sockets, and last the registration, which makes this broker the
controller and the leader of its partitions. No request is handled before the broker is registered.
"""

import asyncio
import logging
import random
import secrets
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

from penstock.broker.api_versions import ApiVersionManager
from penstock.broker.broker import Broker
from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import (
    chore_intervals,
    cleaner_settings,
    listener_config,
    new_authorizer,
    new_quotas,
    producer_limits,
    set_limits,
    store_config,
)
from penstock.broker.config.memory_config import new_memory_budget
from penstock.broker.config.topic_config import topic_config
from penstock.broker.coordinator.add_partitions_manager import AddPartitionsManager
from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.host import CoordinatorContext
from penstock.broker.coordinator.marker_channel import TransactionMarkerChannel
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.coordinator.transaction_markers import TransactionMarkers
from penstock.broker.coordinator.transaction_verification import TransactionVerifier
from penstock.broker.descriptor_budget import raise_descriptor_limit
from penstock.broker.dispatcher import Dispatcher
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.broker.inter_broker.connection_settings import check_inter_broker_settings
from penstock.broker.inter_broker.controlled_shutdown import shut_down
from penstock.broker.inter_broker.controller_client import ControllerClient
from penstock.broker.metadata.active_controller import (
    ActiveController,
    ControllerChannels,
)
from penstock.broker.metadata.broker_metadata import BrokerMetadata
from penstock.broker.metadata.controller_api import ControllerApi
from penstock.broker.metadata.controller_channel import (
    ControllerChannelManager,
    ResultListener,
)
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_requests import ControllerRequests, UpdateResult
from penstock.broker.metadata.features import NEW_CLUSTER_FEATURES, SUPPORTED_FEATURES
from penstock.broker.metadata.metadata_publisher import MetadataPublisher
from penstock.broker.metadata.producer_id_manager import ProducerIdManager
from penstock.broker.metadata.topic_creator import TopicCreator
from penstock.broker.metadata.topic_rules import election_rules
from penstock.broker.pacer import Pacer
from penstock.broker.replica.alter_partition_manager import AlterPartitionManager
from penstock.broker.replica.background_tasks import BackgroundTasks
from penstock.broker.replica.fetch_sessions import FetchSessionCache
from penstock.broker.replica.fetcher_factory import new_replica_fetchers
from penstock.broker.replica.isr_manager import IsrManager, isr_rules
from penstock.broker.replica.leader_throttle import LeaderThrottle
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.log_mover import LogMover
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.connection_quotas import protected_listener
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.security.session_factory import SessionFactory
from penstock.broker.supervisor.missing_brokers import warn_of_missing_brokers
from penstock.broker.workers import Workers
from penstock.cluster.factory import open_store
from penstock.cluster.store import MetadataStore, Snapshot
from penstock.controller.broker_updates import BrokerUpdate
from penstock.controller.brokers import claim_controller, register_broker
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    BrokerKey,
    BrokerRecord,
    Change,
    ClusterIdRecord,
    Endpoint,
    Put,
    TopicRecord,
)
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.result import ControllerResult
from penstock.controller.topic_recovery import recover_topics
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicId, TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.server.limits import Limits
from penstock.net.server.send_queue import SendableFile
from penstock.net.server.socket_server import Address, SocketServer
from penstock.protocol.messages.alter_partition import AlterPartitionResponse
from penstock.storage.checkpoint.checkpoint_files import (
    CorruptCheckpointError,
    load_meta_properties,
    uuid_text,
)
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.disk import Disk, OsDisk
from penstock.storage.file_cache import CachedFile
from penstock.storage.log.log import Log
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

_SESSION_PATIENCE_MS = 20_000
"""How long a starting broker waits for the end of the session of another with its id."""

_METADATA_WARNING_S = 10.0
"""How long a starting broker waits for the controller before it says so."""

_GRACE_S = 5.0
"""How long clients may take to read their last responses when the broker stops."""
STOP_S = 30.0
"""How long a broker that stops waits for work on the disks, and for the next log to be flushed."""
_CHECK_S = 0.5


class App:
    """One broker, from `start` to `stop`, on the running event loop."""

    def __init__(
        self, config: BrokerConfig, *, disk: Disk | None = None, clock: Clock | None = None
    ) -> None:
        """Tests pass a disk and a clock of their own."""
        self._config = config
        self._broker_id = config.int("node.id")
        self._clock: Clock = clock or SystemClock()
        self._rng = random.Random()
        self._descriptors = raise_descriptor_limit()
        self._disk: Disk = disk or OsDisk(self._descriptors.files)
        self._image = ClusterImage()
        self._log_dirs = config.list("log.dirs")
        self._workers = Workers(new_memory_budget(config))
        self._pacer = Pacer()
        self._closing = AsyncExitStack()
        self._has_started = False
        self._inter_broker_clients: list[InterBrokerClient] = []
        self.endpoints: tuple[Endpoint, ...] = ()
        """The advertised endpoints, once the broker has started."""
        self._is_assembled = False
        self.is_stuck = False
        """Whether the broker has stopped although a thread still waits for a disk: the process
        must not wait for its threads."""
        self._logs = LogManager(
            self._disk,
            self._log_dirs,
            self._clock,
            limits=producer_limits(config),
            intervals=chore_intervals(config),
            roll_jitter=lambda limit_ms: self._rng.randrange(limit_ms + 1),
        )

    async def start(self) -> list[Address]:
        """Returns the bound addresses once the broker serves requests; KafkaError if it cannot."""
        try:
            return await self._start()
        except GeneratorExit:
            raise  # the loop has gone: nothing can be awaited
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Completes the requests in progress, flushes the logs and marks a clean shutdown.

        If there are other brokers, leaderships are moved to them first.
        """
        has_others = bool(self._image.brokers.keys() - {self._broker_id})
        if self._has_started and has_others and self._config.bool("controlled.shutdown.enable"):
            await shut_down(
                self._config, self._broker_epoch(), self._controller_client, self._clock
            )
        await self._closing.aclose()

    async def _close_server(self) -> None:
        """Stops accepting requests; waiting fetches and group members get their responses now."""
        closing = asyncio.create_task(self._server.close(_GRACE_S))
        await asyncio.sleep(0)
        for replica in self.broker.replicas:
            replica.complete_delayed_fetches()
            replica.fail_delayed_operations(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.broker.groups.resign()
        self.broker.transactions.resign()
        await closing

    async def _stop_disk_work(self) -> None:
        """Waits for the work on threads; not longer than `STOP_S`, because a disk may hang."""
        work = asyncio.gather(self.broker.log_mover.close(), self._background_tasks.stop())
        try:
            await asyncio.wait_for(work, STOP_S)
        except TimeoutError:
            self._give_up("work on the disks has")

    async def _close_logs(self) -> None:
        """Flushes and closes the logs; gives up when none was closed for `STOP_S`.

        Each directory has a thread, so that one that hangs does not affect the others.
        """
        busy_logs = frozenset(self.broker.log_flusher.running_logs if self._is_assembled else ())
        closes = self._logs.begin_shutdown(busy_logs)
        pool = ThreadPoolExecutor(len(closes), "penstock-close")
        closing = asyncio.gather(*(self._workers.run(pool, close) for close in closes))
        closed_logs, unchanged_s = 0, 0.0
        while not closing.done() and unchanged_s < STOP_S:
            await asyncio.wait([closing], timeout=_CHECK_S)
            previous, closed_logs = closed_logs, sum(item.closed_logs for item in self._logs.dirs)
            unchanged_s = 0.0 if closed_logs > previous else unchanged_s + _CHECK_S
        if closing.done():
            closing.result()
        else:
            logs = sum(len(log_dir.logs) for log_dir in self._logs.dirs)
            self._give_up(f"the flushes of {logs - closed_logs} of {logs} logs have")
        pool.shutdown(wait=not self.is_stuck)

    def _give_up(self, work: str) -> None:
        self.is_stuck = self._workers.has_hanging_thread = True
        logger.error(
            "%s not ended within %g s: a disk may hang. The broker stops without waiting for it; "
            "acknowledged records are not affected, and the next start recovers the logs",
            work,
            STOP_S,
        )

    def _read_pool(self, file: SendableFile) -> ThreadPoolExecutor:
        """Returns the threads that read a file of a log."""
        assert isinstance(file, CachedFile)
        return self._workers.read_pool(file.path)

    # --- start

    async def _start(self) -> list[Address]:
        """Starts the components, and registers how each is closed in the opposite order."""
        closing = self._closing
        closing.callback(self._workers.close)
        if store_config(self._config).is_shared:
            check_inter_broker_settings(self._config)
        store = await self._workers.run(self._workers.store, self._open_store)
        closing.callback(store.close)
        self._store = store
        self._metadata = BrokerMetadata(self._image, self._pacer)
        self._controller = ControllerHost(
            self._metadata, store, self._workers, self._new_controller, self._claim_controller
        )
        snapshot = self._controller.load()
        if not store_config(self._config).is_shared:
            warn_of_missing_brokers(snapshot.records, [self._broker_id])
        is_new_store = await self._claim_cluster_id()
        self._config.set_dynamic(
            self._image.config("brokers", DEFAULT_ENTITY),
            self._image.config("brokers", str(self._broker_id)),
        )
        closing.push_async_callback(self._close_logs)
        recovered_logs = self._load_logs(snapshot, is_new_store)
        self._assemble()
        closing.push_async_callback(self._stop_disk_work)
        closing.push_async_callback(self.broker.isr_manager.close)
        closing.push_async_callback(self._replica_fetchers.close)
        closing.push_async_callback(self.broker.groups.close)
        closing.push_async_callback(self.broker.transactions.close)
        closing.push_async_callback(self._controller.close)
        closing.push_async_callback(self._close_inter_broker_clients)
        closing.push_async_callback(self._dispatcher.close)
        closing.push_async_callback(self._close_server)
        addresses = await self._server.bind(
            [listener_config(self._config, spec) for spec in self._config.listeners]
        )
        ports = {address.listener: address.port for address in addresses}
        self.endpoints = tuple(self._config.advertised_endpoints(ports))
        self._controller.on_new_session = self._register
        await self._register()
        await self._controller.elect()
        if recovered_logs:
            await self._recover_topics(recovered_logs)
        self._publisher.apply(
            [*map(Put, self._image.configs.values()), *map(Put, self._image.acls.values())]
        )
        self._has_started = True
        self._server.accept()
        await self._wait_for_metadata()
        self._background_tasks.start()
        self.broker.isr_manager.start()
        self.broker.log_mover.resume()
        return addresses

    async def _wait_for_metadata(self) -> None:
        """Waits for the controller, without which clients wait too."""
        while True:
            try:
                async with asyncio.timeout(_METADATA_WARNING_S):
                    await self._controller_requests.has_metadata.wait()
                return
            except TimeoutError:
                logger.warning(
                    "the controller, broker %d, has not sent the metadata of the cluster yet; "
                    "check that it can reach the inter-broker listener of this broker",
                    self._image.controller_id,
                )

    def _open_store(self) -> MetadataStore:
        """Opens the metadata store, on a thread. Tests have one of their own."""
        return open_store(store_config(self._config))

    async def _claim_cluster_id(self) -> bool:
        """Takes the cluster id from the store; returns whether the store had none before.

        It is stored before it is written to the log directories: of brokers that start at the same
        time, only one may choose it.
        """

        def claim(image: ClusterImage) -> ControllerResult[bool]:
            if image.cluster_id:
                return ControllerResult([], False)
            cluster_id = self._cluster_id_of_logs() or uuid_text(uuid.uuid4())
            return ControllerResult([Put(ClusterIdRecord(cluster_id))], True)

        return await self._controller.write(claim)

    def _cluster_id_of_logs(self) -> str | None:
        """Returns the cluster id in the log directories' `meta.properties`, if one has it."""
        for log_dir in self._log_dirs:
            try:
                properties = load_meta_properties(self._disk, log_dir)
            except (OSError, CorruptCheckpointError):
                # Opening the directory reports it.
                continue
            if properties is not None and properties.cluster_id is not None:
                return properties.cluster_id
        return None

    def _load_logs(self, snapshot: Snapshot, is_new_store: bool) -> list[Log]:
        """Opens the log directories; logs of no known topic are renamed, not deleted.

        If the store is new, returns all logs: they were written by Kafka, or the store was lost.
        """
        topics = {
            record.topic: record for record in snapshot.records if isinstance(record, TopicRecord)
        }
        self._logs.open(node_id=self._broker_id, cluster_id=self._image.cluster_id)
        strays = self._logs.load(
            lambda topic: topic_config(self._config, self._image.config("topics", topic)).log,
            lambda key, topic_id: is_new_store or _is_known(topics, key, topic_id),
        )
        for stray in strays:
            logger.warning(
                "%s belongs to no topic of this cluster: its directory was renamed to %s",
                stray.partition,
                stray.path,
            )
        return list(self._logs) if is_new_store else []

    async def _recover_topics(self, logs: Sequence[Log]) -> None:
        """Registers the topics of logs that a new store does not know."""
        topic_ids = {log.partition: log.topic_id for log in logs}
        epochs = {log.partition: log.epochs.latest_epoch or 0 for log in logs}
        await self._controller.run(
            lambda image: ControllerResult(
                recover_topics(image, topic_ids, self._broker_id, uuid.uuid4, epochs), None
            )
        )
        logger.warning(
            "the metadata store is new, but log.dirs has %d partitions: their topics were "
            "registered with default settings",
            len(logs),
        )

    # --- wiring

    def _assemble(self) -> None:
        self.broker = self._build_broker()
        self._is_assembled = True
        self._build_coordinators(self.broker)
        self._build_server(self.broker)
        self._background_tasks = BackgroundTasks(
            self._logs,
            self.broker.cleaner,
            self.broker.log_flusher,
            self._workers,
            self._on_log_reloaded,
        )
        self._publisher = MetadataPublisher(self.broker, self._server)
        self._config.subscribe("", lambda _: self._server.limits_changed())
        self._config.subscribe("", self._reload_keys)
        replicas = self.broker.replicas
        self._controller.requirements.append(replicas.require_logs)
        replicas.leadership_listeners.append(self._publisher.leaderships_changed)
        replicas.leadership_listeners.append(lambda *_: self._dispatcher.fast_produce.clear())
        self._metadata.listeners.append(self._publisher.apply)
        self._metadata.listeners.append(lambda _: self._dispatcher.fast_produce.clear())

    def _on_log_reloaded(self, key: TopicPartition) -> None:
        """Continues with a log that accepts records again, and loads its coordinator."""
        self.broker.replicas.on_log_replaced(key)
        self.broker.groups.on_log_reloaded(key)
        self.broker.transactions.on_log_reloaded(key)

    def _build_broker(self) -> Broker:
        """Returns the components that handlers use, without the coordinators."""
        config, clock, image, workers = self._config, self._clock, self._image, self._workers
        controller = self._controller
        rules = isr_rules(image, config.int("replica.lag.time.max.ms"))
        replicas = ReplicaManager(
            self._broker_id,
            self._logs,
            image,
            workers,
            self._pacer,
            lambda values: topic_config(config, values),
            rules,
        )
        controller_api = ControllerApi(config, controller)
        proposals = AlterPartitionManager(
            self._broker_id,
            self._broker_epoch,
            partial(
                self._new_controller_client(controller_api).send,
                response_type=AlterPartitionResponse,
            ),
        )
        self._controller_client = self._new_controller_client(controller_api)
        self._controller_requests = ControllerRequests(
            self._metadata, replicas, self._store, workers
        )
        log_flusher = LogFlusher(workers)
        replicas.fetchers = self._replica_fetchers = new_replica_fetchers(
            config,
            image,
            clock,
            self._logs,
            workers,
            log_flusher,
            lambda: self._controller_requests.broker_epoch,
        )
        telemetry = ClientTelemetry(image, config.int("telemetry.max.bytes"), uuid.uuid4)
        return Broker(
            broker_id=self._broker_id,
            config=config,
            clock=clock,
            workers=workers,
            pacer=self._pacer,
            image=image,
            controller=controller,
            controller_api=controller_api,
            controller_requests=self._controller_requests,
            topic_creator=TopicCreator(
                config,
                image,
                self._new_controller_client(controller_api),
                is_single_node=not store_config(config).is_shared,
            ),
            logs=self._logs,
            replicas=replicas,
            isr_manager=IsrManager(
                replicas, proposals, rules, self._broker_epoch, self._pacer, clock
            ),
            leader_throttle=LeaderThrottle(self._broker_id, config, clock),
            log_flusher=log_flusher,
            authorizer=RequestAuthorizer(new_authorizer(config)),
            quotas=ClientQuotaManager(new_quotas(config), clock),
            fetch_sessions=FetchSessionCache(
                config.int("max.incremental.fetch.session.cache.slots"),
                lambda: self._rng.randrange(1, 2**31),
            ),
            producer_ids=ProducerIdManager(
                self._broker_id,
                self._new_controller_client(controller_api),
                self._broker_epoch,
            ),
            log_mover=LogMover(self._logs, replicas, workers),
            cleaner=LogCleaner(self._logs, clock, cleaner_settings(config)),
            telemetry=telemetry,
            api_versions=ApiVersionManager(image, telemetry),
        )

    def _broker_epoch(self) -> int:
        return self._controller_requests.broker_epoch

    def _build_coordinators(self, broker: Broker) -> None:
        """Adds the group and transaction coordinators, which use the other components."""
        config, clock, replicas = self._config, self._clock, broker.replicas
        context = CoordinatorContext(
            self._broker_id,
            config,
            self._image,
            replicas,
            broker.log_flusher,
            self._workers,
            self._pacer,
            clock,
            broker.topic_creator.create_internal,
        )
        broker.groups = GroupCoordinator(context, broker.authorizer)
        broker.txn_markers = TransactionMarkers(
            replicas, broker.groups, broker.log_flusher, self._pacer, clock
        )
        client = self._new_inter_broker_client()
        marker_channel = TransactionMarkerChannel(
            self._broker_id, self._image, broker.txn_markers, client, clock
        )
        broker.transactions = TransactionCoordinator(context, broker.producer_ids, marker_channel)
        broker.txn_verification = TransactionVerifier(
            replicas,
            AddPartitionsManager(
                self._broker_id, broker.transactions, self._new_inter_broker_client()
            ),
            config,
            clock,
        )

    def _new_inter_broker_client(self) -> InterBrokerClient:
        """Returns a client with connections of its own, which is closed with the broker.

        Requests that may take long must not delay others: those of one connection are handled in
        order.
        """
        client = InterBrokerClient(self._config, self._image, self._clock)
        self._metadata.listeners.append(client.apply)
        self._inter_broker_clients.append(client)
        return client

    def _new_controller_client(self, controller_api: ControllerApi) -> ControllerClient:
        return ControllerClient(
            self._broker_id,
            self._image,
            self._new_inter_broker_client(),
            controller_api.handle,
            self._clock,
        )

    async def _close_inter_broker_clients(self) -> None:
        self.broker.producer_ids.close()
        for client in self._inter_broker_clients:
            await client.close()

    def _reload_keys(self, names: frozenset[str]) -> None:
        """Uses changed keys and certificates for new connections to other brokers."""
        if not any("ssl." in name for name in names):
            return
        for client in self._inter_broker_clients:
            try:
                client.reconfigure()
            except KafkaError as error:
                logger.error(
                    "connections to other brokers keep their old certificates: %s", error.message
                )

    def _build_server(self, broker: Broker) -> None:
        limits = Limits()
        set_limits(limits, self._config)
        limits.protected_listener = protected_listener(self._config)
        limits.max_sockets = self._descriptors.connections
        sessions = SessionFactory(self._config, self._image, self._clock)
        self._metadata.listeners.append(sessions.apply)
        self._dispatcher = Dispatcher(broker, sessions)
        self._server = SocketServer(
            self._dispatcher,
            limits,
            clock=self._clock,
            executor_of=self._read_pool,
            throttle=sessions.connection_quotas,
            budget=self._workers.memory,
        )

    # --- registration and election

    async def _register(self) -> None:
        """Registers this broker, once a session of an earlier process with its id has ended."""
        key = BrokerKey(self._broker_id)
        deadline_ms = self._clock.monotonic_ms() + _SESSION_PATIENCE_MS
        while registered := await self._stored(key):
            if self._clock.monotonic_ms() > deadline_ms:
                raise _duplicate_broker_error(registered)
            await asyncio.sleep(0.1)
        record = BrokerRecord(
            broker_id=self._broker_id,
            endpoints=self.endpoints,
            rack=self._config.text("broker.rack"),
            timestamp_ms=self._clock.now_ms(),
            features=SUPPORTED_FEATURES,
            epoch=0,
        )
        await self._controller.write(
            lambda image: ControllerResult(
                register_broker(
                    image,
                    record,
                    login_secret=secrets.token_bytes(32),
                    features=NEW_CLUSTER_FEATURES,
                ),
                None,
            )
        )
        stored = await self._stored(key)
        if stored is None or stored.timestamp_ms != record.timestamp_ms:
            raise _duplicate_broker_error(stored or record)
        self._controller_requests.broker_epoch = stored.epoch

    async def _stored(self, key: BrokerKey) -> BrokerRecord | None:
        records = await self._workers.run(self._workers.store, lambda: self._store.fetch([key]))
        return next((record for record in records if isinstance(record, BrokerRecord)), None)

    def _claim_controller(self, image: ClusterImage) -> list[Change]:
        return claim_controller(image, self._broker_id, self._clock.now_ms())

    def _new_controller(self, image: ClusterImage, version: int) -> ActiveController:
        context = _ControllerContext(
            self._broker_id,
            self._config,
            self._clock,
            self._controller_requests,
            is_starting=not self._has_started,
        )
        return ActiveController(context, self._workers, image, version)


class _ControllerContext(NamedTuple):
    """What the controller on this broker needs of it."""

    broker_id: int
    config: BrokerConfig
    clock: Clock
    requests: ControllerRequests
    is_starting: bool

    @property
    def is_deletion_enabled(self) -> bool:
        return self.config.bool("delete.topic.enable")

    def rules(self, image: ClusterImage) -> ElectionRules:
        return election_rules(self.config, image)

    def open_channels(self, image: ClusterImage, on_result: ResultListener) -> ControllerChannels:
        return ControllerChannelManager(self.config, image, self.clock, on_result)

    async def apply_update(self, update: BrokerUpdate) -> UpdateResult:
        return await self.requests.apply(update)


def _duplicate_broker_error(registered: BrokerRecord) -> KafkaError:
    addresses = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in registered.endpoints)
    return KafkaError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"broker {registered.broker_id} is already registered, at {addresses}",
        remedy="stop the other broker with this id, or give this one another node.id",
    )


def _is_known(
    topics: Mapping[str, TopicRecord], key: TopicPartition, topic_id: TopicId | None
) -> bool:
    record = topics.get(key.topic)
    return (
        record is not None
        and key.partition in record.assignments
        and topic_id in (None, record.topic_id)
    )
