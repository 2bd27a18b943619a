"""Transactions in a simulated cluster: every input is processed exactly once, or nothing is.

A `Transformer` reads a partition of the input, writes a result for each record to several
partitions, and commits its offset in the same transaction. Two of them share a transactional id and
fence each other all the time; some hang or crash in the middle of a transaction.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.sim.cluster.cluster_clients import (
    GROUP_KEY,
    RETRIABLE,
    TRANSACTION_KEY,
    Client,
    Cluster,
    Consumer,
)

OUT = "out"
OUT_KEYS = [TopicPartition(OUT, 0), TopicPartition(OUT, 1)]
GROUP = "transformers"
TRANSACTION_TIMEOUT_MS = 4000
_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class FencedError(Exception):
    """Another producer has the transactional id, or the transaction timed out."""


@dataclass
class Attempt:
    """One transaction, as its client knows it."""

    tag: str
    source: TopicPartition
    end: int
    """The offset that it commits."""
    sent: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    is_commit_sent: bool = False
    is_committed: bool = False
    """Whether the commit was acknowledged."""
    is_aborted: bool = False
    """Whether the abort was acknowledged."""

    def check_visible(self) -> None:
        """Called when a reader has got a record of the transaction."""
        assert self.is_commit_sent, f"{self} was not committed, but is read"
        assert not self.is_aborted, f"{self} was aborted, but is read"


class Transactions:
    """All transactions of a run."""

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}

    def begin(self, source: TopicPartition, end: int) -> Attempt:
        tag = f"x{len(self.attempts)}"
        attempt = self.attempts[tag] = Attempt(tag, source, end)
        return attempt

    def of(self, value: bytes) -> Attempt:
        """Returns the transaction of a result."""
        return self.attempts[value.decode().split("|")[0]]

    def committed_end(self, source: TopicPartition) -> int:
        """Returns the least offset that the group must have committed."""
        ends = (a.end for a in self.attempts.values() if a.is_committed and a.source == source)
        return max(ends, default=0)

    def finish(
        self, results: Mapping[TopicPartition, Iterable[tuple[int, bytes]]], offsets: dict[Any, int]
    ) -> None:
        """Checks the committed results of each partition, and the committed offsets."""
        values = {key: [value for _, value in records] for key, records in results.items()}
        inputs: dict[TopicPartition, list[int]] = {source: [] for source in offsets}
        for attempt in self.attempts.values():
            visible = {
                key: [value for value in values[key] if self.of(value) is attempt]
                for key in attempt.sent
            }
            has_any = any(visible.values())
            assert not has_any or visible == attempt.sent, f"{attempt} is not whole: {visible}"
            assert has_any or not attempt.is_committed, f"{attempt} is lost"
            if has_any:
                attempt.check_visible()
            for records in visible.values():
                inputs[attempt.source] += [int(value.decode().split("|")[1]) for value in records]
        for source, end in offsets.items():
            assert sorted(inputs[source]) == list(range(end)), (
                f"{source} is committed to {end}, and processed were {sorted(inputs[source])}"
            )


class CommittedReader(Consumer):
    """Reads the results with `read_committed`."""

    isolation_level = 1

    def __init__(self, cluster: Cluster, transactions: Transactions) -> None:
        super().__init__(cluster, "reader", OUT_KEYS)
        self._transactions = transactions
        self.seen: dict[TopicPartition, dict[int, bytes]] = {key: {} for key in OUT_KEYS}

    async def poll(self, key: TopicPartition) -> list[tuple[int, bytes]]:
        records = await super().poll(key)
        for offset, value in records:
            self._transactions.of(value).check_visible()
            self.seen[key][offset] = value
        return records


class Transformer(Client):
    """A consume-transform-produce loop of one partition, with transaction version 1 or 2."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        source: TopicPartition,
        version: int,
        transactions: Transactions,
    ) -> None:
        super().__init__(cluster, name)
        self.can_be_late = version == 2
        """The end of a transaction that comes late would end the next one in version 1."""
        self.source = source
        self._version = version
        self._transactional_id = f"t{source.partition}"
        self._transactions = transactions
        self._reader = Consumer(cluster, f"{name} reader", [source])
        self._reader.isolation_level = 1
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._init()
                self._reader.seek(self.source, await self.committed_offset())
                while self.rng.random() > 0.1 and not self.is_stopping:
                    await self._transaction()
            except FencedError as error:
                self.cluster.note(f"{self.name} is fenced: {error}")
                await self.pause(2000)

    async def _call(
        self, message: Message, response_type: type[Message], version: int, code: Any
    ) -> tuple[Any, int]:
        """Sends a request to the transaction coordinator; raises FencedError."""
        response, error, uncertain = await self.call(
            TRANSACTION_KEY, self._transactional_id, message, response_type, version, code
        )
        if error:
            assert error in _FENCED, f"{self.name}: {type(message).__name__} {error.name}"
            raise FencedError(f"{type(message).__name__} {error.name}")
        return response, uncertain

    async def _init(self) -> None:
        request = InitProducerIdRequest(self._transactional_id, TRANSACTION_TIMEOUT_MS)
        response, _ = await self._call(
            request,
            InitProducerIdResponse,
            5 if self._version == 2 else 4,
            lambda response: response.error_code,
        )
        self._is_now(response.producer_id, response.producer_epoch)

    def _is_now(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self._producer_id, self._epoch):
            self._producer_id, self._epoch = producer_id, epoch
            self._sequences.clear()

    async def committed_offset(self) -> int:
        """Returns the offset that the group has committed; waits for open transactions."""
        least = self._transactions.committed_end(self.source)
        topic = OffsetFetchRequestTopic(self.source.topic, [self.source.partition])
        request = OffsetFetchRequest(GROUP, [topic], require_stable=True)

        def code(response: OffsetFetchResponse) -> int:
            return response.error_code or response.topics[0].partitions[0].error_code

        response, error, _ = await self.call_current(GROUP, request, OffsetFetchResponse, 7, code)
        assert not error, f"{self.name}: OffsetFetch {error.name}"
        offset: int = max(response.topics[0].partitions[0].committed_offset, 0)
        assert offset >= least, f"{GROUP} had committed {least} of {self.source}, now {offset}"
        return offset

    # --- a transaction

    async def _transaction(self) -> None:
        first = self._reader.position(self.source)
        try:
            records = (await self._reader.poll(self.source))[:5]
        except KafkaError:
            self._reader.forget(self.source)
            records = []
        if not records:
            await self.pause(300)
            return
        assert [offset for offset, _ in records] == [*range(first, first + len(records))]
        attempt = self._transactions.begin(self.source, records[-1][0] + 1)
        self._reader.seek(self.source, attempt.end)
        results: dict[TopicPartition, list[bytes]] = {}
        for offset, _ in records:
            key = self.rng.choice(OUT_KEYS)
            results.setdefault(key, []).append(f"{attempt.tag}|{offset}".encode())
        if self._version == 1:
            await self._add_partitions(results)
        for key, values in results.items():
            attempt.sent[key] = values
            await self._produce(key, values)
            await self._hang()
        await self._commit_offset(attempt)
        await self._hang()
        await self._end(attempt, is_commit=self.rng.random() < 0.8)
        if attempt.is_aborted:
            self._reader.seek(self.source, first)
        await self.pause(300)

    async def _hang(self) -> None:
        """Sometimes continues after the transaction has timed out, or never."""
        if self.rng.random() < 0.03 and not self.is_stopping:
            seconds = self.rng.randrange(200, 6000) / 1000
            self.cluster.note(f"{self.name} hangs for {seconds} s")
            await asyncio.sleep(seconds)
            if self.rng.random() < 0.3:
                raise FencedError("it crashes")

    async def _add_partitions(self, keys: Iterable[TopicPartition]) -> None:
        topic = AddPartitionsToTxnTopic(OUT, sorted(key.partition for key in keys))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[topic],
        )
        await self._call(request, AddPartitionsToTxnResponse, 3, _first_error)

    async def _produce(self, key: TopicPartition, values: list[bytes]) -> None:
        sequence = self._sequences.get(key, 0)
        batch = build_batch(
            [Record(n, self.cluster.now_ms(), None, value) for n, value in enumerate(values)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        while True:
            try:
                error, offset = await self._try(key, bytes(batch))
            except KafkaError:
                error, offset = ErrorCode.NETWORK_EXCEPTION, -1
            if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                break
            if error not in RETRIABLE:
                assert error in _FENCED, f"{self.name}: Produce to {key}: {error.name}"
                raise FencedError(f"Produce {error.name}")
            self.forget(key)
            await self.pause()
        self._sequences[key] = sequence + len(values)
        if offset >= 0 and error is ErrorCode.NONE:
            self.cluster.history.acknowledge(key, offset, values)

    async def _try(self, key: TopicPartition, batch: bytes) -> tuple[ErrorCode, int]:
        leader = await self.leader_of(key)
        data = PartitionProduceData(key.partition, memoryview(bytearray(batch)))
        request = ProduceRequest(
            self._transactional_id, -1, 2000, [TopicProduceData(OUT, partition_data=[data])]
        )
        version = 12 if self._version == 2 else 11
        response = await self.request(leader, request, ProduceResponse, version)
        result = response.responses[0].partition_responses[0]
        return ErrorCode(result.error_code), result.base_offset

    async def _commit_offset(self, attempt: Attempt) -> None:
        if self._version == 1:
            add = AddOffsetsToTxnRequest(
                self._transactional_id, self._producer_id, self._epoch, GROUP
            )
            await self._call(add, AddOffsetsToTxnResponse, 3, lambda response: response.error_code)
        partition = TxnOffsetCommitRequestPartition(self.source.partition, attempt.end)
        request = TxnOffsetCommitRequest(
            self._transactional_id,
            GROUP,
            self._producer_id,
            self._epoch,
            topics=[TxnOffsetCommitRequestTopic(self.source.topic, partitions=[partition])],
        )
        _, error, _ = await self.call(
            GROUP_KEY,
            GROUP,
            request,
            TxnOffsetCommitResponse,
            5 if self._version == 2 else 3,
            lambda response: response.topics[0].partitions[0].error_code,
        )
        if error:
            assert error in _FENCED, f"{self.name}: TxnOffsetCommit {error.name}"
            raise FencedError(f"TxnOffsetCommit {error.name}")

    async def _end(self, attempt: Attempt, *, is_commit: bool) -> None:
        attempt.is_commit_sent = is_commit
        request = EndTxnRequest(self._transactional_id, self._producer_id, self._epoch, is_commit)
        response, _ = await self._call(
            request,
            EndTxnResponse,
            5 if self._version == 2 else 4,
            lambda response: response.error_code,
        )
        attempt.is_committed, attempt.is_aborted = is_commit, not is_commit
        if self._version == 2:
            self._is_now(response.producer_id, response.producer_epoch)


def _first_error(response: AddPartitionsToTxnResponse) -> int:
    codes = [
        partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    return next((code for code in codes if code), 0)
