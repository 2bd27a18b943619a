"""A whole broker on a simulated loop, disk and metadata store, with or without a network.

It is `app.App` with everything that it wires. Without a network, `SimulatedBroker.request` calls
the handlers; with one, requests are bytes on connections of a `FaultNetwork`. Work for threads runs
on the loop after a delay chosen by the seed, so that a run is reproducible::

    machine = Machine(seed=7)
    machine.run(lambda broker: broker.create_topic("orders", 1))      # starts and stops a broker
"""

import asyncio
import inspect
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

from penstock.broker.app import App
from penstock.broker.assembly import BrokerAssembly
from penstock.broker.broker import Broker
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.topic_config import TopicConfig, topic_config
from penstock.broker.errors import CloseConnectionError
from penstock.broker.handlers.table import HANDLERS
from penstock.broker.request import Request, Session
from penstock.cluster.store import MetadataStore
from penstock.controller.metadata import SecurityProtocol
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.server.limits import Limits
from penstock.net.server.socket_server import Address, Listener
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.records.batch import split, verify
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation
from tests.sim.txn_broker import SimClock
from tests.sim.txn_loop import Incarnation, SimLoop
from tests.support.cluster.memory_store import MemoryStoreServer
from tests.support.faults.fault_disk import FaultDisk, PowerFailure
from tests.support.faults.fault_network import FaultNetwork, NetworkLoop
from tests.support.faults.fault_store import FaultStore
from tests.support.faults.simulated_connection import SimulatedConnection
from tests.support.protocol.requests import produce_request
from tests.support.storage.crash_nodes import CrashMode

T = TypeVar("T")

LOG_DIRS = ("/a", "/b")
PORT = 9092
TICK_S = 1.0
"""How often background tasks run: rarely, because each time takes real time."""
MAX_JOB_MS = 8
"""How long a job of a worker thread takes at most, in simulated time."""
MAX_REQUEST_S = 300.0
"""How long a request may take, in simulated time, before it counts as hanging."""

SETTINGS = {
    "node.id": "1",
    "log.dirs": ",".join(LOG_DIRS),
    "metadata.log.dir": "/metadata",
    "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.retention.check.interval.ms": "2000",
    "log.cleaner.backoff.ms": "3000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.segment.delete.delay.ms": "1000",
    "log.index.size.max.bytes": "1200",
    "log.index.interval.bytes": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
}


PRODUCE_TIMEOUT_MS = 30_000
_CONNECTIONS = 3
"""How many connections the clients of a broker share."""


class RequestHangsError(AssertionError):
    """A request got no response."""


class _NoServer:
    """Stands in for the socket server: it listens nowhere."""

    def __init__(self) -> None:
        self.limits = Limits()

    async def bind(self, listeners: Sequence[Listener]) -> list[Address]:
        return [Address(listener.name, "127.0.0.1", PORT) for listener in listeners]

    def accept(self) -> None:
        """Does nothing: there are no connections."""

    async def close(self, grace_s: float) -> None:
        """Does nothing: there are no connections."""

    def limits_changed(self) -> None:
        """Does nothing: there are no connections."""


class SimulatedApp(App):
    """`App` over a simulated store and without sockets."""

    def __init__(self, config: BrokerConfig, machine: "Machine", loop: SimLoop) -> None:
        super().__init__(config, disk=machine.disk, clock=SimClock(loop))
        self._rng = Random(machine.rng.random())
        self._machine = machine

    def _open_store(self) -> MetadataStore:
        return self._machine.open_store()

    def _assemble(self, store: MetadataStore) -> BrokerAssembly:
        parts = super()._assemble(store)
        network = self._machine.network
        if network is None:
            parts.server = _NoServer()  # type: ignore[assignment]
        else:
            parts.server._files.is_warm = network.is_warm
        return parts

    def check_nothing_is_held(self) -> None:
        """Raises AssertionError if connections that are closed still hold something."""
        network, server = self._machine.network, self.parts.server
        assert network is not None
        assert not server.connections, f"{server.connections} are not closed"
        assert not network.open_connections, f"{network.open_connections} sockets were not closed"
        assert not server.admission.total, "connections are counted that are closed"
        assert not self._workers.memory.used, "memory of requests was not released"
        assert not server.backlog.count, "requests are counted that are dropped"


class SimulatedBroker:
    """A running broker, as a client sees it."""

    def __init__(self, app: SimulatedApp, machine: "Machine") -> None:
        self.app = app
        self.machine = machine
        self._session = Session(
            "PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", "simulated", lambda reason: None
        )
        self._connections: list[SimulatedConnection] = []

    @property
    def broker(self) -> Broker:
        return self.app.broker

    async def request(self, body: Message, version: int) -> Any:
        """Returns the response; raises what the handler raises, or RequestHangsError.

        On a network it raises NETWORK_EXCEPTION if the connection breaks.
        """
        if self.machine.network is not None:
            try:
                return await asyncio.wait_for(self._connect().request(body, version), MAX_REQUEST_S)
            except TimeoutError:
                raise RequestHangsError(f"no response to {body}") from None
        return await self._call_handler(body, version)

    def connect(self, *, is_spared: bool = False) -> SimulatedConnection:
        """Opens a connection; no fault hits one that is spared."""
        network, rng = self.machine.network, self.machine.rng
        assert network is not None
        if is_spared:
            return SimulatedConnection(network, is_spared=True)
        return SimulatedConnection(
            network,
            capacity=rng.choice((100, 3000, 65536)),
            read_delay_s=rng.choice((0.0, 0.001, 0.5)),
        )

    def _connect(self) -> SimulatedConnection:
        """Returns one of a few connections at random; opens it if it is broken."""
        rng = self.machine.rng
        self._connections = [
            connection for connection in self._connections if not connection.is_broken
        ]
        if len(self._connections) < _CONNECTIONS:
            self._connections.append(self.connect())
        return rng.choice(self._connections)

    def break_connection(self) -> None:
        """Closes a random connection, also if requests are in progress on it."""
        if self._connections:
            self.machine.rng.choice(self._connections).close()

    def disconnect(self) -> None:
        """Closes all connections."""
        for connection in self._connections:
            connection.close()

    def release_hangs(self) -> None:
        """Lets the calls of the disk that hang, and later ones, return."""
        assert self.machine.loop is not None
        self.machine.disk.stop_hanging()
        self.machine.loop.release_jobs()

    async def _call_handler(self, body: Message, version: int) -> Any:
        key = type(body).INFO.key
        assert key is not None
        handle = HANDLERS[ApiKey(key)].bind(self.broker)
        request = Request(self._session, ApiKey(key), version, 1, "simulated", 100)

        async def respond() -> Any:
            result: Any = handle(request, body)
            while inspect.isawaitable(result):
                result = await result
            return result

        try:
            return await asyncio.wait_for(respond(), MAX_REQUEST_S)
        except TimeoutError:
            raise RequestHangsError(f"no response to {body}") from None
        except CloseConnectionError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> int:
        """Returns the error code."""
        topic = CreatableTopic(
            name,
            partitions,
            1,
            configs=[CreatableTopicConfig(*config) for config in (configs or {}).items()],
        )
        response = await self.request(CreateTopicsRequest([topic], timeout_ms=5000), 7)
        code: int = response.topics[0].error_code
        return code

    async def produce(
        self,
        topic: str,
        records: bytes | bytearray,
        partition: int = 0,
        *,
        timeout_ms: int = PRODUCE_TIMEOUT_MS,
    ) -> Any:
        """Produces a batch with acks=all; returns the response for the partition."""
        body = produce_request(topic, None, partition)
        body.timeout_ms = timeout_ms
        body.topic_data[0].partition_data[0].records = memoryview(bytearray(records))
        response = await self.request(body, 9)
        return response.responses[0].partition_responses[0]

    async def fetch(self, key: TopicPartition, offset: int, *, max_wait_ms: int = 0) -> Any:
        """Returns the response for the partition; None if the response does not have it."""
        partition = FetchPartition(key.partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        body = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            topics=[FetchTopic(key.topic, partitions=[partition])],
        )
        response = await self.request(body, 12)
        return response.responses[0].partitions[0] if response.responses else None

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Returns the values of all records in a log, whatever the high watermark is."""
        return [record.value for record in self.records(topic, partition)]

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        log = self.broker.replicas.find(topic, partition).log
        return read_records_of(log)


def read_records_of(log: Log) -> list[Record]:
    """Returns the records in a log, without transaction markers."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        batches = log.read(offset, 1 << 20, FetchIsolation.LOG_END).records
        if batches is None:
            break
        data = batches.read()
        for position, header in split(data):
            verify(data, position, header)
            offset = header.last_offset + 1
            if not header.is_control:
                records += read_records(data, position, header)
    return records


class Machine:
    """A machine that outlives its brokers: one disk, one metadata store, one seed."""

    def __init__(
        self,
        seed: int = 0,
        settings: Mapping[str, str] | None = None,
        *,
        has_network: bool = False,
    ) -> None:
        self.rng = Random(seed)
        self.network: FaultNetwork | None = None
        """The sockets of the current run, on a machine with a network."""
        self._has_network = has_network
        self.loop: NetworkLoop | None = None
        """The loop of the current run."""
        self.disk = FaultDisk()
        self.server = MemoryStoreServer()
        self.store: FaultStore | None = None
        self.settings = {**SETTINGS, **(settings or {})}
        self.max_job_ms = MAX_JOB_MS
        self.segment_bytes = 2000
        self._now_s = 0.0

    def open_store(self) -> FaultStore:
        store = self.server.open(FaultStore)
        assert isinstance(store, FaultStore)
        self.store = store
        return store

    def run(self, work: "Callable[[SimulatedBroker], Coroutine[Any, Any, T]]") -> T:
        """Starts a broker, awaits `work`, and stops the broker cleanly."""
        return self._run(work, is_killed=False)

    def run_and_kill(self, work: "Callable[[SimulatedBroker], Coroutine[Any, Any, T]]") -> T:
        """Starts a broker, awaits `work`, and kills the broker: nothing of it runs any more."""
        return self._run(work, is_killed=True)

    def run_until_power_fails(
        self,
        work: "Callable[[SimulatedBroker], Coroutine[Any, Any, object]]",
        at_call: int,
        mode: CrashMode,
    ) -> bool:
        """Like `run_and_kill`, but the power fails at a call of the disk; returns whether it did.

        The disk then has what a power failure leaves.
        """
        self.disk.power_off_at = self.disk.calls + at_call
        try:
            self._run(work, is_killed=True)
        except PowerFailure:
            return True
        finally:
            self.disk = self.disk.after_power_failure(mode, self.rng)
        return False

    def _run(
        self, work: "Callable[[SimulatedBroker], Coroutine[Any, Any, T]]", *, is_killed: bool
    ) -> T:
        loop = NetworkLoop(Random(self.rng.random()), self.max_job_ms)
        loop._now = self._now_s
        disk = self.disk
        loop.may_hang = lambda: disk.may_hang
        self.loop = loop
        if self._has_network:
            self.network = FaultNetwork(loop, self.disk, Random(self.rng.random()))
        process = Incarnation("broker")
        self.disk.on_power_off = lambda: setattr(process, "alive", False)

        async def main() -> T:
            app = SimulatedApp(BrokerConfig.from_properties(self.settings), self, loop)
            await app.start()
            result = await work(SimulatedBroker(app, self))
            if is_killed:
                process.alive = False
            else:
                await app.stop()
                open_sockets = 0 if self.network is None else self.network.open_sockets
                assert not open_sockets, f"{open_sockets} sockets were not closed"
            return result

        with self._patches(), nullcontext() if self.network is None else self.network.patches():
            try:
                asyncio.set_event_loop(loop)
                task = process.context.run(loop.create_task, main())
                outcome = loop.run_until_complete(_outcome(task))
                if loop.failure is not None:
                    raise loop.failure
            except RuntimeError:
                if self.disk.is_powered_off:
                    raise PowerFailure from None
                if loop.failure is not None:
                    raise loop.failure from None
                raise
            finally:
                asyncio.set_event_loop(None)
                process.alive = False
                self._now_s = loop.time()
                self.disk.on_process_exit()
                if self.store is not None:
                    self.store.close()
                loop.jobs.abandon()
                loop.close_silently()
        return outcome

    @contextmanager
    def _patches(self) -> Iterator[None]:
        """Makes ids reproducible, and lets nothing sleep in real time."""

        def uuid4() -> uuid.UUID:
            return uuid.UUID(int=self.rng.getrandbits(128), version=4)

        def small_segments(config: BrokerConfig, values: Mapping[str, str]) -> TopicConfig:
            """Settings allow no segments below 1 MiB."""
            settings = topic_config(config, values)
            return replace(settings, log=replace(settings.log, segment_bytes=self.segment_bytes))

        with (
            patch("penstock.broker.app.topic_config", small_segments),
            patch("penstock.broker.assembly.topic_config", small_segments),
            patch("uuid.uuid4", uuid4),
            patch("penstock.storage.manager.log_dir.uuid4", uuid4),
            patch("penstock.storage.manager.log_move.uuid4", uuid4),
            patch("penstock.storage.manager.log_discovery.uuid4", uuid4),
            patch("penstock.storage.manager.dir_identity.uuid4", uuid4),
            patch("time.sleep", lambda seconds: None),
            patch("penstock.broker.replica.background_tasks._TICK_S", TICK_S),
        ):
            yield


async def _outcome(task: "asyncio.Task[T]") -> T:
    return await task
