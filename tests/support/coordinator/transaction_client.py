"""Transactional producers and consumers over raw requests, in both generations of the protocol.

Version 1 (`Generation.V1`) names its partitions before it writes to them; version 2 (KIP-890)
leaves that to the broker, and has a new epoch after every transaction.
"""

import time
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from penstock.records.batch import split
from penstock.records.build import build_batch
from penstock.records.control import read_end_txn_marker
from penstock.records.read import read_records
from penstock.records.record import Record
from tests.support.broker.in_process import TIMEOUT_S, WireClient
from tests.support.protocol.requests import fetch_request

READ_COMMITTED = 1
_NOT_YET = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""The errors after which a producer retries."""


class Versions(NamedTuple):
    """Of the requests that a producer sends."""

    init: int
    add: int
    produce: int
    end: int


class Generation(Enum):
    V1 = Versions(4, 3, 11, 4)
    V2 = Versions(5, 3, 12, 5)


class TxnProducer:
    """One transactional producer; the first request of `begin` makes its coordinator."""

    def __init__(
        self,
        client: WireClient,
        transactional_id: str,
        generation: Generation = Generation.V2,
        *,
        timeout_ms: int = 60_000,
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.versions = generation.value
        self.adds_itself = generation is Generation.V1
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()

    @classmethod
    def started(
        cls,
        client: WireClient,
        transactional_id: str,
        generation: Generation = Generation.V2,
        *,
        timeout_ms: int = 60_000,
    ) -> "TxnProducer":
        """Returns a producer that has found its coordinator and has an id."""
        producer = cls(client, transactional_id, generation, timeout_ms=timeout_ms)
        find_coordinator(client, transactional_id)
        response = producer.init()
        assert response.error_code == 0, ErrorCode(response.error_code)
        return producer

    # --- one request each

    def init(self, *, keep: bool = False) -> Any:
        """Requests an id until it succeeds; with `keep`, for the current id (KIP-360)."""
        previous_ids = (self.producer_id, self.epoch) if keep else (-1, -1)
        request = InitProducerIdRequest(self.transactional_id, self.timeout_ms, *previous_ids)
        response = until_ready(self.client, request, self.versions.init)
        if response.error_code == 0:
            self.take_over(response)
        return response

    def take_over(self, response: Any) -> None:
        """Uses the id and epoch of a response; new ones reset the sequences."""
        if (self.producer_id, self.epoch) != (response.producer_id, response.producer_epoch):
            self._sequences.clear()
        self._added.clear()
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def add_request(self, topics: Mapping[str, Iterable[int]]) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(topic, list(partitions))
                for topic, partitions in topics.items()
            ],
        )

    def add(self, topics: Mapping[str, Iterable[int]]) -> ErrorCode:
        """Adds partitions, as version 1 does; returns the error code of the first."""
        request = self.add_request(topics)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            response = self.client.request(request, self.versions.add)
            first = response.results_by_topic_v3_and_below[0].results_by_partition[0]
            code = ErrorCode(first.partition_error_code)
            if code not in _NOT_YET or time.monotonic() > deadline:
                break
        if code is ErrorCode.NONE:
            self._added |= {(topic, index) for topic, result in topics.items() for index in result}
        return code

    def add_offsets(self, group: str, version: int = 3) -> ErrorCode:
        request = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group)
        return ErrorCode(until_ready(self.client, request, version).error_code)

    def batch(self, topic: str, *values: bytes, partition: int = 0) -> bytes:
        """The next batch for a partition. It does not count as sent."""
        sequence = self._sequences.get((topic, partition), 0)
        return txn_batch(self.producer_id, self.epoch, sequence, *values)

    def send(
        self, topic: str, *values: bytes, partition: int = 0, version: int | None = None
    ) -> Any:
        """Produces without other requests; returns the response of the partition."""
        batch = self.batch(topic, *values, partition=partition)
        request = produce_request(self.transactional_id, {(topic, partition): batch})
        response = self.client.request(request, version or self.versions.produce)
        part = response.responses[0].partition_responses[0]
        if part.error_code == 0:
            key = (topic, partition)
            self._sequences[key] = self._sequences.get(key, 0) + len(values)
        return part

    def write(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Produces as a client does, which must succeed; returns the first offset."""
        if self.adds_itself and (topic, partition) not in self._added:
            assert self.add({topic: [partition]}) is ErrorCode.NONE
        deadline = time.monotonic() + TIMEOUT_S
        while (part := self.send(topic, *values, partition=partition)).error_code in _NOT_YET:
            assert time.monotonic() < deadline, part.error_message
        assert part.error_code == 0, (ErrorCode(part.error_code), part.error_message)
        offset: int = part.base_offset
        return offset

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)

    def end(self, *, commit: bool) -> ErrorCode:
        """Ends the transaction; its markers may not be written yet."""
        response = until_ready(self.client, self.end_request(commit=commit), self.versions.end)
        if response.error_code == 0:
            self._added.clear()
            if not self.adds_itself:
                self.take_over(response)
        return ErrorCode(response.error_code)

    # --- complete operations

    def commit(self) -> None:
        """Commits, which must succeed, and waits until every partition has its marker."""
        assert self.end(commit=True) is ErrorCode.NONE
        wait_for_state(self.client, self.transactional_id, "CompleteCommit")

    def abort(self) -> None:
        assert self.end(commit=False) is ErrorCode.NONE
        wait_for_state(self.client, self.transactional_id, "CompleteAbort")


# --- requests


def find_coordinator(client: WireClient, transactional_id: str) -> None:
    """Creates `__transaction_state` if it does not exist."""
    response = client.request(FindCoordinatorRequest(transactional_id, 1), 3)
    assert response.error_code == 0, response.error_message


def until_ready(client: WireClient, request: Any, version: int) -> Any:
    """Returns the response once the coordinator has completed the previous transaction."""
    deadline = time.monotonic() + TIMEOUT_S
    while (response := client.request(request, version)).error_code in _NOT_YET:
        assert time.monotonic() < deadline, ErrorCode(response.error_code)
    return response


def txn_batch(producer_id: int, epoch: int, sequence: int, *values: bytes) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return bytes(
        build_batch(
            [Record(i, now_ms, value, value) for i, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )


def produce_request(
    transactional_id: str | None, batches: Mapping[tuple[str, int], bytes]
) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for (topic, partition), batch in batches.items():
        named = topics.setdefault(topic, TopicProduceData(topic, partition_data=[]))
        named.partition_data.append(PartitionProduceData(partition, batch))
    return ProduceRequest(transactional_id, -1, 5000, list(topics.values()))


def described(client: WireClient, transactional_id: str) -> Any:
    """Returns the description of a transactional id."""
    response = client.request(DescribeTransactionsRequest([transactional_id]), 0)
    return response.transaction_states[0]


def wait_for_state(client: WireClient, transactional_id: str, state: str) -> Any:
    """Waits for this state of a transactional id and returns its description."""
    deadline = time.monotonic() + TIMEOUT_S
    while (result := described(client, transactional_id)).transaction_state != state:
        assert time.monotonic() < deadline, result
        time.sleep(0.001)
    return result


def nowhere(
    marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
) -> frozenset[TopicPartition]:
    """Replaces `TransactionMarkers.write_at_once`: every marker takes the normal path."""
    return frozenset()


# --- reads


def fetched_committed(client: WireClient, topic: str, partition: int = 0, offset: int = 0) -> Any:
    """Returns a partition's part of a read_committed fetch response."""
    request = fetch_request({topic: {partition: offset}}, isolation=READ_COMMITTED)
    return client.request(request, 11).responses[0].partitions[0]


def committed(client: WireClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values that a consumer with `read_committed` gets, as clients find them out."""
    result: list[bytes | None] = []
    offset = 0
    while True:
        data = fetched_committed(client, topic, partition, offset)
        assert data.error_code == 0, ErrorCode(data.error_code)
        values, offset = committed_in(data, max(offset, data.log_start_offset))
        result += values
        if offset >= data.last_stable_offset:
            return result


def committed_in(data: Any, offset: int) -> tuple[list[bytes | None], int]:
    """Returns the committed values of one response, and the offset after them."""
    waiting = sorted(
        (
            (transaction.first_offset, transaction.producer_id)
            for transaction in data.aborted_transactions
        ),
        reverse=True,
    )
    aborted: set[int] = set()
    result: list[bytes | None] = []
    records = bytes(data.records or b"")
    for position, header in split(records):
        offset = header.next_offset
        while waiting and waiting[-1][0] <= header.last_offset:
            aborted.add(waiting.pop()[1])
        if header.is_control:
            if not read_end_txn_marker(records, position, header).commits:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            result += [record.value for record in read_records(records, position, header)]
    return result, offset


def uncommitted(client: WireClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values of everything that was written."""
    result: list[bytes | None] = []
    offset = 0
    while True:
        request = fetch_request({topic: {partition: offset}})
        data = client.request(request, 11).responses[0].partitions[0]
        assert data.error_code == 0, ErrorCode(data.error_code)
        records = bytes(data.records or b"")
        for position, header in split(records):
            offset = header.next_offset
            if not header.is_control:
                result += [record.value for record in read_records(records, position, header)]
        if offset >= data.high_watermark:
            return result


def latest(client: WireClient, topic: str, isolation: int, partition: int = 0) -> int:
    """Returns the end offset of a partition from ListOffsets."""
    topic_request = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=-1)])
    response = client.request(ListOffsetsRequest(-1, isolation, [topic_request]), 5)
    result = response.topics[0].partitions[0]
    assert result.error_code == 0
    offset: int = result.offset
    return offset
