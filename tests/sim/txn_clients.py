"""Clients of the simulation: producers of both generations, and readers.

They follow Kafka's own clients where it matters: which errors are retried, which abort the
transaction, which end the producer, and how a producer continues after each.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
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
from tests.sim.txn_followers import Attempt
from tests.sim.txn_network import Connection

if TYPE_CHECKING:
    from tests.sim.txn_simulation import Simulation

R = TypeVar("R", bound=Message)
REQUEST_TIMEOUT_MS = 900
_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
_ABORTABLE = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class FencedError(Exception):
    """The producer is fenced by another one, or its transaction timed out."""


class AbortableError(Exception):
    """The transaction must be aborted; the producer can continue."""


class NoResponseError(Exception):
    """The request may or may not have been served."""


class Client:
    """Sends requests on a connection, and opens another one when that breaks."""

    def __init__(self, simulation: "Simulation", name: str, *, late: bool) -> None:
        self.simulation = simulation
        self.name = name
        self.random = simulation.random
        self._late = late
        self._connection: Connection | None = None

    async def request(
        self,
        request: Message,
        version: int,
        response: type[R],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> R:
        connection = self._connection
        if connection is None:
            connection = Connection(self.simulation.network, self.name, late=self._late)
            self._connection = connection
        try:
            return await connection.request(request, version, response, timeout_ms)
        except (TimeoutError, ConnectionError):
            self.disconnect()
            raise NoResponseError(type(request).__name__) from None

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def pause(self, max_ms: int = 150) -> None:
        await asyncio.sleep(self.random.randrange(10, max_ms) / 1000)

    async def request_until_final(
        self,
        request: Message,
        version: int,
        response_type: type[R],
        code: Callable[[R], int],
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> tuple[R, ErrorCode, int]:
        """Sends the request until its response is not retriable.

        Returns the response, its error, and the number of attempts without a response.
        """
        uncertain = 0
        while True:
            try:
                response = await self.request(request, version, response_type, timeout_ms)
            except NoResponseError:
                uncertain += 1
                await self.pause()
                continue
            error = ErrorCode(code(response))
            if error not in _RETRIABLE:
                self.simulation.note(f"{self.name}: {_brief(request)} v{version} -> {error.name}")
                return response, error, uncertain
            await self.pause()


def _brief(request: Message) -> str:
    match request:
        case EndTxnRequest():
            how = "commit" if request.committed else "abort"
            return f"EndTxn {how} {request.producer_id}/{request.producer_epoch}"
        case InitProducerIdRequest():
            return f"InitProducerId {request.transactional_id} {request.producer_id}"
    return type(request).__name__.removesuffix("Request")


class Producer(Client):
    """A transactional producer, of transaction version 1 or 2."""

    def __init__(
        self,
        simulation: "Simulation",
        name: str,
        transactional_id: str,
        version: int,
        timeout_ms: int,
    ) -> None:
        super().__init__(simulation, name, late=version == 2)
        self.transactional_id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    # --- its identity

    async def init(self) -> None:
        """Becomes the producer of its transactional id, or requests its next epoch (KIP-360)."""
        request = InitProducerIdRequest(
            self.transactional_id, self.timeout_ms, self.producer_id, self.epoch
        )
        version = 5 if self.version == 2 else 4
        response, error, _ = await self.request_until_final(
            request, version, InitProducerIdResponse, lambda r: r.error_code
        )
        if error:
            self._must_be(error, _FENCED)
            raise FencedError(error.name)
        if self.producer_id == response.producer_id:
            assert response.producer_epoch > self.epoch, (
                f"{self.name} has {self.epoch}, got {response}"
            )
        self._is_now(response.producer_id, response.producer_epoch)

    def _is_now(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.simulation.checks.received_producer_id(self.name, producer_id, epoch)
        self.simulation.note(f"{self.name} is {producer_id}/{epoch}")
        self._sequences.clear()

    def _must_be(self, error: ErrorCode, allowed: frozenset[ErrorCode]) -> None:
        assert error in allowed, f"{self.name} received {error.name}"

    # --- a transaction

    async def transaction(
        self, attempt: Attempt, records: list[dict[TopicPartition, list[str]]], *, commit: bool
    ) -> bool:
        """Sends records, one request at a time; returns whether they were committed."""
        self.simulation.note(f"{self.name} begins {attempt.tag} as {self.producer_id}/{self.epoch}")
        self._added.clear()
        try:
            if self.version == 2 and self.random.random() < 0.3:
                await self._produce_together(attempt, records)
            else:
                for record in records:
                    await self.produce(attempt, record)
                    await self.wait_a_little()
            await self.before_end(attempt)
            await self.wait_a_little()
        except AbortableError as error:
            self.simulation.note(f"{self.name} aborts {attempt.tag}: {error}")
            await self.end(attempt, commit=False)
            if self.version == 1:
                await self.init()
            return False
        await self.end(attempt, commit=commit)
        return commit

    async def wait_a_little(self) -> None:
        """Waits, sometimes longer than the transaction timeout."""
        if self.simulation.faults_active and self.random.random() < 0.05:
            self.simulation.note(f"{self.name} hangs")
            longest = self.random.choice((3_000, 3 * self.timeout_ms // 2))
            await asyncio.sleep(self.random.randrange(1_000, longest) / 1000)
        elif self.random.random() < 0.5:
            await self.pause(300)

    async def before_end(self, attempt: Attempt) -> None:
        """Sends further requests of the transaction; a hook for subclasses."""

    async def _produce_together(
        self, attempt: Attempt, records: list[dict[TopicPartition, list[str]]]
    ) -> None:
        """Sends all batches without waiting for responses, and retries failures in any order.

        For version 1 that would not do, in Kafka neither: in a partition that does not know the
        producer, its second batch is taken for its first.
        """
        sends = [self.produce(attempt, record) for record in records]
        for result in await asyncio.gather(*sends, return_exceptions=True):
            if result is not None:
                raise result

    async def produce(self, attempt: Attempt, records: dict[TopicPartition, list[str]]) -> None:
        """Sends one batch to each of these partitions until all are acknowledged."""
        if self.version == 1:
            await self._add_partitions(set(records) - self._added)
        batches: dict[TopicPartition, tuple[bytes, list[bytes]]] = {}
        for partition, sources in records.items():
            number = attempt.sent.get(partition, 0)
            values = [
                f"{attempt.tag}|{number + n}|{source}".encode() for n, source in enumerate(sources)
            ]
            attempt.sent[partition] = number + len(values)
            batches[partition] = (self._batch(partition, values), values)
        tries = 0
        while batches:
            try:
                responses = await self._send(batches)
            except NoResponseError:
                tries += 1
                if tries > 20:
                    raise AbortableError("Produce got no response") from None
                await self.pause()
                continue
            refused = ErrorCode.NONE
            for partition, (error, offset) in responses.items():
                if error is ErrorCode.NONE:
                    values = batches.pop(partition)[1]
                    self.simulation.checks.acked(partition, offset, values)
                    attempt.acked[partition] = attempt.acked.get(partition, 0) + len(values)
                elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and tries < 20:
                    # An earlier batch is still in flight.
                    tries += 1
                elif error not in _RETRIABLE:
                    self._must_be(error, _ABORTABLE)
                    refused = error
            if refused:
                raise AbortableError(f"Produce {refused.name}")
            if batches:
                await self.pause()

    def _batch(self, partition: TopicPartition, values: list[bytes]) -> bytes:
        now = self.simulation.now_ms
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        return bytes(
            build_batch(
                [Record(n, now, None, value) for n, value in enumerate(values)],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )

    async def _send(
        self, batches: dict[TopicPartition, tuple[bytes, list[bytes]]]
    ) -> dict[TopicPartition, tuple[ErrorCode, int]]:
        topics: dict[str, TopicProduceData] = {}
        for (topic, index), (data, _) in batches.items():
            entry = topics.setdefault(topic, TopicProduceData(topic, partition_data=[]))
            entry.partition_data.append(PartitionProduceData(index, data))
        request = ProduceRequest(self.transactional_id, -1, 1000, list(topics.values()))
        response = await self.request(request, 12 if self.version == 2 else 11, ProduceResponse)
        responses = {
            TopicPartition(topic.name, item.index): (ErrorCode(item.error_code), item.base_offset)
            for topic in response.responses
            for item in topic.partition_responses
        }
        for partition, (error, offset) in responses.items():
            self.simulation.note(f"{self.name}: Produce {partition} -> {error.name} {offset}")
        return responses

    async def _add_partitions(self, partitions: set[TopicPartition]) -> None:
        if not partitions:
            return
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in sorted(partitions):
            entry = topics.setdefault(topic, AddPartitionsToTxnTopic(topic, []))
            entry.partitions.append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        _, error, _ = await self.request_until_final(
            request, 3, AddPartitionsToTxnResponse, lambda r: _first_error(r)
        )
        if error:
            self._must_be(error, _FENCED)
            raise FencedError(f"AddPartitionsToTxn {error.name}")
        self._added |= partitions

    async def end(self, attempt: Attempt, *, commit: bool) -> None:
        attempt.commit_sent = attempt.commit_sent or commit
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        response, error, uncertain = await self.request_until_final(
            request, 5 if self.version == 2 else 4, EndTxnResponse, lambda r: r.error_code
        )
        if error:
            self._must_be(error, _FENCED)
            if commit and not uncertain:
                attempt.commit_refused = True
            if error is ErrorCode.INVALID_TXN_STATE and not commit and self.version == 1:
                # The coordinator does not know the transaction: there is nothing to abort.
                return
            raise FencedError(f"EndTxn {error.name}")
        if commit:
            attempt.commit_acked = True
            assert attempt.outcome is not False or attempt.lost, f"{attempt} is committed, says it"
        else:
            attempt.abort_acked = True
            assert attempt.outcome is not True or attempt.lost, f"{attempt} is aborted, says it"
        if self.version == 2:
            if response.producer_id == self.producer_id:
                assert response.producer_epoch == self.epoch + 1, f"{response} after {self.epoch}"
            self._is_now(response.producer_id, response.producer_epoch)


def _first_error(response: AddPartitionsToTxnResponse) -> int:
    codes = [
        partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    return next((code for code in codes if code), 0)


class Reader(Client):
    """Reads partitions with `read_committed`, skipping aborted records as consumers do."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation, name, late=True)
        self.positions: dict[TopicPartition, int] = {}

    async def poll(self, partition: TopicPartition, max_bytes: int) -> list[tuple[int, bytes]]:
        """Returns the records after its position; an empty list without a response."""
        position = self.positions.get(partition, 0)
        topic = FetchTopic(
            partition.topic,
            partitions=[
                FetchPartition(
                    partition.partition, fetch_offset=position, partition_max_bytes=max_bytes
                )
            ],
        )
        request = FetchRequest(max_bytes=max_bytes, isolation_level=1, topics=[topic])
        cuts = self.simulation.checks.cuts
        try:
            response = await self.request(request, 12, FetchResponse)
        except NoResponseError:
            return []
        (data,) = response.responses[0].partitions
        if cuts != self.simulation.checks.cuts:
            return []
        if data.error_code:
            error = ErrorCode(data.error_code)
            assert error in _RETRIABLE or error is ErrorCode.OFFSET_OUT_OF_RANGE, error.name
            return []
        records, end = _committed(data, position)
        self.simulation.checks.data(partition).read(position, end, records)
        self.positions[partition] = end
        return records


def _committed(data: FetchPartitionData, position: int) -> tuple[list[tuple[int, bytes]], int]:
    """Returns the records that a consumer returns to its user, and its next position."""
    assert isinstance(data.records, bytes | memoryview)
    buffer = bytes(data.records)
    waiting = sorted(
        data.aborted_transactions or [], key=lambda txn: txn.first_offset, reverse=True
    )
    aborted: set[int] = set()
    records: list[tuple[int, bytes]] = []
    for at, header in split(buffer):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborted.add(waiting.pop().producer_id)
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            for record in read_records(buffer, at, header):
                if record.offset >= position:
                    assert record.value is not None
                    records.append((record.offset, bytes(record.value)))
        position = max(position, header.next_offset)
    return records, position
