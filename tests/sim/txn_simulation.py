"""A simulation of transactions: a broker and clients that crash, and a lossy network (P4).

The seed determines everything: `run_seed` runs a phase with faults and one without, and raises
`SimulationError` with all events when an invariant of `txn_checks` is violated.
"""

import asyncio
import logging
from collections.abc import Coroutine
from random import Random
from typing import Any

from penstock.coordinator.txn.metadata import TransactionMetadata, record_of
from penstock.coordinator.txn.records import encode_record
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from penstock.records.append_policy import AppendOrigin
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.sim.txn_actors import Actor, MemberActor, ProducerActor, ReaderActor, TransformerActor
from tests.sim.txn_broker import FOLDER, START_MS, Faults, SimBroker
from tests.sim.txn_checks import Checks
from tests.sim.txn_loop import Incarnation, SimLoop
from tests.sim.txn_members import MEMBERS
from tests.sim.txn_network import Network, Server
from tests.sim.txn_transforms import GROUP, INPUT, OUTPUT
from tests.support.cluster.memory_store import MemoryStoreServer
from tests.support.storage.crash_disk import CrashDisk, CrashMode

STORM_MS = 15_000
CALM_MS = 60_000
"""The time within which clients must finish after the faults."""
DATA = "data"
PARTITIONS = 3
INPUTS = 40
LAST_EPOCHS = "t0"
"""The transactional id whose epochs are nearly exhausted, in some seeds."""

_SMALL = {
    "internal.segment.bytes": "3000",
    "segment.index.bytes": "2000",
    "index.interval.bytes": "300",
    "file.delete.delay.ms": "800",
}
_COMPACT = {**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


class SimulationError(AssertionError):
    """The failure of a seed, with its events."""


class Simulation:
    """The clock, the random numbers, the broker and all clients."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.power = seed % 5 >= 3
        """Whether power cuts happen; `txn_checks` lists the invariants that hold then."""
        self.durable = seed % 5 == 3
        """Whether only flushed data is acknowledged."""
        # With slow flushes before each response, members would never keep their sessions.
        slowest = 20 if self.durable else self.random.choice((20, 20, 300))
        self.loop = SimLoop(self.random, slowest)
        self.loop.after_step = self._step
        self._transaction_version = self.random.choice((2, 2, 2, 2, 1, 0))
        self.faults_active = True
        self.notes: list[str] = []
        self.checks = Checks({(p, offset) for p in range(2) for offset in range(INPUTS)})
        self.faults = Faults(self.random)
        self.network = Network(self.loop, self.random)
        self.disk = CrashDisk()
        self.disk.make_directory(FOLDER)
        self.disk.make_durable()
        self.input_end = INPUTS
        self._store = MemoryStoreServer()
        self._operations = -1
        self._up: Server | None = None
        self._flushed: dict[TopicPartition, int] | None = None
        """After a power cut: the flushed offset of each log."""
        self._actors: list[Actor] = []

    @property
    def now_ms(self) -> int:
        return START_MS + round(self.loop.time() * 1000)

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        data = [TopicPartition(DATA, number) for number in range(PARTITIONS)]
        return [*data, *(TopicPartition(OUTPUT, number) for number in range(2))]

    def version_of(self, transactional_id: str) -> int:
        """The transaction version of the next producer of a transactional id, 1 or 2."""
        return 1 if self._transaction_version < 2 else self.random.choice((1, 2, 2))

    def note(self, text: str) -> None:
        self.notes.append(f"{self.loop.time():9.3f} {text}")

    # --- incarnations of the broker

    def start(self) -> None:
        """Starts a broker, which recovers the data on the disk."""
        incarnation = Incarnation("broker")
        self.disk.now_ms = self.now_ms
        broker = SimBroker(
            self.loop, self.disk, self._store, self.faults, self._transaction_version
        )
        self.loop.create_task(self._started(broker, incarnation), context=incarnation.context)

    async def _started(self, broker: SimBroker, incarnation: Incarnation) -> None:
        flushed = self._flushed
        broker.load()

        def check_logs() -> None:
            if flushed is None:
                self.checks.killed(broker.logs)
            else:
                self.checks.power_cut(broker.logs, flushed, durable=self.durable)

        await broker.start(check_logs)
        self._flushed = None
        self._up = self.network.server = Server(broker, incarnation)
        ends = {str(log.partition): log.log_end_offset for log in broker.logs}
        self.note(f"the broker is up: {ends}")

    def crash(self, *, power: bool) -> None:
        """Ends the broker; the next incarnation starts a little later."""
        server = self._up
        if server is None:
            return
        self.note("power cut" if power else "kill")
        self._up = self.network.server = None
        server.incarnation.alive = False
        flushed = {log.partition: log.recovery_point for log in server.broker.logs}
        server.broker.kill()
        for connection in server.ends:
            connection.reset()
        if power:
            mode = self.random.choice((CrashMode.TORN, CrashMode.DURABLE))
            self.disk = self.disk.image(mode, self.random)
            self._flushed = flushed
            for actor in self._actors:
                actor.power_cut(durable=self.durable)
        delay = self.random.randrange(5, 1_200) / 1000
        self.loop.call_later(delay, self.start, context=self.loop.outside)

    def _step(self) -> None:
        if self._up is not None and self.disk.operations != self._operations:
            self._operations = self.disk.operations
            try:
                self.checks.step(self._up.broker.logs)
            except AssertionError as error:
                self.loop.fail(error)

    async def up(self) -> SimBroker:
        while self._up is None:
            await asyncio.sleep(0.05)
        return self._up.broker

    async def in_broker(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._up is not None
        await self.loop.create_task(work, context=self._up.incarnation.context)

    # --- the scenario

    async def run(self) -> None:
        await self._prepare()
        self._start_faults()
        end = self.loop.time() + STORM_MS / 1000
        while self.loop.time() < end:
            await asyncio.sleep(self.random.randrange(100, 1_500) / 1000)
            self._disturb()
        await self._stop_faults()

    async def _prepare(self) -> None:
        self.start()
        broker = await self.up()
        flush = {"flush.ms": str(self.random.choice((300, 1_000, 4_000)))}
        if self.durable:
            flush["flush.messages"] = "1"
        for name, count in ((DATA, PARTITIONS), (INPUT, 2), (OUTPUT, 2)):
            await self.in_broker(broker.create_topic(name, count, {**_SMALL, **flush}))
        for name in (TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC):
            await self.in_broker(broker.create_topic(name, 2, {**_COMPACT, **flush}))
        await self.in_broker(self._fill(broker))
        if self.random.random() < 0.3:
            await self.in_broker(self._use_up_epochs(broker))
            self.crash(power=False)
            await self.up()

    async def _fill(self, broker: SimBroker) -> None:
        for number in range(2):
            replica = broker.broker.replicas.find(INPUT, number)
            for n in range(INPUTS):
                replica.append(build_batch([Record(0, self.now_ms, None, b"%d" % n)]))
            replica.log.flush()

    async def _use_up_epochs(self, broker: SimBroker) -> None:
        producer_id = await broker.broker.producer_ids.wait()
        epoch = 32_767 - self.random.randrange(2, 6)
        metadata = TransactionMetadata(
            LAST_EPOCHS, producer_id, 5_000, self.now_ms, producer_epoch=epoch
        )
        key, value = encode_record(record_of(metadata, self._transaction_version))
        partition = broker.broker.transactions.partition_for(LAST_EPOCHS)
        assert partition is not None
        replica = broker.broker.replicas.find(TRANSACTION_STATE_TOPIC, partition)
        batch = build_batch([Record(0, self.now_ms, key, value)])
        replica.append(batch, origin=AppendOrigin.COORDINATOR)

    def _start_faults(self) -> None:
        random = self.random
        self.network.loss = random.choice((0.0, 0.01, 0.04))
        self.network.max_delay_ms = random.choice((5, 60, 400))
        self.faults.append = random.choice((0.0, 0.03))
        self.faults.marker = random.choice((0.0, 0.1, 0.4))
        ids = random.randrange(1, 4)
        for number in range(random.randrange(2, 5)):
            self._actors.append(ProducerActor(self, f"p{number}", f"t{number % ids}"))
        if self.durable or not self.power:
            for number in range(random.randrange(2, 4)):
                loop = TransformerActor(self, f"l{number}", number % 2, stays=number < 2)
                self._actors.append(loop)
            for number in range(random.choice((0, 2, 3))):
                self._actors.append(MemberActor(self, f"m{number}"))
        self._actors.append(ReaderActor(self, "r0"))
        for actor in self._actors:
            actor.begin()

    def _disturb(self) -> None:
        chance = self.random.random()
        if chance < 0.3:
            self.crash(power=self.power and self.random.random() < 0.4)
        elif chance < 0.6:
            self.random.choice(self._actors).crash()

    async def _stop_faults(self) -> None:
        self.note("faults end")
        self.faults_active = False
        self.network.loss = self.faults.append = self.faults.marker = 0.0
        self.network.max_delay_ms = 5
        broker = await self.up()
        tasks = [actor.task for actor in self._actors if actor.task is not None]
        _, late = await asyncio.wait(tasks, timeout=CALM_MS / 1000)
        assert not late, f"never done: {[a.name for a in self._actors if a.task in late]}"
        # Transactions of crashed clients time out.
        await asyncio.sleep(8)
        await self._read_to_the_end(broker)
        kinds = {type(actor) for actor in self._actors}
        groups = [GROUP] if TransformerActor in kinds else []
        groups += [MEMBERS] if MemberActor in kinds else []
        ids = {actor.transactional_id for actor in self._actors if isinstance(actor, ProducerActor)}
        self.checks.finish(broker.broker, groups, ids if self.checks.losses else None)

    async def _read_to_the_end(self, broker: SimBroker) -> None:
        (reader,) = (actor.reader for actor in self._actors if isinstance(actor, ReaderActor))
        for partition in self.topic_partitions:
            log = broker.broker.replicas.find(*partition).log
            for _ in range(1_000):
                if reader.positions.get(partition, 0) >= log.last_stable_offset:
                    break
                await reader.poll(partition, 10_000)
            else:
                raise AssertionError(f"{partition} cannot be read to its end")


def run_seed(seed: int) -> Simulation:
    """Runs one seed; raises SimulationError when an invariant is violated."""
    simulation = Simulation(seed)
    loop = simulation.loop
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    failure: BaseException | None = None
    try:
        task = loop.create_task(simulation.run(), context=loop.outside)
        loop.run_until_complete(task)
    except (Exception, AssertionError) as error:  # noqa: BLE001 - raised with the notes below
        failure = error
    finally:
        logging.disable(disabled)
        failure = loop.failure or failure
        loop.close_silently()
    if failure is not None:
        raise SimulationError(describe(simulation, failure)) from failure
    return simulation


def describe(simulation: Simulation, failure: BaseException) -> str:
    """Returns the failure, the command that reproduces it, and the events before it."""
    notes = "\n".join(simulation.notes[-150:])
    chosen = f"{simulation.seed}:{simulation.seed + 1}"
    return (
        f"seed {simulation.seed}: {type(failure).__name__}: {failure}\n"
        f"again: PENSTOCK_SIM_SEEDS={chosen} pytest tests/sim/test_transactions.py -k despite\n"
        f"the last of {len(simulation.notes)} notes:\n{notes}"
    )
