"""A simulated broker: the real components on a disk that loses data and a simulated event loop.

`app.App` wires a broker to sockets, threads and the clock of the machine; this wires the same parts
without them. The handlers, the coordinators and their hosts, verification, markers, background
tasks, the cleaner, the logs and their recovery are the real ones.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from random import Random
from uuid import UUID

from penstock.broker.api_versions import ApiVersionManager
from penstock.broker.broker import Broker
from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import (
    maintenance_intervals,
    new_authorizer,
    new_quotas,
    producer_limits,
)
from penstock.broker.config.topic_config import topic_config
from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.host import CoordinatorContext
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.coordinator.transaction_markers import TransactionMarkers
from penstock.broker.coordinator.transaction_verification import TransactionVerifier
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.broker.inter_broker.controller_client import ControllerClient
from penstock.broker.metadata.active_controller import ActiveController
from penstock.broker.metadata.broker_metadata import BrokerMetadata
from penstock.broker.metadata.controller_api import ControllerApi
from penstock.broker.metadata.controller_channel import ResultListener
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_requests import ControllerRequests, UpdateResult
from penstock.broker.metadata.eligible_leader_replicas import EligibleLeaderReplicas
from penstock.broker.metadata.features import (
    NEW_CLUSTER_FEATURES,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
)
from penstock.broker.metadata.producer_id_manager import ProducerIdManager
from penstock.broker.metadata.stored_leaderships import StoredLeaderships
from penstock.broker.metadata.topic_creator import TopicCreator
from penstock.broker.metadata.topic_rules import election_rules
from penstock.broker.pacer import Pacer
from penstock.broker.replica.alter_partition_manager import AlterPartitionManager
from penstock.broker.replica.background_tasks import BackgroundTasks
from penstock.broker.replica.fetch_sessions import FetchSessionCache
from penstock.broker.replica.isr_manager import IsrManager
from penstock.broker.replica.leader_throttle import LeaderThrottle
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.log_mover import LogMover
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.security.client_quota_manager import ClientQuotaManager
from penstock.broker.security.delegation_tokens import DelegationTokens
from penstock.broker.security.listener_certificates import ListenerCertificates
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.workers import Workers
from penstock.controller.broker_updates import BrokerUpdate, OfflineReplicas
from penstock.controller.brokers import claim_controller, register_broker
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerRecord
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.result import ControllerResult
from penstock.coordinator.group import events as group
from penstock.coordinator.txn import events as txn
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TimestampMs, TopicPartition
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from penstock.replication.partition import NO_FOLLOWERS
from penstock.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from penstock.storage.log.results import LogAppendInfo
from penstock.storage.manager.log_manager import LogManager
from tests.sim.txn_loop import SimLoop
from tests.support.broker.controller_hosts import SentRequests
from tests.support.cluster.memory_store import MemoryStoreServer
from tests.support.storage.crash_disk import CrashDisk

NODE = 1
FOLDER = "/data"
START_MS = 1_700_000_000_000

SETTINGS = {
    "node.id": str(NODE),
    "log.dirs": FOLDER,
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "700",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "group.initial.rebalance.delay.ms": "300",
    "group.min.session.timeout.ms": "1000",
}

CLEANER = CleanerSettings(dedupe_buffer_size=50_000, io_buffer_size=8_192, backoff_ms=2_500)


class SimClock:
    """A clock that returns the loop's time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now_ms(self) -> TimestampMs:
        return TimestampMs(START_MS + self.monotonic_ms())

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)


class Faults:
    """The probabilities of faults in the broker; without faults all are zero."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.append = 0.0
        """The probability that a coordinator's append fails."""
        self.marker = 0.0
        """The probability that a marker is late, not written, or written but reported as failed."""

    def strikes(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability


def _refused() -> KafkaError:
    return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas, says the simulation")


class _Transactions(TransactionCoordinator):
    faults: Faults

    def _append(self, replica: Replica, result: txn.Result) -> LogAppendInfo:
        if self.faults.strikes(self.faults.append):
            raise _refused()
        return super()._append(replica, result)


class _Groups(GroupCoordinator):
    faults: Faults

    def _append(self, replica: Replica, result: group.Result) -> LogAppendInfo:
        if self.faults.strikes(self.faults.append):
            raise _refused()
        return super()._append(replica, result)


class _Markers(TransactionMarkers):
    faults: Faults

    def _try_write(self, marker: WritableTxnMarker, partition: TopicPartition) -> bool:
        faults = self.faults
        if faults.strikes(faults.marker):
            return False
        return super()._try_write(marker, partition) and not faults.strikes(faults.marker)

    async def write(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        # The order of a set differs between processes.
        return await super().write(marker, sorted(partitions))

    async def _write(
        self, marker: WritableTxnMarker, partition: TopicPartition, flush_deadline: float
    ) -> tuple[TopicPartition, ErrorCode]:
        faults = self.faults
        if faults.strikes(faults.marker):
            await asyncio.sleep(faults.random.randrange(2_000) / 1000)
        if faults.strikes(faults.marker):
            return partition, ErrorCode.NOT_LEADER_OR_FOLLOWER
        written = await super()._write(marker, partition, flush_deadline)
        if faults.strikes(faults.marker):
            return partition, ErrorCode.REQUEST_TIMED_OUT
        return written


class SimBroker:
    """One incarnation of the broker: `start` recovers what is on the disk and serves it."""

    def __init__(
        self,
        loop: SimLoop,
        disk: CrashDisk,
        store: MemoryStoreServer,
        faults: Faults,
        transaction_version: int,
    ) -> None:
        """`transaction_version` is the feature level of a new store."""
        self._features = {**NEW_CLUSTER_FEATURES, TRANSACTION_VERSION: transaction_version}
        self._store = store.open()
        self._faults = faults
        self._clock: Clock = SimClock(loop)
        self._config = BrokerConfig.from_properties(SETTINGS)
        self._image = ClusterImage()
        self._workers = Workers()
        self._on_leading: Callable[[], None] | None = None
        self.logs = LogManager(
            disk,
            [FOLDER],
            self._clock,
            limits=producer_limits(self._config),
            intervals=maintenance_intervals(self._config),
        )

    def load(self) -> None:
        """Recovers the logs; must be called on the loop, in this broker's incarnation."""
        self._metadata = BrokerMetadata(self._image, Pacer(lambda: 0.0))
        self._controller = ControllerHost(
            self._metadata,
            self._store,
            self._workers,
            lambda image, version: ActiveController(self, self._workers, image, version),
            lambda image: claim_controller(image, NODE, self._clock.now_ms()),
        )
        self._controller.load()
        self.logs.open(node_id=NODE, cluster_id="simulated")
        self.logs.load(
            lambda topic: topic_config(self._config, self._image.config("topics", topic)).log
        )
        for log_dir in self.logs.dirs:
            assert not log_dir.load_errors, f"{log_dir}: {log_dir.load_errors}"
        self._assemble()

    async def start(self, on_leading: Callable[[], None]) -> None:
        """Serves requests when it returns.

        Calls `on_leading` when it leads its partitions, before coordinators write to them.
        """
        self._on_leading = on_leading
        await self._register()
        await self._controller.elect()
        self._background_tasks.start()

    # --- the context of the controller

    @property
    def broker_id(self) -> int:
        return NODE

    is_starting = True
    is_deletion_enabled = True

    def rules(self, image: ClusterImage) -> ElectionRules:
        return election_rules(self._config, image)

    def open_channels(
        self, image: ClusterImage, on_result: ResultListener, offline_replicas: OfflineReplicas
    ) -> SentRequests:
        return SentRequests()

    async def apply_update(self, update: BrokerUpdate) -> UpdateResult:
        result = await self.broker.controller_requests.apply(update)
        if self._on_leading is not None:
            self._on_leading()
            self._on_leading = None
        return result

    def kill(self) -> None:
        """Kills the process: the kernel releases files and locks, and keeps written data.

        Files that cleaner threads had open need no handling.
        """
        self._store.close()
        for log_dir in self.logs.dirs:
            for log in log_dir.logs.values():
                log.local.close_handlers()
            if log_dir._lock is not None:
                log_dir._lock.release()

    def _assemble(self) -> None:
        config, clock, image, workers = self._config, self._clock, self._image, self._workers
        controller = self._controller
        replicas = ReplicaManager(
            NODE,
            self.logs,
            image,
            workers,
            Pacer(lambda: 0.0),
            lambda values: topic_config(config, values),
        )
        telemetry = ClientTelemetry(image, 1000, lambda: UUID(int=1))
        controller_api = ControllerApi(config, controller)
        controller_client = ControllerClient(
            NODE, image, InterBrokerClient(config, image, clock), controller_api.handle, clock
        )
        self.broker = broker = Broker(
            broker_id=NODE,
            config=config,
            clock=clock,
            workers=workers,
            pacer=Pacer(lambda: 0.0),
            image=image,
            controller=controller,
            controller_api=controller_api,
            controller_requests=ControllerRequests(self._metadata, replicas, self._store, workers),
            eligible_leader_replicas=EligibleLeaderReplicas(config, image, self._store, workers),
            stored_leaderships=StoredLeaderships(NODE, self._store, workers),
            topic_creator=TopicCreator(
                config, image, controller_client, clock, is_single_node=True
            ),
            logs=self.logs,
            replicas=replicas,
            isr_manager=IsrManager(
                replicas,
                AlterPartitionManager(
                    NODE,
                    lambda: 0,
                    controller_api.alter_partition,
                ),
                NO_FOLLOWERS,
                lambda: 0,
                Pacer(lambda: 0.0),
                clock,
            ),
            leader_throttle=LeaderThrottle(NODE, config, clock),
            log_flusher=LogFlusher(workers),
            tokens=DelegationTokens(config, image, clock, workers),
            authorizer=RequestAuthorizer(new_authorizer(config)),
            certificates=ListenerCertificates(config),
            quotas=ClientQuotaManager(new_quotas(config), clock),
            fetch_sessions=FetchSessionCache(10, lambda: 1),
            producer_ids=ProducerIdManager(
                NODE, controller_client, lambda: image.brokers[NODE].epoch
            ),
            log_mover=LogMover(self.logs, replicas, workers),
            cleaner=LogCleaner(self.logs, clock, CLEANER),
            telemetry=telemetry,
            api_versions=ApiVersionManager(image, telemetry, is_single_node=True),
        )
        surroundings = CoordinatorContext(
            NODE,
            config,
            image,
            replicas,
            broker.log_flusher,
            workers,
            broker.pacer,
            clock,
            broker.topic_creator.create_internal,
        )
        broker.groups = groups = _Groups(surroundings, broker.authorizer)
        broker.txn_markers = markers = _Markers(
            replicas, groups, broker.log_flusher, broker.pacer, clock
        )
        broker.transactions = transactions = _Transactions(
            surroundings, broker.producer_ids, markers
        )
        groups.faults = markers.faults = transactions.faults = self._faults
        broker.txn_verification = TransactionVerifier(replicas, transactions, config, clock)
        self._background_tasks = BackgroundTasks(
            self.logs, broker.cleaner, broker.log_flusher, workers
        )
        replicas.leadership_listeners += [
            groups.leaderships_changed,
            transactions.leaderships_changed,
        ]
        self._metadata.listeners += [replicas.apply, groups.apply, transactions.apply]

    async def _register(self) -> None:
        record = BrokerRecord(
            broker_id=NODE,
            endpoints=tuple(self._config.advertised_endpoints({})),
            rack=None,
            timestamp_ms=self._clock.now_ms(),
            features=SUPPORTED_FEATURES,
            epoch=0,
        )
        await self._controller.write(
            lambda image: ControllerResult(
                register_broker(
                    image,
                    record,
                    login_secret=b"secret",
                    features=self._features,
                ),
                None,
            )
        )

    async def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        await self.broker.topic_creator.create(
            name, partitions=partitions, replication_factor=1, configs=dict(configs or {})
        )
