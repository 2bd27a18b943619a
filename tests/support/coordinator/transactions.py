"""A host of one transaction shard in memory: a log of bytes, a clock that is told, partitions."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from penstock.coordinator.machine import Response, SetTimer, Skipped, TimerFired
from penstock.coordinator.timers import TimerQueue
from penstock.coordinator.txn.config import TransactionConfig
from penstock.coordinator.txn.events import (
    Context,
    Event,
    MarkersWritten,
    Requested,
    Result,
    Timer,
    WriteMarkers,
)
from penstock.coordinator.txn.metadata import TransactionMetadata, record_of
from penstock.coordinator.txn.records import TransactionRecord, decode_record, encode_record
from penstock.coordinator.txn.shard import TransactionShard
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.codec import encode
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

R = TypeVar("R", bound=Message)
START_MS = 1_000_000_000
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1000

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class TxnHost:
    """Drives a shard as its docstring says. `check_pure` compares the state around `handle`."""

    def __init__(
        self, config: TransactionConfig | None = None, *, version: int = 2, check_pure: bool = True
    ) -> None:
        self.config = config or TransactionConfig(transaction_version=version)
        self.check_pure = check_pure
        self.now = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = TransactionShard(self.config)
        self.timers: TimerQueue[Timer] = TimerQueue()
        self.waiters: dict[int, int] = {}
        """The version of each request that waits, by its number."""
        self.responses: dict[int, Message] = {}
        self.markers: list[WriteMarkers] = []
        """What has to be written into partitions; `write_markers` does that."""
        self.held: list[Result] = []
        self.commits = True
        """False: the high watermark stands still; responses and markers are held back."""
        self.committed = 0
        """How much of the log no crash takes away."""
        self.append_error: ErrorCode | None = None
        """The next append fails with it."""
        self.next_producer_id = FIRST_PRODUCER_ID
        self._count = 0
        self._perform(self.shard.start(self.now))

    # --- requests and time

    def send(self, request: Message, version: int | None = None) -> int:
        """The number of the waiter."""
        self._count += 1
        if version is None:
            version = type(request).INFO.max_stable_version
        self.waiters[self._count] = version
        self.event(Requested(request, Context(self._count, version, "client")))
        return self._count

    def ask(self, request: Message, answer: type[R], version: int | None = None) -> R:
        """Send a request whose reply must come at once."""
        return self.answer(self.send(request, version), answer)

    def answer(self, waiter: int, answer: type[R]) -> R:
        response = self.responses[waiter]
        assert isinstance(response, answer)
        return response

    def advance(self, milliseconds: int) -> None:
        """Let time pass, with every timer at its time."""
        end = self.now + milliseconds
        while (deadline := self.timers.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            while (timer := self.timers.pop_due(self.now)) is not None:
                self.event(TimerFired(timer))
        self.now = end

    def event(self, event: Event) -> Result:
        before = repr(self.shard.transactions) if self.check_pure else ""
        result = self.shard.handle(event, self.now)
        assert not self.check_pure or repr(self.shard.transactions) == before, "handle changed"
        if result.needs_producer_id:
            assert isinstance(event, Requested)
            assert result == Result(event, needs_producer_id=True)
            context = replace(event.context, new_producer_id=self.next_producer_id)
            self.next_producer_id += 1
            return self.event(Requested(event.request, context))
        self._perform(result)
        return result

    # --- what a host does with a result

    def _perform(self, result: Result) -> None:
        if result.records and self.append_error is not None:
            error, self.append_error = self.append_error, None
            self._perform(self.shard.write_failed(result, error, self.now, applied=False))
            return
        self.log.extend(encode_record(record) for record in result.records)
        for change in result.changes:
            self.shard.apply(change)
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self.timers.set(timer.timer, timer.deadline_ms)
            else:
                self.timers.cancel(timer.timer)
        if self.commits:
            self.committed = len(self.log)
            self._deliver(result.responses)
            self.markers.extend(result.markers)
        else:
            self.held.append(result)

    def _deliver(self, responses: Sequence[Response]) -> None:
        for response in responses:
            assert response.waiter in self.waiters, f"{response} is for nobody, or comes twice"
            version = self.waiters.pop(response.waiter)
            if version >= 4 or not isinstance(response.message, AddPartitionsToTxnResponse):
                assert encode(response.message, version)
            self.responses[response.waiter] = response.message

    def commit(self) -> None:
        """The high watermark reaches the end."""
        held, self.held, self.commits = self.held, [], True
        self.committed = len(self.log)
        for result in held:
            self._deliver(result.responses)
            self.markers.extend(result.markers)

    def commit_fails(self, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """What is held back takes too long; responses leave, markers wait on."""
        held, self.held = self.held, []
        for result in held:
            failed = self.shard.write_failed(result, error, self.now, applied=True)
            assert not failed.records
            self._deliver(failed.responses)
            self._perform(replace(failed, responses=()))

    def write_markers(self, *partitions: TopicPartition) -> None:
        """Markers reach these partitions, or all; each transaction hears of its own."""
        pending, self.markers = self.markers, []
        for marker in pending:
            done = frozenset(partitions) & marker.partitions if partitions else marker.partitions
            left = marker.partitions - done
            if left:
                self.markers.append(replace(marker, partitions=left))
            if done:
                self.event(written(marker, done))

    def settle(self) -> None:
        """Everything that is due happens, and all markers are written."""
        self.advance(0)
        self.write_markers()

    def records(self, since: int = 0) -> list[TransactionRecord]:
        found = [decode_record(key, value) for key, value in self.log[since:]]
        assert not any(isinstance(record, Skipped) for record in found)
        return [record for record in found if not isinstance(record, Skipped)]

    def restart(self) -> None:
        """A new shard from the bytes of the log; whoever waited never hears of it again."""
        self.commits = True
        self.shard = TransactionShard(self.config)
        for record in self.records():
            self.shard.apply(record)
        self.timers = TimerQueue()
        self.held.clear()
        self.waiters.clear()
        self.markers.clear()
        self._perform(self.shard.start(self.now))

    # --- looking inside

    def metadata(self, transactional_id: str = "x") -> TransactionMetadata:
        return self.shard.transactions[transactional_id]

    def state(self, transactional_id: str = "x") -> TransactionState:
        return self.metadata(transactional_id).state

    def put(self, **changes: object) -> TransactionMetadata:
        """Have the transactional id `x` stand so, as if its record had been loaded."""
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
        answer = self.host.ask(request, InitProducerIdResponse, version)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def bump(self, version: int = 5) -> ErrorCode:
        """Ask for the next epoch, as a producer does that goes on after an error (KIP-360)."""
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
        return self.host.ask(request, AddPartitionsToTxnResponse, version)

    def add_offsets(self, group: str = "g", version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group)
        return ErrorCode(self.host.ask(request, AddOffsetsToTxnResponse, version).error_code)

    def end(self, *, commit: bool, version: int | None = None) -> ErrorCode:
        answer = self.ended(commit=commit, version=version)
        if not answer.error_code and answer.producer_id != -1:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def ended(self, *, commit: bool, version: int | None = None) -> EndTxnResponse:
        """The answer, which the producer itself does not hear of."""
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        return self.host.ask(request, EndTxnResponse, version or self._end_version)


# --- requests and answers


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
        ErrorCode(each.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for each in topic.results_by_partition
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
    """A producer of `x` whose transaction stands so; it has heard of everything."""
    producer = ongoing(host, version=version)
    names = TransactionState
    if state is names.ONGOING:
        return producer
    if state is names.EMPTY:
        assert producer.end(commit=False) == ErrorCode.NONE
        host.settle()
        assert producer.init() == ErrorCode.NONE
        return producer
    commit = state in (names.PREPARE_COMMIT, names.COMPLETE_COMMIT)
    assert producer.end(commit=commit) == ErrorCode.NONE
    if not state.is_ending:
        host.settle()
    assert host.state() is state
    return producer
