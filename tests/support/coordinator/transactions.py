"""A host of one transaction shard in memory: a log of bytes, a manual clock, partitions."""

from collections.abc import Iterable

from msgspec.structs import replace

from penstock.coordinator.machine import Skipped
from penstock.coordinator.txn.config import TransactionConfig
from penstock.coordinator.txn.events import (
    Context,
    Event,
    MarkersWritten,
    Requested,
    Result,
    WriteMarkers,
)
from penstock.coordinator.txn.metadata import TransactionMetadata, record_of
from penstock.coordinator.txn.records import TransactionRecord, decode_record, encode_record
from penstock.coordinator.txn.shard import TransactionShard
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
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
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.support.coordinator.shard_host import ShardHost

TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1000

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class TxnHost(ShardHost[TransactionShard, Event, Result, TransactionRecord]):
    """Hosts a `TransactionShard`."""

    def __init__(
        self, config: TransactionConfig | None = None, *, version: int = 2, check_pure: bool = True
    ) -> None:
        self.config = config or TransactionConfig(transaction_version=version)
        self.markers: list[WriteMarkers] = []
        """The markers to write to partitions; `write_markers` does so."""
        self.committed = 0
        """The length of the log that survives a crash."""
        self.next_producer_id = FIRST_PRODUCER_ID
        super().__init__(check_pure=check_pure)

    def new_shard(self) -> TransactionShard:
        return TransactionShard(self.config)

    def _state(self) -> str:
        return repr(self.shard.transactions)

    def _encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def _decode(self, key: bytes, value: bytes | None) -> TransactionRecord | Skipped:
        return decode_record(key, value)

    def _has_bytes(self, message: Message, version: int) -> bool:
        return version >= 4 or not isinstance(message, AddPartitionsToTxnResponse)

    def send(self, request: Message, version: int | None = None) -> int:
        """Returns the number of the waiter."""
        waiter, version = self._new_waiter(request, version)
        self.event(Requested(request, Context(waiter, version, "client")))
        return waiter

    def event(self, event: Event) -> Result:
        result = self._handle(event)
        if result.needs_producer_id:
            assert isinstance(event, Requested)
            assert result == Result(event, needs_producer_id=True)
            context = replace(event.context, new_producer_id=self.next_producer_id)
            self.next_producer_id += 1
            return self.event(Requested(event.request, context))
        self._perform(result)
        return result

    def _start_effects(self, result: Result) -> None:
        self.committed = len(self.log)
        self.markers.extend(result.markers)

    def commit(self) -> None:
        super().commit()
        self.committed = len(self.log)

    def commit_fails(self, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """The results that are held back time out; responses are sent, markers wait."""
        held, self.held = self.held, []
        for result in held:
            failed = self.shard.write_failed(result, error, self.now, applied=True)
            assert not failed.records
            self._deliver(failed.responses)
            self._perform(replace(failed, responses=()))

    def write_markers(self, *partitions: TopicPartition) -> None:
        """Writes markers to these partitions, or to all, and notifies the transactions."""
        pending, self.markers = self.markers, []
        for marker in pending:
            reached = frozenset(partitions) & marker.partitions if partitions else marker.partitions
            remaining = marker.partitions - reached
            if remaining:
                self.markers.append(replace(marker, partitions=remaining))
            if reached:
                self.event(written(marker, reached))

    def finish(self) -> None:
        """Fires the timers that are due and writes all markers."""
        self.advance(0)
        self.write_markers()

    def restart(self) -> None:
        self.commits = True
        self.markers.clear()
        super().restart()

    # --- state

    def metadata(self, transactional_id: str = "x") -> TransactionMetadata:
        return self.shard.transactions[transactional_id]

    def state(self, transactional_id: str = "x") -> TransactionState:
        return self.metadata(transactional_id).state

    def put(self, **changes: object) -> TransactionMetadata:
        """Changes the state of the transactional id `x`, as if a record had been loaded."""
        start = self.shard.transactions.get("x")
        if start is None:
            start = TransactionMetadata("x", FIRST_PRODUCER_ID - 1, TIMEOUT_MS, self.now)
        changed = replace(start, **changes)
        record = record_of(changed, self.config.transaction_version)
        self.log.append(encode_record(record))
        self.shard.apply(record)
        return self.metadata()


class Producer:
    """A transactional producer of `version` 1 or 2, as clients are: it keeps its id and epoch."""

    def __init__(
        self, host: TxnHost, transactional_id: str = "x", version: int | None = None
    ) -> None:
        self.host = host
        self.transactional_id = transactional_id
        self.version = host.config.transaction_version if version is None else version
        self.producer_id = -1
        self.epoch = -1

    @property
    def _end_version(self) -> int:
        return 5 if self.version >= 2 else 4

    def init(self, version: int = 5, **fields: object) -> ErrorCode:
        request = init_request(**{"transactional_id": self.transactional_id, **fields})
        response = self.host.request(request, InitProducerIdResponse, version)
        if not response.error_code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error_code)

    def bump(self, version: int = 5) -> ErrorCode:
        """Requests the next epoch, as a producer does that continues after an error (KIP-360)."""
        return self.init(version, producer_id=self.producer_id, producer_epoch=self.epoch)

    def add(self, *partitions: TopicPartition, version: int | None = None) -> ErrorCode:
        if version is None:
            version = 5 if self.version >= 2 else 3
        return only_error(self._partitions(partitions, version, verify_only=False))

    def verify(self, *partitions: TopicPartition) -> list[ErrorCode]:
        return errors_of(self._partitions(partitions, 5, verify_only=True))

    def _partitions(
        self, partitions: Iterable[TopicPartition], version: int, *, verify_only: bool
    ) -> AddPartitionsToTxnResponse:
        request = add_request(
            self.transactional_id, self.producer_id, self.epoch, partitions, verify_only=verify_only
        )
        return self.host.request(request, AddPartitionsToTxnResponse, version)

    def add_offsets(self, group: str = "g", version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group)
        return ErrorCode(self.host.request(request, AddOffsetsToTxnResponse, version).error_code)

    def end(self, *, commit: bool, version: int | None = None) -> ErrorCode:
        response = self.ended(commit=commit, version=version)
        if not response.error_code and response.producer_id != -1:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error_code)

    def ended(self, *, commit: bool, version: int | None = None) -> EndTxnResponse:
        """Returns the response, which the producer does not apply."""
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        return self.host.request(request, EndTxnResponse, version or self._end_version)


# --- requests and responses


def init_request(**fields: object) -> InitProducerIdRequest:
    """Of the transactional id `x`, but for what is said otherwise."""
    return replace(InitProducerIdRequest("x", TIMEOUT_MS), **fields)


def add_request(
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, number in partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name, [])).partitions.append(number)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id, producer_id, epoch, verify_only, list(topics.values())
    )
    return AddPartitionsToTxnRequest([transaction])


def errors_of(response: AddPartitionsToTxnResponse) -> list[ErrorCode]:
    return [
        ErrorCode(partition.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for partition in topic.results_by_partition
    ]


def only_error(response: AddPartitionsToTxnResponse) -> ErrorCode:
    """The error that all partitions have."""
    (error,) = set(errors_of(response))
    return error


def written(marker: WriteMarkers, partitions: frozenset[TopicPartition]) -> MarkersWritten:
    return MarkersWritten(
        marker.transactional_id, marker.producer_id, marker.producer_epoch, partitions
    )


def ongoing(host: TxnHost, *partitions: TopicPartition, version: int | None = None) -> Producer:
    """A producer of `x` with a transaction that has these partitions."""
    producer = Producer(host, version=version)
    assert producer.init() == ErrorCode.NONE
    assert producer.add(*(partitions or (T0, T1))) == ErrorCode.NONE
    return producer


def in_state(host: TxnHost, state: TransactionState, version: int | None = None) -> Producer:
    """A producer of `x` whose transaction is in this state; it has received every response."""
    producer = ongoing(host, version=version)
    names = TransactionState
    if state is names.ONGOING:
        return producer
    if state is names.EMPTY:
        assert producer.end(commit=False) == ErrorCode.NONE
        host.finish()
        assert producer.init() == ErrorCode.NONE
        return producer
    commit = state in (names.PREPARE_COMMIT, names.COMPLETE_COMMIT)
    assert producer.end(commit=commit) == ErrorCode.NONE
    if not state.is_ending:
        host.finish()
    assert host.state() is state
    return producer
