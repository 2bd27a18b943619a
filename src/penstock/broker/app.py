"""One broker: starts its components in order, and stops them in the opposite order.

Start order: the metadata store and the cluster image, the logs (recovered if needed), the
components and their listeners, the sockets, and last the registration, which makes this broker the
controller and the leader of its partitions. No request is handled before the broker is registered.
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial

from penstock.broker.assembly import BrokerAssembly
from penstock.broker.audit.audit_log import AuditLog
from penstock.broker.broker import Broker
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import (
    listener_config,
    maintenance_intervals,
    producer_limits,
    store_config,
)
from penstock.broker.config.memory_config import new_memory_budget
from penstock.broker.config.settings import ConfigError
from penstock.broker.config.topic_config import topic_config
from penstock.broker.descriptor_budget import raise_descriptor_limit
from penstock.broker.inter_broker.connection_settings import check_inter_broker_settings
from penstock.broker.inter_broker.controlled_shutdown import shut_down
from penstock.broker.metadata.active_controller import (
    ActiveController,
)
from penstock.broker.metadata.broker_metadata import BrokerMetadata
from penstock.broker.metadata.controller_context import BrokerControllerContext
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_queue import ControllerQueue
from penstock.broker.metadata.log_recovery import (
    check_kafka_metadata,
    mark_kafka_metadata,
    recover_metadata,
)
from penstock.broker.metadata.registration import BrokerRegistration
from penstock.broker.metrics.endpoint import MetricsEndpoint
from penstock.broker.metrics.health import BrokerState
from penstock.broker.pacer import Pacer
from penstock.broker.replica.log_dir_probe import LogDirProbe, hanging_error
from penstock.broker.replica.log_dir_startup import LogDirStartup
from penstock.broker.supervisor.missing_brokers import (
    require_no_other_logs,
    warn_of_missing_brokers,
)
from penstock.broker.workers import Workers
from penstock.cluster.factory import open_store
from penstock.cluster.store import MetadataStore, Snapshot
from penstock.controller.brokers import claim_controller
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    Change,
    Endpoint,
    Put,
    TopicRecord,
)
from penstock.controller.result import ControllerResult
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicId, TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.net.server.socket_server import Address
from penstock.storage.disk import Disk, OsDisk
from penstock.storage.log.log import Log
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

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
        self._probe = LogDirProbe(self._disk, self._workers)
        self._pacer = Pacer()
        self._closing = AsyncExitStack()
        self._has_started = False
        self.metrics: MetricsEndpoint | None = None
        self.metrics_address: tuple[str, int] | None = None
        """Where metrics and health are served, if `metrics.port` is set."""
        self.endpoints: tuple[Endpoint, ...] = ()
        """The advertised endpoints, once the broker has started."""
        self._parts: BrokerAssembly | None = None
        self.is_stuck = False
        """Whether the broker has stopped although a thread still waits for a disk: the process
        must not wait for its threads."""
        self._logs = LogManager(
            self._disk,
            self._log_dirs,
            self._clock,
            limits=producer_limits(config),
            intervals=maintenance_intervals(config),
            roll_jitter=lambda limit_ms: self._rng.randrange(limit_ms + 1),
        )
        self._log_dir_startup = LogDirStartup(self._logs, self._workers, self._probe)

    @property
    def parts(self) -> BrokerAssembly:
        """The components, once they are created."""
        assert self._parts is not None
        return self._parts

    @property
    def broker(self) -> Broker:
        return self.parts.broker

    async def start(self) -> list[Address]:
        """Returns the bound addresses once the broker serves requests; KafkaError if it cannot."""
        try:
            return await self._start()
        except GeneratorExit:
            raise  # the loop has gone: nothing can be awaited
        except BaseException:
            await self.stop()
            raise

    async def stop(self, *, is_last: bool = False) -> None:
        """Completes the requests in progress, flushes the logs and marks a clean shutdown.

        If there are other brokers, leaderships are moved to them first, unless the others stop at
        the same time (`is_last`), and one of them becomes the controller if this broker is it.
        """
        self._set_state(BrokerState.STOPPING)
        has_others = bool(self._image.brokers.keys() - {self._broker_id}) and not is_last
        if self._has_started and has_others and self._config.bool("controlled.shutdown.enable"):
            parts = self.parts
            parts.replica_fetchers.begin_shutdown()
            await shut_down(
                self._config,
                parts.controller_requests.broker_epoch,
                parts.controller_client,
                self._clock,
            )
            # While this broker still responds: requests to the controller move on at once.
            await self._controller.resign()
        await self._closing.aclose()

    async def _close_server(self) -> None:
        """Stops accepting requests; waiting fetches and group members get their responses now."""
        closing = asyncio.create_task(self.parts.server.close(_GRACE_S))
        await asyncio.sleep(0)
        for replica in self.broker.replicas:
            replica.complete_delayed_fetches()
            replica.fail_delayed_operations(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.broker.groups.resign()
        self.broker.transactions.resign()
        await closing

    async def _stop_disk_work(self) -> None:
        """Waits for the work on threads; not longer than `STOP_S`, because a disk may hang."""
        work = asyncio.gather(self.broker.log_mover.close(), self.parts.background_tasks.stop())
        try:
            await asyncio.wait_for(work, STOP_S)
        except TimeoutError:
            self._give_up("work on the disks has")

    async def _close_logs(self) -> None:
        """Flushes and closes the logs; gives up when none was closed for `STOP_S`.

        Each directory has a thread, so that one that hangs does not affect the others.
        """
        busy_logs = frozenset(() if self._parts is None else self.broker.log_flusher.running_logs)
        closes = self._logs.begin_shutdown(busy_logs)
        pool = ThreadPoolExecutor(len(closes), "penstock-close")
        closing = asyncio.gather(*(self._workers.run(pool, close) for close in closes))
        closed_logs, unchanged_s = 0, 0.0
        while not closing.done() and unchanged_s < STOP_S:
            await asyncio.wait([closing], timeout=_CHECK_S)
            previous, closed_logs = (
                closed_logs,
                sum(directory.closed_logs for directory in self._logs.dirs),
            )
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

    def _close_workers(self) -> None:
        if self._probe.has_hanging_thread or self._log_dir_startup.has_hanging_thread:
            self.is_stuck = self._workers.has_hanging_thread = True
        self._workers.close()

    # --- start

    async def _probe_log_dirs(self) -> list[str]:
        """Returns the log directories that respond; the others are offline.

        Raises KafkaStorageError if the directory of the metadata store does not respond.
        """
        store = store_config(self._config)
        store_dirs = [] if store.is_shared else [str(store.directory)]
        hanging_dirs = await self._probe.find_hanging([*self._log_dirs, *store_dirs])
        for path in hanging_dirs:
            if path in store_dirs:
                raise hanging_error(path)
        for log_dir in self._logs.dirs:
            if log_dir.path in hanging_dirs:
                log_dir.error = hanging_error(log_dir.path)
        return [path for path in self._log_dirs if path not in hanging_dirs]

    async def _start(self) -> list[Address]:
        """Starts the components, and registers how each is closed in the opposite order."""
        closing = self._closing
        closing.callback(self._close_workers)
        responding_dirs = await self._probe_log_dirs()
        if store_config(self._config).is_shared:
            check_inter_broker_settings(self._config)
        await self._start_metrics()
        store = await self._workers.run(self._workers.store, self._open_store)
        closing.callback(store.close)
        self._metadata = BrokerMetadata(self._image, self._pacer)
        self._controller = ControllerHost(
            self._metadata,
            store,
            self._workers,
            self._new_controller,
            self._claim_controller,
            ControllerQueue(lambda: self._config.int("controller.queue.max.requests")),
        )
        self._registration = BrokerRegistration(
            self._config, self._controller, store, self._workers, self._clock
        )
        snapshot = self._controller.load()
        if not store_config(self._config).is_shared:
            warn_of_missing_brokers(snapshot.records, [self._broker_id])
        has_cluster = bool(self._image.cluster_id)
        await self._workers.run(
            self._workers.store,
            lambda: check_kafka_metadata(self._config, is_new_store=not has_cluster),
        )
        is_new_store = await self._registration.claim_cluster_id(self._disk, responding_dirs)
        self._config.set_dynamic(
            self._image.config("brokers", DEFAULT_ENTITY),
            self._image.config("brokers", str(self._broker_id)),
        )
        closing.push_async_callback(self._close_logs)
        recovered_logs = await self._load_logs(snapshot, is_new_store)
        self._parts = parts = self._assemble(store)
        if self.metrics is not None:
            self.metrics.set_parts(parts)
        if parts.audit_log is not None:
            closing.callback(parts.audit_log.close)
            await self._workers.run(self._workers.store, partial(_open_audit_log, parts.audit_log))
        closing.push_async_callback(self._stop_disk_work)
        closing.push_async_callback(parts.broker.isr_manager.close)
        closing.push_async_callback(parts.leader_rebalancer.close)
        closing.push_async_callback(parts.token_expiry.close)
        closing.push_async_callback(parts.broker.tokens.close)
        closing.push_async_callback(parts.log_dir_failures.close)
        closing.push_async_callback(parts.replica_fetchers.close)
        closing.push_async_callback(parts.broker.groups.close)
        closing.push_async_callback(parts.broker.transactions.close)
        closing.push_async_callback(self._controller.close)
        closing.push_async_callback(parts.close_clients)
        closing.push_async_callback(parts.dispatcher.close)
        closing.push_async_callback(self._close_server)
        addresses = await parts.server.bind(
            [listener_config(self._config, spec) for spec in self._config.listeners]
        )
        parts.broker.certificates.load()
        ports = {address.listener: address.port for address in addresses}
        self.endpoints = tuple(self._config.advertised_endpoints(ports))
        self._controller.on_new_session = self._register
        parts.log_dir_failures.start()
        self._registration.is_unclean = any(
            log_dir.may_have_lost_records for log_dir in self._logs.dirs
        )
        await self._register()
        await self._controller.elect()
        if recovered_logs is not None:
            await self._recover_metadata(recovered_logs)
        await self._workers.run(self._workers.store, lambda: mark_kafka_metadata(self._config))
        parts.publisher.apply(
            [*map(Put, self._image.configs.values()), *map(Put, self._image.acls.values())]
        )
        self._has_started = True
        parts.server.accept()
        await self._wait_for_metadata()
        await self._registration.confirm()
        self._logs.confirm_losses()
        parts.background_tasks.start()
        parts.broker.isr_manager.start()
        parts.leader_rebalancer.start()
        parts.token_expiry.start()
        parts.broker.log_mover.resume()
        self._set_state(BrokerState.RUNNING)
        return addresses

    async def _start_metrics(self) -> None:
        """Serves metrics and health first, so that others can see how the start proceeds."""
        if self._config.int("metrics.port") >= 0:
            self.metrics = MetricsEndpoint(self._config, self._workers, self._pacer, self._logs)
            self._closing.push_async_callback(self.metrics.close)
            self.metrics_address = await self.metrics.start()

    def _set_state(self, state: BrokerState) -> None:
        if self.metrics is not None:
            self.metrics.set_state(state)

    def _assemble(self, store: MetadataStore) -> BrokerAssembly:
        """Creates the components. Tests replace some of them."""
        return BrokerAssembly(
            self._config,
            self._clock,
            self._rng,
            self._pacer,
            self._workers,
            self._logs,
            self._metadata,
            store,
            self._controller,
            self._descriptors.connections,
        )

    async def _register(self) -> None:
        epoch = await self._registration.register(self.endpoints)
        self.parts.controller_requests.broker_epoch = epoch
        self._controller.session_status.is_registered = True

    def _claim_controller(self, image: ClusterImage) -> list[Change]:
        return claim_controller(image, self._broker_id, self._clock.now_ms())

    def _new_controller(self, image: ClusterImage, version: int) -> ActiveController:
        context = BrokerControllerContext(
            self._broker_id,
            self._config,
            self._clock,
            self.parts.controller_requests,
            self._workers,
            is_starting=not self._has_started,
        )
        return ActiveController(context, self._workers, image, version)

    async def _wait_for_metadata(self) -> None:
        """Waits for the controller, without which clients wait too."""
        while True:
            try:
                async with asyncio.timeout(_METADATA_WARNING_S):
                    await self.parts.controller_requests.has_metadata.wait()
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

    async def _load_logs(self, snapshot: Snapshot, is_new_store: bool) -> list[Log] | None:
        """Opens the log directories; logs of no known topic are renamed, not deleted.

        Recovery may take long: it runs on threads, while the loop responds about health.

        Returns all logs if the store is new: they were written by Kafka, or the store was lost.
        The same if it has no topics: a broker has ended before it could register them. Otherwise
        returns None.
        """
        topics = {
            record.topic: record for record in snapshot.records if isinstance(record, TopicRecord)
        }
        if not topics and not store_config(self._config).is_shared:
            require_no_other_logs(self._config)
        startup = self._log_dir_startup
        await startup.open(node_id=self._broker_id, cluster_id=self._image.cluster_id)
        strays = await startup.load(
            lambda topic: topic_config(self._config, self._image.config("topics", topic)).log,
            lambda key, topic_id: not topics or _is_known(topics, key, topic_id),
        )
        for stray in strays:
            logger.warning(
                "%s belongs to no topic of this cluster: its directory was renamed to %s",
                stray.partition,
                stray.path,
            )
        logs = list(self._logs)
        return logs if is_new_store or (logs and not topics) else None

    async def _recover_metadata(self, logs: Sequence[Log]) -> None:
        """Registers the topics of logs that a new store does not know, with Kafka's metadata."""
        recovery = await recover_metadata(logs, self._config, self._image, self._workers)
        if recovery.is_empty:
            return
        try:
            await self._controller.run(
                lambda image: ControllerResult(recovery.changes(image, self._broker_id), None)
            )
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            raise KafkaStorageError(
                "log.dirs has partitions, but the metadata store has no topics, and another broker "
                "is the controller",
                remedy="start this broker again when the other one has registered the topics, or "
                "move the directories of the partitions out of log.dirs",
            ) from error
        recovery.log_result()


def _open_audit_log(log: AuditLog) -> None:
    try:
        log.start()
    except OSError as error:
        raise ConfigError(
            f"the audit log cannot be written: {error}",
            "audit.log.dir",
            remedy="create the directory, and let the user of the broker write to it",
        ) from error


def _is_known(
    topics: Mapping[str, TopicRecord], key: TopicPartition, topic_id: TopicId | None
) -> bool:
    record = topics.get(key.topic)
    return (
        record is not None
        and key.partition in record.assignments
        and topic_id in (None, record.topic_id)
    )
