"""Who uses the clients: actors live through crashes of their clients, and stop with the faults."""

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
        self._lives = 0

    def begin(self) -> None:
        self.task = self.simulation.loop.create_task(
            self._run(), context=self.simulation.loop.outside
        )

    def crash(self) -> None:
        """Its client is gone in the middle of whatever it did."""
        if self._client is not None and self.simulation.storming:
            self.simulation.note(f"{self.name} crashes")
            self._client.cancel()

    def power_cut(self, *, durable: bool) -> None:
        """The broker has lost what was not flushed: if that is all it told, nobody notices."""
        if not durable:
            self.crash()

    async def _run(self) -> None:
        while not self._is_done():
            self._lives += 1
            self._client = asyncio.create_task(self._live(f"{self.name}.{self._lives}"))
            await asyncio.wait({self._client})
            if not self._client.cancelled():
                error = self._client.exception()
                if isinstance(error, FencedError):
                    self.simulation.note(f"{self.name}.{self._lives} is over: {error}")
                elif error is not None:
                    self.simulation.loop.fail(error)
                    return
            await asyncio.sleep(self.random.randrange(10, 800) / 1000)

    def _is_done(self) -> bool:
        return not self.simulation.storming

    async def _live(self, name: str) -> None:
        raise NotImplementedError


class ProducerActor(Actor):
    """Writes transactions; others may do so under the same transactional id."""

    def __init__(self, simulation: "Simulation", name: str, transactional_id: str) -> None:
        super().__init__(simulation, name)
        self.transactional_id = transactional_id
        self._version = simulation.version_of(transactional_id)

    def power_cut(self, *, durable: bool) -> None:
        if not durable:
            self.transactional_id += "+"
        super().power_cut(durable=durable)

    async def _live(self, name: str) -> None:
        timeout_ms = self.random.choice((1_500, 3_000, 5_000))
        producer = Producer(self.simulation, name, self.transactional_id, self._version, timeout_ms)
        try:
            await producer.init()
            while self.simulation.storming:
                attempt = self.simulation.checks.begin(name)
                records = [self._some_records() for _ in range(self.random.randrange(1, 4))]
                await producer.transaction(attempt, records, commit=self.random.random() < 0.75)
        finally:
            producer.hang_up()

    def _some_records(self) -> dict[TopicPartition, list[str]]:
        partitions = self.random.sample(range(3), self.random.choice((1, 1, 2, 3)))
        return {
            TopicPartition("data", number): [""] * self.random.randrange(1, 4)
            for number in partitions
        }


class TransformerActor(Actor):
    """Runs a loop over one partition of the input. `stays`: until all of it is dealt with."""

    def __init__(self, simulation: "Simulation", name: str, source: int, *, stays: bool) -> None:
        super().__init__(simulation, name)
        self._source = source
        self._stays = stays
        self._transactional_id = f"{GROUP}-{source}"
        self._version = simulation.version_of(self._transactional_id)
        self._finished = False

    def _is_done(self) -> bool:
        return not self.simulation.storming and (self._finished or not self._stays)

    async def _live(self, name: str) -> None:
        timeout_ms = self.random.choice((1_500, 3_000, 5_000))
        transformer = self._transformer(name, timeout_ms)
        try:
            await transformer.init()
            while self._stays or self.simulation.storming:
                if not await transformer.cycle():
                    self._finished = True
                    return
                await transformer.pause(600)
        finally:
            transformer.hang_up()

    def _transformer(self, name: str, timeout_ms: int) -> Transformer:
        transformer = Transformer(
            self.simulation, name, self._transactional_id, self._version, timeout_ms
        )
        transformer.own([self._source])
        return transformer


class MemberActor(Actor):
    """Runs a loop that is a member of a group, until the group has dealt with all of the input."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation, name)
        self._transactional_id = f"{MEMBERS}-{name}"
        self._version = simulation.version_of(self._transactional_id)

    def _is_done(self) -> bool:
        return not self.simulation.storming and self.simulation.checks.are_done(MEMBERS)

    async def _live(self, name: str) -> None:
        timeout_ms = self.random.choice((1_500, 3_000, 5_000))
        member = Member(self.simulation, name, self._transactional_id, self._version, timeout_ms)
        try:
            await member.init()
            while not self._is_done():
                await member.cycle()
                await member.pause(600)
        finally:
            member.hang_up()


class ReaderActor(Actor):
    """Reads everything, all the time."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation, name)
        self.reader = Reader(simulation, name)

    def power_cut(self, *, durable: bool) -> None:
        self.reader.positions.clear()

    def crash(self) -> None:
        """It starts over: what it read before it must read again."""
        self.reader.positions.clear()

    async def _live(self, name: str) -> None:
        while self.simulation.storming:
            partition = self.random.choice(self.simulation.topic_partitions)
            if partition in self.simulation.checks.followers:
                await self.reader.poll(partition, self.random.choice((100, 500, 5_000)))
            await asyncio.sleep(self.random.randrange(20, 400) / 1000)
