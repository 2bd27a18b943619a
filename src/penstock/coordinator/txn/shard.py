"""The coordinator of the transactions of one partition of `__transaction_state`, as a pure machine.

It holds where each transactional id of the partition stands (P4). `handle` decides and changes
nothing; `apply` alone changes state. A host, which leads the partition, drives a shard so:

Load. Read the partition from its start to its end. For each record: `decode_record(key, value)`;
what is `Skipped` is logged, everything else goes to `apply`. Then deal with `loaded(now)` as with
any other result: it has the markers that may not have been written before. Until then answer
requests with `error_response(…, COORDINATOR_LOAD_IN_PROGRESS)`, without leadership with
`error_response(…, NOT_COORDINATOR)`.

Events. Requests, timers that are due and markers that have been written go to `handle(event,
now)`, one at a time. Before the next event of this shard, the result is dealt with:

0. where `needs_producer_id` is set, nothing was decided: get an id and handle the event again with
   `Context.new_producer_id`. Other events may come in between. Only requests need one.
1. `records` are appended to the partition. If that fails, `failed(result, error, now,
   applied=False)` takes the place of the result.
2. each of `changes` goes to `apply`: the records, and `marked`.
3. `timers` are set and cancelled. A timer that is due comes back as `TimerFired`, once, and only
   if it was neither set again nor cancelled meanwhile: `penstock.coordinator.timers` does that.
4. `responses` leave and the writing of `markers` begins as soon as everything appended so far is
   committed, which is when the high watermark reaches the log end offset of now. That holds for
   results without records too. If it takes too long, `failed(result, error, now, applied=True)`
   takes the place of what is left of the result.

A result of `failed` has no records, and its responses leave at once. Its `markers` wait for the
high watermark like all others: a marker must never be in a partition before the decision that it
follows from is committed.

Every request is answered by the result of its own event. Requests come in these forms:
AddPartitionsToTxn with one transaction, in the form of version 4 and above whatever the version is,
and is answered in that form; DescribeTransactions with ids of this shard; ListTransactions as it
is, for each shard. The pattern of a ListTransactions is not looked at: the host applies it to the
ids in the answer. An InitProducerId without a transactional id is not for a coordinator. Whether a
client may do what it asks for, and whether partitions exist, is checked before.

Markers. A transaction in PrepareCommit or PrepareAbort has ended, and will never end in the other
way: its markers are written again and again, after every load too, until `MarkersWritten` has named
all its partitions. Then it is complete. A transaction without partitions completes through a timer.

Unload. When leadership is lost, send `unload()`, answer the responses that were held back with
`error_response(…, NOT_COORDINATOR)`, stop writing markers, forget the timers and drop the shard.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from penstock.coordinator.machine import CancelTimer, Response, SetTimer, TimerFired
from penstock.coordinator.partitioning import partition_for
from penstock.coordinator.txn.add_partitions import (
    add_partitions,
    partitions_in,
    verify_partitions,
)
from penstock.coordinator.txn.admin import describe, list_transactions
from penstock.coordinator.txn.config import WRITE_RETRY_MS, TransactionConfig
from penstock.coordinator.txn.end import FIRST_EPOCH_BUMP, end_transaction
from penstock.coordinator.txn.events import (
    AbortTimer,
    CompletionTimer,
    Event,
    ExpiryTimer,
    MarkersWritten,
    Requested,
    Result,
    Timer,
    WriteMarkers,
)
from penstock.coordinator.txn.initialize import init_producer_id
from penstock.coordinator.txn.metadata import (
    NO_ID,
    NO_TIMEOUT_MS,
    TransactionMetadata,
    metadata_of,
    prepare_complete,
    prepare_fence,
    record_of,
)
from penstock.coordinator.txn.producer_ids import ProducerIdRequired
from penstock.coordinator.txn.records import TransactionRecord, tombstone
from penstock.coordinator.txn.responses import error_response
from penstock.coordinator.txn.state import TransactionState
from penstock.coordinator.write_errors import client_error
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.protocol.fields import Message
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.list_transactions import ListTransactionsRequest

_FIRST_OF_BROKERS = 4
"""The version of AddPartitionsToTxn from which on it comes for transaction version 2."""

_Timers = Sequence[SetTimer[Timer] | CancelTimer[Timer]]


class TransactionShard:
    """The transactional ids of one partition. `config` may be replaced at any time."""

    def __init__(self, config: TransactionConfig) -> None:
        self.config = config
        self.transactions: dict[str, TransactionMetadata] = {}

    # --- state

    def apply(self, change: TransactionRecord | MarkersWritten) -> None:
        """Take over a record of the partition, or that markers have been written."""
        if isinstance(change, MarkersWritten):
            metadata = self._waiting_for(change)
            if metadata is not None:
                left = metadata.partitions - change.partitions
                self.transactions[change.transactional_id] = replace(metadata, partitions=left)
        elif change.value is None:
            self.transactions.pop(change.key.transactional_id, None)
        else:
            metadata = metadata_of(change, change.value)
            self.transactions[metadata.transactional_id] = metadata

    def start(self, now: int) -> Result:
        """All records have been applied: what was about to end ends now, and the scans begin."""
        ending = [each for each in self.transactions.values() if each.state.is_ending]
        markers, timers = _ends(ending, now)
        return Result(
            timers=[
                SetTimer(AbortTimer(), now + self.config.abort_timed_out_cleanup_interval_ms),
                SetTimer(ExpiryTimer(), now + self.config.remove_expired_cleanup_interval_ms),
                *timers,
            ],
            markers=markers,
        )

    def unload(self) -> list[Response]:
        """This broker no longer leads the partition. Nobody waits inside the machine."""
        return []

    # --- decisions

    def handle(self, event: Event, now: int) -> Result:
        match event:
            case Requested():
                try:
                    return self._requested(event, now)
                except ProducerIdRequired:
                    return Result(event, needs_producer_id=True)
            case MarkersWritten():
                return self._markers_written(event, now)
            case TimerFired(AbortTimer()):
                return self._abort_timed_out(event, now)
            case TimerFired(ExpiryTimer()):
                return self._remove_expired(event, now)
            case TimerFired(CompletionTimer(transactional_id)):
                metadata = self.transactions.get(transactional_id)
                if metadata is None or not metadata.state.is_ending or metadata.partitions:
                    return Result(event)
                return Result(event, [self._record(prepare_complete(metadata, now))])
            case _:
                raise TypeError(f"{event} is not for a transaction coordinator")

    def write_failed(self, result: Result, error: ErrorCode, now: int, *, applied: bool) -> Result:
        """What follows when the records of a result could not be written, or not committed.

        `applied` says whether its changes were. Where they were not, nothing has happened: who
        asked is told so, and a timer comes again. Where they were, who asked gets an error, but
        what was decided stands, and its markers are written once it is committed.
        """
        event = result.event
        responses: list[Response] = []
        if isinstance(event, Requested):
            told = error_response(event.request, event.context.version, client_error(error))
            responses.append(Response(event.context.waiter, told))
        if applied:
            return Result(responses=responses, markers=result.markers)
        again = now + WRITE_RETRY_MS
        if isinstance(event, TimerFired):
            return Result(timers=[SetTimer(event.timer, again)])
        if isinstance(event, MarkersWritten):
            completion = CompletionTimer(event.transactional_id)
            return Result(marked=event, timers=[SetTimer(completion, again)])
        return Result(responses=responses)

    def _requested(self, event: Requested, now: int) -> Result:
        match event.request:
            case InitProducerIdRequest() as request:
                return self._init_producer_id(event, request, now)
            case AddPartitionsToTxnRequest() as request:
                return self._add_partitions(event, request, now)
            case AddOffsetsToTxnRequest() as request:
                group_partition = partition_for(request.group_id, self.config.group_partitions)
                partition = TopicPartition(GROUP_METADATA_TOPIC, group_partition)
                return self._added(
                    event,
                    request.transactional_id,
                    request.producer_id,
                    request.producer_epoch,
                    frozenset({partition}),
                    # Clients of version 2 do not send this request.
                    0,
                    now,
                )
            case EndTxnRequest() as request:
                return self._end(event, request, now)
            case DescribeTransactionsRequest() as request:
                described = [
                    describe(name, self.transactions.get(name))
                    for name in request.transactional_ids
                ]
                return _answer(event, DescribeTransactionsResponse(transaction_states=described))
            case ListTransactionsRequest() as request:
                return _answer(event, list_transactions(self.transactions.values(), request, now))
            case other:
                raise TypeError(f"{type(other).__name__} is not for a transaction coordinator")

    # --- requests

    def _init_producer_id(
        self, event: Requested, request: InitProducerIdRequest, now: int
    ) -> Result:
        known = self.transactions.get(request.transactional_id or "")
        decided = init_producer_id(known, request, self.config, event.context.new_producer_id, now)
        if isinstance(decided, ErrorCode):
            return _refuse(event, decided)
        if decided.state.is_ending:
            again = error_response(
                request, event.context.version, ErrorCode.CONCURRENT_TRANSACTIONS
            )
            return self._ending(event, decided, again, now)
        response = InitProducerIdResponse(
            producer_id=decided.producer_id, producer_epoch=decided.producer_epoch
        )
        return _answer(event, response, [self._record(decided)])

    def _add_partitions(
        self, event: Requested, request: AddPartitionsToTxnRequest, now: int
    ) -> Result:
        (transaction,) = request.transactions
        name = transaction.transactional_id
        if transaction.verify_only:
            verified = verify_partitions(self.transactions.get(name), transaction)
            response = AddPartitionsToTxnResponse(results_by_transaction=[verified])
            return _answer(event, response)
        return self._added(
            event,
            name,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions_in(transaction.topics),
            2 if event.context.version >= _FIRST_OF_BROKERS else 0,
            now,
        )

    def _added(
        self,
        event: Requested,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        client_transaction_version: int,
        now: int,
    ) -> Result:
        if not transactional_id:
            return _refuse(event, ErrorCode.INVALID_REQUEST)
        decided = add_partitions(
            self.transactions.get(transactional_id),
            producer_id,
            producer_epoch,
            partitions,
            client_transaction_version,
            now,
        )
        if isinstance(decided, ErrorCode):
            return _refuse(event, decided)
        response = error_response(event.request, event.context.version, ErrorCode.NONE)
        return _answer(event, response, [self._record(decided)])

    def _end(self, event: Requested, request: EndTxnRequest, now: int) -> Result:
        version = event.context.version
        known = self.transactions.get(request.transactional_id)
        decided = end_transaction(known, request, version, event.context.new_producer_id, now)
        if isinstance(decided, ErrorCode):
            if decided or known is None or version < FIRST_EPOCH_BUMP:
                return _refuse(event, decided)
            return _answer(event, _ended(known))
        if version < FIRST_EPOCH_BUMP:
            return self._ending(event, decided, EndTxnResponse(), now)
        return self._ending(event, decided, _ended(prepare_complete(decided, now)), now)

    def _ending(
        self, event: Requested, metadata: TransactionMetadata, response: Message, now: int
    ) -> Result:
        markers, timers = _ends([metadata], now)
        sent = Response(event.context.waiter, response)
        return Result(
            event, [self._record(metadata)], responses=[sent], timers=timers, markers=markers
        )

    # --- markers

    def _waiting_for(self, written: MarkersWritten) -> TransactionMetadata | None:
        """The transaction whose markers these are, unless it is over."""
        metadata = self.transactions.get(written.transactional_id)
        if (
            metadata is None
            or not metadata.state.is_ending
            or metadata.producer_id != written.producer_id
            or metadata.producer_epoch != written.producer_epoch
        ):
            return None
        return metadata

    def _markers_written(self, event: MarkersWritten, now: int) -> Result:
        metadata = self._waiting_for(event)
        if metadata is None:
            return Result(event)
        if metadata.partitions <= event.partitions:
            return Result(event, [self._record(prepare_complete(metadata, now))])
        return Result(event, marked=event)

    # --- scans

    def _abort_timed_out(self, event: TimerFired[Timer], now: int) -> Result:
        # No new id is at hand for a producer without epochs left. It is fenced with the last epoch
        # of all; whoever comes next, be it the same producer, gets an id then.
        aborted = [
            prepare_fence(metadata, self.config.transaction_version, NO_ID, now)
            for metadata in self.transactions.values()
            if metadata.state is TransactionState.ONGOING
            and metadata.timeout_ms != NO_TIMEOUT_MS
            and metadata.start_ms + metadata.timeout_ms < now
        ]
        markers, timers = _ends(aborted, now)
        again = SetTimer(event.timer, now + self.config.abort_timed_out_cleanup_interval_ms)
        records = [self._record(metadata) for metadata in aborted]
        return Result(event, records, timers=[again, *timers], markers=markers)

    def _remove_expired(self, event: TimerFired[Timer], now: int) -> Result:
        since = now - self.config.transactional_id_expiration_ms
        records = [
            tombstone(metadata.transactional_id)
            for metadata in self.transactions.values()
            if metadata.state.may_expire and metadata.last_update_ms <= since
        ]
        again = SetTimer(event.timer, now + self.config.remove_expired_cleanup_interval_ms)
        return Result(event, records, timers=[again])

    def _record(self, metadata: TransactionMetadata) -> TransactionRecord:
        return record_of(metadata, self.config.transaction_version)


def _ends(ending: Iterable[TransactionMetadata], now: int) -> tuple[list[WriteMarkers], _Timers]:
    """What has the ends of transactions written into their partitions."""
    markers: list[WriteMarkers] = []
    timers: list[SetTimer[Timer]] = []
    for metadata in ending:
        if not metadata.partitions:
            timers.append(SetTimer(CompletionTimer(metadata.transactional_id), now))
            continue
        markers.append(
            WriteMarkers(
                metadata.transactional_id,
                metadata.producer_id,
                metadata.producer_epoch,
                metadata.state is TransactionState.PREPARE_COMMIT,
                metadata.partitions,
                metadata.client_transaction_version,
            )
        )
    return markers, timers


def _ended(metadata: TransactionMetadata) -> EndTxnResponse:
    """With what the producer goes on."""
    return EndTxnResponse(producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch)


def _answer(
    event: Requested, response: Message, records: Sequence[TransactionRecord] = ()
) -> Result:
    return Result(event, records, responses=[Response(event.context.waiter, response)])


def _refuse(event: Requested, error: ErrorCode) -> Result:
    return _answer(event, error_response(event.request, event.context.version, error))
