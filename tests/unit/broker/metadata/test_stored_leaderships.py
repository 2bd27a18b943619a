"""C1: a leader with too few replicas in sync learns from the store whether it was replaced."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.broker.metadata.stored_leaderships import EXPIRY_MS, MAX_READS, StoredLeaderships
from penstock.broker.workers import Workers
from penstock.controller.metadata import Key, PartitionRecord, Put, Record
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from tests.support.cluster.memory_store import MemoryStore, MemoryStoreServer
from tests.support.cluster.metadata_changes import topic

KEY = TopicPartition("t", 0)
STATE = PartitionRecord("t", 0, 1, 5, (1,), 3, 0)


class FallibleStore(MemoryStore):
    """Counts what is read, and can be away."""

    is_away = False
    reads = 0

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        self.reads += 1
        if self.is_away:
            raise KafkaStorageError("the store cannot be reached")
        return super().fetch(keys)


class Scenario:
    """Broker 1, which leads `KEY` in epoch 5."""

    def __init__(self, workers: Workers) -> None:
        store = MemoryStoreServer().open(FallibleStore)
        assert isinstance(store, FallibleStore)
        self.store = store
        self.store.commit([Put(topic("t")), Put(STATE)])
        self.leaderships = StoredLeaderships(1, self.store, workers)

    def confirm(self, offset: int = 9, *, epoch: int = 5, now_ms: int = 0) -> bool:
        return self.leaderships.confirm(KEY, epoch, offset, now_ms)

    async def confirm_again(self, **options: Any) -> bool:
        """Returns the outcome of the retry after the store was read."""
        assert not self.confirm(**options), "nothing is known before the store is read"
        await asyncio.gather(*(read.task for read in self.leaderships._reads.values()))
        return self.confirm(**options)


def run(script: Callable[[Scenario], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        workers = Workers()
        try:
            await script(Scenario(workers))
        finally:
            workers.close()

    asyncio.run(inside())


def test_a_leader_is_confirmed_once() -> None:
    async def script(scenario: Scenario) -> None:
        assert await scenario.confirm_again()
        assert await scenario.confirm_again(), "the next request needs another read"
        assert scenario.store.reads == 2

    run(script)


def test_a_leader_that_was_replaced_is_not() -> None:
    async def script(scenario: Scenario) -> None:
        state = replace(STATE, leader=2, leader_epoch=6, partition_epoch=1)
        scenario.store.commit([Put(state)])
        assert not await scenario.confirm_again()

    run(script)


def test_a_leader_of_an_earlier_epoch_is_not() -> None:
    async def script(scenario: Scenario) -> None:
        assert not await scenario.confirm_again(epoch=4)

    run(script)


def test_nobody_is_confirmed_without_the_store() -> None:
    async def script(scenario: Scenario) -> None:
        scenario.store.is_away = True
        assert not await scenario.confirm_again()
        scenario.store.is_away = False
        assert await scenario.confirm_again()

    run(script)


def test_an_old_result_is_not_used() -> None:
    async def script(scenario: Scenario) -> None:
        assert not scenario.confirm()
        assert await scenario.confirm_again(now_ms=EXPIRY_MS + 1)
        assert scenario.store.reads == 2

    run(script)


def test_the_number_of_reads_is_limited() -> None:
    async def script(scenario: Scenario) -> None:
        for offset in range(2 * MAX_READS):
            assert not scenario.confirm(offset)
        assert len(scenario.leaderships._reads) == MAX_READS
        await asyncio.gather(*(read.task for read in scenario.leaderships._reads.values()))
        assert scenario.store.reads == MAX_READS
        assert not scenario.confirm(1000)
        assert await scenario.confirm_again(offset=1001)

    run(script)
