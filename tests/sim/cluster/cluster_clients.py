"""Producers and consumers of a simulated cluster, and what they know."""

import asyncio
from random import Random
from typing import Any, Protocol

from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import Message
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.batch import split
from penstock.records.build import build_batch
from penstock.records.read import read_records
from penstock.records.record import Record
from tests.sim.cluster.cluster_network import CLIENT, SimNetwork

TOPIC = "data"
TIMEOUT_MS = 3000

_PRODUCE_VERSION = 9
_FETCH_VERSION = 12
_FATAL = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
)
"""Errors that show a loss: nothing that happens to a cluster may cause them."""


class Cluster(Protocol):
    """What clients use of the simulation."""

    network: SimNetwork
    broker_ids: tuple[int, ...]
    rng: Random
    acknowledged: dict[tuple[int, int], bytes]
    """The acknowledged records, by partition and offset."""
    consumed: dict[tuple[int, int], bytes]
    """The records that consumers have read, by partition and offset."""

    def note(self, text: str) -> None: ...


class Client:
    """Finds leaders like every Kafka client: from any broker's metadata."""

    def __init__(self, cluster: Cluster) -> None:
        self.is_stopping = False
        self._cluster = cluster
        self._leaders: dict[int, int] = {}
        self._leader_epochs: dict[int, int] = {}

    async def _request(
        self, target: int, message: Message, response_type: type[Message], version: int
    ) -> Any:
        return await self._cluster.network.request(
            CLIENT, self, target, message, response_type, TIMEOUT_MS, max_version=version
        )

    async def run(self) -> None:
        """Works until `is_stopping` is set."""
        raise NotImplementedError

    async def leader_of(self, partition: int) -> int | None:
        if partition not in self._leaders:
            target = self._cluster.rng.choice(self._cluster.broker_ids)
            topics = [MetadataRequestTopic(name=TOPIC)]
            response = await self._request(target, MetadataRequest(topics), MetadataResponse, 9)
            for topic in response.topics:
                for state in topic.partitions:
                    number, epoch = state.partition_index, state.leader_epoch
                    if not state.error_code and epoch >= self._leader_epochs.get(number, -1):
                        # A broker that was paused may name itself the leader.
                        self._leaders[number] = state.leader_id
                        self._leader_epochs[number] = epoch
        return self._leaders.get(partition)

    def forget(self, partition: int) -> None:
        self._leaders.pop(partition, None)


class Producer(Client):
    """An idempotent producer: each of its records is in the log once, in order."""

    def __init__(self, cluster: Cluster, name: str, partitions: int) -> None:
        super().__init__(cluster)
        self._name = name
        self._partitions = partitions
        self._sequences = dict.fromkeys(range(partitions), 0)
        self.sent: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        """Acknowledged values by partition, in their order."""

    async def run(self) -> None:
        producer_id = await self._producer_id()
        number = 0
        while not self.is_stopping:
            partition = self._cluster.rng.randrange(self._partitions)
            count = self._cluster.rng.randrange(1, 4)
            values = [f"{self._name}-{number + index}".encode() for index in range(count)]
            number += count
            await self._produce(producer_id, partition, values)
            await asyncio.sleep(self._cluster.rng.randrange(5, 120) / 1000)

    async def _producer_id(self) -> int:
        while True:
            target = self._cluster.rng.choice(self._cluster.broker_ids)
            request = InitProducerIdRequest(None, 1000)
            try:
                response = await self._request(target, request, InitProducerIdResponse, 4)
            except KafkaError:
                await asyncio.sleep(0.1)
                continue
            if not response.error_code:
                producer_id: int = response.producer_id
                return producer_id
            await asyncio.sleep(0.1)

    async def _produce(self, producer_id: int, partition: int, values: list[bytes]) -> None:
        """Sends a batch until it is acknowledged."""
        batch = build_batch(
            [Record(index, 1_700_000_000_000, None, value) for index, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self._sequences[partition],
        )
        while True:
            try:
                offset = await self._try(partition, bytes(batch))
            except KafkaError as error:
                if error.code in _FATAL:
                    raise AssertionError(f"{self._name} to {partition}: {error}") from error
                self.forget(partition)
                await asyncio.sleep(self._cluster.rng.randrange(20, 200) / 1000)
                continue
            break
        self._sequences[partition] += len(values)
        self.sent[partition] += values
        if offset is not None:
            for index, value in enumerate(values):
                key = (partition, offset + index)
                previous = self._cluster.acknowledged.setdefault(key, value)
                assert previous == value, f"{key} was acknowledged for {previous!r} and {value!r}"

    async def _try(self, partition: int, batch: bytes) -> int | None:
        """Returns the offset; None if only an earlier attempt knows it."""
        leader = await self.leader_of(partition)
        if leader is None or leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
        data = PartitionProduceData(partition, memoryview(bytearray(batch)))
        request = ProduceRequest(
            acks=-1, timeout_ms=2000, topic_data=[TopicProduceData(TOPIC, partition_data=[data])]
        )
        response = await self._request(leader, request, ProduceResponse, _PRODUCE_VERSION)
        result = response.responses[0].partition_responses[0]
        if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return None
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), "refused")
        offset: int = result.base_offset
        return None if offset < 0 else offset


class Consumer(Client):
    """Reads all partitions, sometimes again from the beginning: what it saw never changes."""

    def __init__(self, cluster: Cluster, partitions: int) -> None:
        super().__init__(cluster)
        self._offsets = dict.fromkeys(range(partitions), 0)

    async def run(self) -> None:
        rng = self._cluster.rng
        while not self.is_stopping:
            partition = rng.choice(list(self._offsets))
            if rng.random() < 0.02:
                self._offsets[partition] = 0
            try:
                await self._fetch(partition)
            except KafkaError as error:
                if error.code in _FATAL:
                    raise AssertionError(f"a consumer of {partition}: {error}") from error
                self.forget(partition)
            await asyncio.sleep(rng.randrange(5, 150) / 1000)

    async def _fetch(self, partition: int) -> None:
        leader = await self.leader_of(partition)
        if leader is None or leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
        offset = self._offsets[partition]
        requested = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchTopic(TOPIC, partitions=[requested])]
        )
        response = await self._request(leader, request, FetchResponse, _FETCH_VERSION)
        result = response.responses[0].partitions[0]
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), "refused")
        data = bytes(result.records or b"")
        for position, header in split(data):
            if header.last_offset >= result.high_watermark:
                raise AssertionError(f"{partition}: records above the high watermark were sent")
            for record in read_records(data, position, header):
                if record.offset >= offset and record.value is not None:
                    key = (partition, record.offset)
                    seen = self._cluster.consumed.setdefault(key, bytes(record.value))
                    assert seen == record.value, f"{key} was {seen!r}, now it is {record.value!r}"
            self._offsets[partition] = header.last_offset + 1
