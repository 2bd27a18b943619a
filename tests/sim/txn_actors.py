"""Actors that run clients, restart them after crashes, and stop when the faults end."""

import asyncio
from typing import TYPE_CHECKING

from penstock.core.ids import TopicPartition
from tests.sim.txn_clients import FencedError, Producer, Reader
from tests.sim.txn_members import MEMBERS, Member
from tests.sim.txn_transforms import GROUP, Transformer

if TYPE_CHECKING:
    from tests.sim.txn_simulation import Simulation


class Actor:
    """Runs one client after the other until the faults are over and its work is done."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.random = simulation.random
        self.task: asyncio.Task[None] | None = None
        self._client: asyncio.Task[None] | None = None
        self._client_count = 0

    def begin(self) -> None:
        self.task = self.simulation.loop.create_task(
            self._run(), context=self.simulation.loop.outside
        )

    def crash(self) -> None:
        """Kills the client at an arbitrary point."""
        if self._client is not None and self.simulation.faults_active:
            self.simulation.note(f"{self.name} crashes")
            self._client.cancel()

    def power_cut(self, *, durable: bool) -> None:
        """The broker lost unflushed data; `durable`: none of it was acknowledged."""
        if not durable:
            self.crash()

    async def _run(self) -> None:
        while not self._is_done():
            self._client_count += 1
            self._client = asyncio.create_task(
                self._run_client(f"{self.name}.{self._client_count}")
            )
            await asyncio.wait({self._client})
            if not self._client.cancelled():
                error = self._client.exception()
                if isinstance(error, FencedError):
                    self.simulation.note(f"{self.name}.{self._client_count} is over: {error}")
                elif error is not None:
                    self.simulation.loop.fail(error)
                    return
            await asyncio.sleep(self.random.randrange(10, 800) / 1000)

    def _is_done(self) -> bool:
        return not self.simulation.faults_active

    async def _run_client(self, name: str) -> None:
        raise NotImplementedError


class ProducerActor(Actor):
    """Writes transactions; other actors may use the same transactional id."""

    def __init__(self, simulation: "Simulation", name: str, transactional_id: str) -> None:
        super().__init__(simulation, name)
        self.transactional_id = transactional_id
        self._version = simulation.version_of(transactional_id)

    def power_cut(self, *, durable: bool) -> None:
        if not durable:
            self.transactional_id += "+"
        super().power_cut(durable=durable)

    async def _run_client(self, name: str) -> None:
        timeout_ms = self.random.choice((1_500, 3_000, 5_000))
        producer = Producer(self.simulation, name, self.transactional_id, self._version, timeout_ms)
        try:
            await producer.init()
            while self.simulation.faults_active:
                attempt = self.simulation.checks.begin(name)
                records = [self._some_records() for _ in range(self.random.randrange(1, 4))]
                await producer.transaction(attempt, records, commit=self.random.random() < 0.75)
        finally:
            producer.disconnect()

    def _some_records(self) -> dict[TopicPartition, list[str]]:
        partitions = self.random.sample(range(3), self.random.choice((1, 1, 2, 3)))
        return {
            TopicPartition("data", number): [""] * self.random.randrange(1, 4)
            for number in partitions
        }


class TransformerActor(Actor):
    """Processes one partition of the input. `stays`: until all of it is processed."""

    def __init__(self, simulation: "Simulation", name: str, source: int, *, stays: bool) -> None:
        super().__init__(simulation, name)
        self._source = source
        self._stays = stays
        self._transactional_id = f"{GROUP}-{source}"
        self._version = simulation.version_of(self._transactional_id)
        self._finished = False

    def _is_done(self) -> bool:
        return not self.simulation.faults_active and (self._finished or not self._stays)

    async def _run_client(self, name: str) -> None:
        timeout_ms = self.random.choice((1_500, 3_000, 5_000))
        transformer = self._transformer(name, timeout_ms)
        try:
            await transformer.init()
            while self._stays or self.simulation.faults_active:
                if not await transformer.cycle():
                    self._finished = True
                    return
                await transformer.pause(600)
        finally:
            transformer.disconnect()

    def _transformer(self, name: str, timeout_ms: int) -> Transformer:
        transformer = Transformer(
            self.simulation, name, self._transactional_id, self._version, timeout_ms
        )
        transformer.own([self._source])
        return transformer


class MemberActor(Actor):
    """Runs a group member until the group has processed all of the input."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation, name)
        self._transactional_id = f"{MEMBERS}-{name}"
        self._version = simulation.version_of(self._transactional_id)

    def _is_done(self) -> bool:
        return not self.simulation.faults_active and self.simulation.checks.are_done(MEMBERS)

    async def _run_client(self, name: str) -> None:
        timeout_ms = self.random.choice((1_500, 3_000, 5_000))
        member = Member(self.simulation, name, self._transactional_id, self._version, timeout_ms)
        try:
            await member.init()
            while not self._is_done():
                await member.cycle()
                await member.pause(600)
        finally:
            member.disconnect()


class ReaderActor(Actor):
    """Reads all partitions continuously."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation, name)
        self.reader = Reader(simulation, name)

    def power_cut(self, *, durable: bool) -> None:
        self.reader.positions.clear()

    def crash(self) -> None:
        """Restarts the reader: it must read the same records again."""
        self.reader.positions.clear()

    async def _run_client(self, name: str) -> None:
        while self.simulation.faults_active:
            partition = self.random.choice(self.simulation.topic_partitions)
            if partition in self.simulation.checks.followers:
                await self.reader.poll(partition, self.random.choice((100, 500, 5_000)))
            await asyncio.sleep(self.random.randrange(20, 400) / 1000)
