"""Producers and consumers of a simulated cluster, and what they know."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
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
from tests.sim.cluster.cluster_history import History
from tests.sim.cluster.cluster_network import CLIENT, SimNetwork

DATA = "data"
TIMEOUT_MS = 3000
GROUP_KEY, TRANSACTION_KEY = 0, 1
"""The types of coordinators."""

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
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


class Cluster(Protocol):
    """What clients use of the simulation."""

    network: SimNetwork
    broker_ids: tuple[int, ...]
    rng: Random
    history: History

    def note(self, text: str) -> None: ...

    def now_ms(self) -> int: ...

    def assignment_of(self, key: TopicPartition) -> tuple[int, tuple[int, ...]]:
        """Returns the leader and the replicas of a partition."""

    def coordinator_of(self, group: str) -> int:
        """Returns the group's coordinator, as the metadata store knows it; -1 if there is none."""


class Client:
    """Finds leaders and coordinators like every Kafka client: from any broker."""

    can_be_late = True
    """Whether requests may be handled after the client has given them up."""
    timeout_ms = TIMEOUT_MS
    """How long it waits for a response."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.is_stopping = False
        self.cluster = cluster
        self.rng = cluster.rng
        self._leaders: dict[TopicPartition, int] = {}
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._last_coordinator = -1

    async def run(self) -> None:
        """Works until `is_stopping` is set."""
        raise NotImplementedError

    async def request(
        self, target: int, message: Message, response_type: type[Message], version: int
    ) -> Any:
        return await self.cluster.network.request(
            CLIENT,
            self,
            target,
            message,
            response_type,
            self.timeout_ms,
            max_version=version,
            can_be_late=self.can_be_late,
        )

    def any_broker(self) -> int:
        return self.rng.choice(self.cluster.broker_ids)

    async def pause(self, max_ms: int = 200) -> None:
        await asyncio.sleep(self.rng.randrange(5, max_ms) / 1000)

    # --- leaders

    async def leader_of(self, key: TopicPartition) -> int:
        """Returns the leader; raises KafkaError if there is none."""
        if key not in self._leaders:
            topics = [MetadataRequestTopic(name=key.topic)]
            response = await self.request(
                self.any_broker(), MetadataRequest(topics), MetadataResponse, 9
            )
            for topic in response.topics:
                for state in topic.partitions:
                    partition = TopicPartition(topic.name, state.partition_index)
                    epoch = state.leader_epoch
                    if not state.error_code and epoch >= self._leader_epochs.get(partition, -1):
                        # A broker that was paused may name itself the leader.
                        self._leaders[partition] = state.leader_id
                        self._leader_epochs[partition] = epoch
        leader = self._leaders.get(key, -1)
        if leader < 0:
            self.forget(key)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
        return leader

    def forget(self, key: TopicPartition) -> None:
        self._leaders.pop(key, None)

    # --- coordinators

    async def call(
        self,
        key_type: int,
        key: str,
        message: Message,
        response_type: type[Message],
        version: int,
        code: Callable[[Any], int],
    ) -> tuple[Any, ErrorCode, int]:
        """Sends a request to a coordinator until its response is final.

        Returns the response, its error, and the number of requests without a response.
        """
        uncertain = 0
        while True:
            try:
                coordinator = await self._coordinator(key_type, key)
            except KafkaError:
                await self.pause()
                continue
            try:
                response = await self.request(coordinator, message, response_type, version)
                self._last_coordinator = coordinator
                error = ErrorCode(code(response))
            except KafkaError:
                uncertain += 1
                error = ErrorCode.NETWORK_EXCEPTION
            if error not in RETRIABLE:
                return response, error, uncertain
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._coordinators.pop((key_type, key), None)
            await self.pause()

    async def call_current(self, group: str, *request: Any) -> tuple[Any, ErrorCode, int]:
        """Like `call`, but ignores a coordinator that does not know that it was replaced.

        As in Kafka, it responds with the offsets that it knows.
        """
        while True:
            coordinator = self.cluster.coordinator_of(group)
            result = await self.call(GROUP_KEY, group, *request)
            if self._last_coordinator == coordinator:
                return result
            self._coordinators.pop((GROUP_KEY, group), None)
            await self.pause()

    async def _coordinator(self, key_type: int, key: str) -> int:
        coordinator = self._coordinators.get((key_type, key))
        if coordinator is None:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            response = await self.request(self.any_broker(), request, FindCoordinatorResponse, 4)
            result = response.coordinators[0]
            if result.error_code:
                raise KafkaError(ErrorCode(result.error_code), "no coordinator")
            coordinator = self._coordinators[key_type, key] = result.node_id
        return coordinator


class Producer(Client):
    """An idempotent producer: each of its records is in the log once, in order."""

    timeout_ms = 1000

    def __init__(self, cluster: Cluster, name: str, partitions: int) -> None:
        super().__init__(cluster, name)
        self._keys = [TopicPartition(DATA, number) for number in range(partitions)]
        self._sequences = dict.fromkeys(self._keys, 0)
        self.sent: dict[TopicPartition, list[bytes]] = {key: [] for key in self._keys}
        """Acknowledged values by partition, in their order."""

    async def run(self) -> None:
        producer_id = await self._producer_id()
        number = 0
        while not self.is_stopping:
            key = self.rng.choice(self._keys)
            count = self.rng.randrange(1, 4)
            values = [f"{self.name}-{number + index}".encode() for index in range(count)]
            number += count
            await self._produce(producer_id, key, values)
            await self.pause(160)

    async def _producer_id(self) -> int:
        while True:
            request = InitProducerIdRequest(None, 1000)
            try:
                response = await self.request(self.any_broker(), request, InitProducerIdResponse, 4)
            except KafkaError:
                await self.pause()
                continue
            if not response.error_code:
                producer_id: int = response.producer_id
                return producer_id
            await self.pause()

    async def _produce(self, producer_id: int, key: TopicPartition, values: list[bytes]) -> None:
        """Sends a batch until it is acknowledged."""
        batch = build_batch(
            [
                Record(index, self.cluster.now_ms(), None, value)
                for index, value in enumerate(values)
            ],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self._sequences[key],
        )
        while True:
            try:
                offset = await self._try(key, bytes(batch))
            except KafkaError as error:
                if error.code in _FATAL:
                    raise AssertionError(f"{self.name} to {key}: {error}") from error
                self.forget(key)
                await self.pause()
                continue
            break
        self._sequences[key] += len(values)
        self.sent[key] += values
        if offset is not None:
            self.cluster.history.acknowledge(key, offset, values)

    async def _try(self, key: TopicPartition, batch: bytes) -> int | None:
        """Returns the offset; None if only an earlier attempt knows it."""
        leader = await self.leader_of(key)
        data = PartitionProduceData(key.partition, memoryview(bytearray(batch)))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=2000,
            topic_data=[TopicProduceData(key.topic, partition_data=[data])],
        )
        response = await self.request(leader, request, ProduceResponse, _PRODUCE_VERSION)
        result = response.responses[0].partition_responses[0]
        if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return None
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), "refused")
        offset: int = result.base_offset
        return None if offset < 0 else offset


class Consumer(Client):
    """Reads partitions, sometimes again from the beginning: what it saw never changes."""

    isolation_level = 0
    timeout_ms = 1000

    def __init__(self, cluster: Cluster, name: str, keys: list[TopicPartition]) -> None:
        super().__init__(cluster, name)
        self._offsets = dict.fromkeys(keys, 0)

    async def run(self) -> None:
        while not self.is_stopping:
            key = self.rng.choice(list(self._offsets))
            if self.rng.random() < 0.02:
                self._offsets[key] = 0
            try:
                for offset, value in await self.poll(key):
                    self.cluster.history.observe("consumed", key, offset, value)
            except KafkaError:
                self.forget(key)
            await self.pause(300)

    def seek(self, key: TopicPartition, offset: int) -> None:
        self._offsets[key] = offset

    def position(self, key: TopicPartition) -> int:
        return self._offsets[key]

    async def poll(self, key: TopicPartition) -> list[tuple[int, bytes]]:
        """Returns the records after its position; raises KafkaError."""
        leader = await self.leader_of(key)
        position = self._offsets[key]
        requested = FetchPartition(
            key.partition, fetch_offset=position, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=self.isolation_level,
            topics=[FetchTopic(key.topic, partitions=[requested])],
        )
        response = await self.request(leader, request, FetchResponse, _FETCH_VERSION)
        result = response.responses[0].partitions[0]
        if result.error_code:
            error = ErrorCode(result.error_code)
            self.check_error(key, error)
            raise KafkaError(error, "refused")
        records, self._offsets[key] = self._records(key, position, result)
        return records

    def check_error(self, key: TopicPartition, error: ErrorCode) -> None:
        assert error not in _FATAL, f"{self.name} of {key}@{self.position(key)}: {error.name}"

    def _records(
        self, key: TopicPartition, position: int, result: FetchPartitionData
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Returns the records that a consumer returns to its user, and its next position."""
        data = bytes(result.records or b"")  # type: ignore[arg-type]
        limit = result.last_stable_offset if self.isolation_level else result.high_watermark
        waiting = sorted(
            result.aborted_transactions or [], key=lambda txn: txn.first_offset, reverse=True
        )
        aborted: set[int] = set()
        records: list[tuple[int, bytes]] = []
        for at, header in split(data):
            assert header.last_offset < limit, f"{self.name}: {key} was read beyond {limit}"
            while waiting and waiting[-1].first_offset <= header.last_offset:
                aborted.add(waiting.pop().producer_id)
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                for record in read_records(data, at, header):
                    if record.offset >= position and record.value is not None:
                        records.append((record.offset, bytes(record.value)))
            position = max(position, header.next_offset)
        return records, position
