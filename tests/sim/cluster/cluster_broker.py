"""A broker of a simulated cluster: `App` without sockets, on a disk that outlives its processes."""

from collections.abc import Callable, Sequence
from random import Random

from penstock.broker.app import App
from penstock.broker.assembly import BrokerAssembly
from penstock.broker.config.broker_config import BrokerConfig
from penstock.cluster.store import MetadataStore
from penstock.net.server.limits import Limits
from penstock.net.server.socket_server import Address, Listener
from tests.sim.cluster.cluster_store import SimSession
from tests.sim.txn_broker import SimClock
from tests.sim.txn_loop import Incarnation, SimLoop
from tests.support.storage.crash_disk import CrashDisk

SETTINGS = {
    "log.dirs": "/data",
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


class SimApp(App):
    """`App` over a simulated session and without sockets."""

    def __init__(
        self, config: BrokerConfig, disk: CrashDisk, loop: SimLoop, session: SimSession
    ) -> None:
        super().__init__(config, disk=disk, clock=SimClock(loop))
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
        note: Callable[[str], None],
    ) -> None:
        self.broker_id = broker_id
        self.disk = disk
        self.session = session
        self.process = process
        self.is_up = False
        """Whether it has started."""
        self._note = note
        config = {
            **SETTINGS,
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://10.0.0.{broker_id}:9092",
        }
        self.app = SimApp(BrokerConfig.from_properties(config), disk, loop, session)

    def note(self, text: str) -> None:
        self._note(f"broker {self.broker_id}: {text}")

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
