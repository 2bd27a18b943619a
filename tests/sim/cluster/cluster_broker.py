"""A broker of a simulated cluster: `App` without sockets, on a disk that outlives its processes."""

from collections.abc import Mapping, Sequence
from random import Random

from penstock.broker.app import App
from penstock.broker.assembly import BrokerAssembly
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.handlers.table import HANDLERS, Handler
from penstock.cluster.store import MetadataStore
from penstock.core.ids import TimestampMs
from penstock.net.server.limits import Limits
from penstock.net.server.socket_server import Address, Listener
from penstock.protocol.api_key import ApiKey
from penstock.storage.log.log import Log
from tests.sim.cluster.cluster_store import SimSession
from tests.sim.txn_broker import SimClock
from tests.sim.txn_loop import Incarnation, SimLoop
from tests.support.storage.crash_disk import CrashDisk

LOG_DIRS = ("/data1", "/data2")
SESSION_SLOTS = "max.incremental.fetch.session.cache.slots"
SETTINGS = {
    "zookeeper.connect": "simulated:2181",
    "log.dirs": ",".join(LOG_DIRS),
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "request.timeout.ms": "2000",
    "replica.socket.timeout.ms": "2000",
    "controller.socket.timeout.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "300",
    "replica.fetch.backoff.ms": "200",
    "controlled.shutdown.retry.backoff.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.cleaner.enable": "false",
    "log.index.size.max.bytes": "4096",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "700",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
    "auto.create.topics.enable": "false",
    "leader.imbalance.check.interval.seconds": "5",
}


class NoServer:
    """Stands in for the socket server: requests come from a `SimNetwork`."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.is_accepting = False

    async def bind(self, listeners: Sequence[Listener]) -> list[Address]:
        return [Address(listener.name, "", 9092) for listener in listeners]

    def accept(self) -> None:
        self.is_accepting = True

    async def close(self, grace_s: float) -> None:
        self.is_accepting = False

    def limits_changed(self) -> None:
        """Does nothing: there are no connections."""


class WallClock(SimClock):
    """A clock that is wrong: its time of day is `offset_ms` ahead."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.offset_ms = 0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(super().now_ms() + self.offset_ms)


class SimApp(App):
    """`App` over a simulated session and without sockets."""

    def __init__(
        self, config: BrokerConfig, disk: CrashDisk, clock: WallClock, session: SimSession
    ) -> None:
        super().__init__(config, disk=disk, clock=clock)
        self._rng = Random(config.int("node.id"))
        self._session = session
        self.no_server = NoServer()

    def _open_store(self) -> MetadataStore:
        return self._session

    def _assemble(self, store: MetadataStore) -> BrokerAssembly:
        parts = super()._assemble(store)
        parts.server = self.no_server  # type: ignore[assignment]
        return parts


class SimBroker:
    """One run of a broker."""

    def __init__(
        self,
        broker_id: int,
        disk: CrashDisk,
        loop: SimLoop,
        session: SimSession,
        process: Incarnation,
        clock_offset_ms: int,
        settings: Mapping[str, str],
    ) -> None:
        self.broker_id = broker_id
        self.disk = disk
        self.session = session
        self.process = process
        self.is_up = False
        """Whether it has started."""
        self.is_stopping = False
        self.followed: dict[Log, int] = {}
        """Up to which offset the committed records of its logs have been compared."""
        self.clock = WallClock(loop)
        self.clock.offset_ms = clock_offset_ms
        self._handlers: dict[ApiKey, Handler] = {}
        config = {
            **SETTINGS,
            **settings,
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://10.0.0.{broker_id}:9092",
        }
        self.app = SimApp(BrokerConfig.from_properties(config), disk, self.clock, session)

    @property
    def is_controller(self) -> bool:
        return self.is_up and self.app._controller.active is not None

    def handler(self, key: ApiKey) -> Handler:
        """Returns the handler of an API."""
        handler = self._handlers.get(key)
        if handler is None:
            handler = self._handlers[key] = HANDLERS[key].bind(self.app.broker)
        return handler

    async def start(self) -> None:
        await self.app.start()
        self.is_up = True

    def kill(self) -> None:
        """Ends the process: the kernel releases files and locks, and keeps written data."""
        self.process.alive = False
        self.is_up = False
        for log_dir in self.app._logs.dirs:
            for log in log_dir.logs.values():
                log.local.close_handlers()
            if log_dir._lock is not None:
                log_dir._lock.release()
