"""KIP-966: eligible leader replicas, as a broker reads them from the store."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.eligible_leader_replicas import EligibleLeaderReplicas
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Key, PartitionRecord, Put, Record
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from tests.support.cluster.memory_store import MemoryStore, MemoryStoreServer
from tests.support.cluster.metadata_changes import topic

KEY = TopicPartition("t", 0)
STATE = PartitionRecord("t", 0, 1, 5, (1,), 3, 0, eligible_leader_replicas=(2, 3))


class CountingStore(MemoryStore):
    """Counts what is read, and can be away."""

    is_away = False
    reads = 0

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        if self.is_away:
            raise KafkaStorageError("the store cannot be reached")
        self.reads += len(keys)
        return super().fetch(keys)


class Scenario:
    """A broker that knows the partition from the controller, without the replicas."""

    def __init__(self, workers: Workers, settings: dict[str, str]) -> None:
        server = MemoryStoreServer()
        store = server.open(CountingStore)
        assert isinstance(store, CountingStore)
        self.store = store
        self.store.commit([Put(topic("t")), Put(STATE)])
        self.image = ClusterImage()
        self.learn(STATE)
        config = BrokerConfig.from_properties(settings)
        self.replicas = EligibleLeaderReplicas(config, self.image, self.store, workers)

    def learn(self, state: PartitionRecord) -> None:
        self.image.apply([Put(replace(state, eligible_leader_replicas=()))])

    async def read(self) -> tuple[int, ...] | None:
        return (await self.replicas.read([KEY])).get(KEY)


def test_they_are_read_once_for_each_partition_epoch() -> None:
    async def script(scenario: Scenario) -> None:
        for _ in range(3):
            assert await scenario.read() == (2, 3)
        assert scenario.store.reads == 1
        state = replace(STATE, partition_epoch=1, eligible_leader_replicas=(3,))
        scenario.store.commit([Put(state)])
        scenario.learn(state)
        for _ in range(3):
            assert await scenario.read() == (3,)
        assert scenario.store.reads == 2

    run(script)


def test_they_are_unknown_while_the_store_is_away() -> None:
    async def script(scenario: Scenario) -> None:
        scenario.store.is_away = True
        assert await scenario.read() is None
        scenario.store.is_away = False
        assert await scenario.read() == (2, 3)

    run(script)


def test_a_partition_that_does_not_exist_has_none() -> None:
    async def script(scenario: Scenario) -> None:
        assert await scenario.replicas.read([TopicPartition("unknown", 0)]) == {}
        assert scenario.store.reads == 0

    run(script)


@pytest.mark.parametrize(
    ("in_sync", "replicas", "expected"),
    [(1, 3, True), (2, 3, False), (3, 3, False), (1, 1, False), (1, 2, True)],
)
def test_only_partitions_below_min_insync_replicas_are_read(
    in_sync: int, replicas: int, expected: bool
) -> None:
    async def script(scenario: Scenario) -> None:
        assert scenario.replicas.may_have("t", in_sync, replicas) is expected

    run(script)


def run(script: Callable[[Scenario], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        workers = Workers()
        try:
            await script(Scenario(workers, {"node.id": "1", "min.insync.replicas": "2"}))
        finally:
            workers.close()

    asyncio.run(inside())
