"""The coordinator of the transactions of one partition of `__transaction_state`, a state machine.

It holds the state of each transactional id of the partition (P4). A host runs it as it runs a group
shard, which `penstock.coordinator.group.shard` describes: `handle` decides and changes nothing,
only `apply` changes state. This is different here:

**Load.** The result of `start` has the markers that may not have been written before.

**Results.** The host processes a result in this order:

0. If `needs_producer_id` is set, nothing is decided: the host gets an id and repeats the event
   with `Context.new_producer_id`. Other events may come in between. Only requests need an id.
1. It appends the `records`. If that fails, it replaces the result by
   `write_failed(result, error, now, applied=False)`.
2. It passes each of `changes` to `apply`: the records, and `marked`.
3. It sets and cancels the `timers`.
4. It sends the `responses` and starts to write the `markers` once everything that has been appended
   so far is committed. If that takes too long, `write_failed(result, error, now, applied=True)`
   replaces the rest of the result.

The responses of a `write_failed` result are sent at once, but its `markers` wait for the high
watermark: a marker must never be in a partition before the decision that it follows from is
committed.

**Requests.** Every request gets its response in the result of its own event. AddPartitionsToTxn has
one transaction, in the form of version 4 and above whatever the version, and so has its response.
DescribeTransactions has ids of this shard; ListTransactions goes to each shard, and the host
applies its pattern to the ids in the response. InitProducerId without a transactional id is not for
a coordinator. The host checks the client's rights and whether partitions exist.

**Damage.** `on_damage` says that a batch of the log cannot be read. A transaction that was open
before it, and has no later record, may have been prepared in it: only its producer, or an operator,
can end it.

**Markers.** A transaction in PrepareCommit or PrepareAbort has its outcome, which never changes.
Its markers are written, again after every load, until `MarkersWritten` has named all its
partitions. Then it is complete. A transaction without partitions completes through a timer.

**Unload.** The host stops writing markers.
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
from penstock.coordinator.txn.producer_id_required import ProducerIdRequired
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

_BROKER_VERSION = 4
"""The first version of AddPartitionsToTxn that brokers send, for transaction version 2."""

_Timers = Sequence[SetTimer[Timer] | CancelTimer[Timer]]


class TransactionShard:
    """The transactional ids of one partition. `config` may be replaced at any time."""

    def __init__(self, config: TransactionConfig) -> None:
        self.config = config
        self.transactions: dict[str, TransactionMetadata] = {}
        self.in_doubt: set[str] = set()
        """Ids whose transaction was open before a batch of the log that cannot be read. Its outcome
        may have been decided there, so it is not aborted when it times out."""

    # --- state

    def apply(self, change: TransactionRecord | MarkersWritten) -> None:
        """Applies a record of the partition, or that markers have been written."""
        if isinstance(change, MarkersWritten):
            metadata = self._ending_transaction(change)
            if metadata is not None:
                remaining = metadata.partitions - change.partitions
                self.transactions[change.transactional_id] = replace(metadata, partitions=remaining)
            return
        self.in_doubt.discard(change.key.transactional_id)
        if change.value is None:
            self.transactions.pop(change.key.transactional_id, None)
        else:
            metadata = metadata_of(change, change.value)
            self.transactions[metadata.transactional_id] = metadata

    def on_damage(self) -> None:
        self.in_doubt.update(
            name
            for name, metadata in self.transactions.items()
            if metadata.state is TransactionState.ONGOING
        )

    def start(self, now: int) -> Result:
        """Continues to end transactions and starts the scans, once all records are applied."""
        ending = [metadata for metadata in self.transactions.values() if metadata.state.is_ending]
        markers, timers = _write_markers(ending, now)
        return Result(
            timers=[
                SetTimer(AbortTimer(), now + self.config.abort_timed_out_cleanup_interval_ms),
                SetTimer(ExpiryTimer(), now + self.config.remove_expired_cleanup_interval_ms),
                *timers,
            ],
            markers=markers,
        )

    def unload(self) -> list[Response]:
        """Returns no responses: no request waits inside the shard."""
        return []

    # --- decisions

    def handle(self, event: Event, now: int) -> Result:
        match event:
            case Requested():
                try:
                    return self._handle_request(event, now)
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
        """Returns what follows when the records of a result are not written or not committed.

        If its changes were not applied, the client gets an error and a timer fires again later. If
        they were, the client gets an error but the decision holds, and its markers are written once
        it is committed.
        """
        event = result.event
        responses: list[Response] = []
        if isinstance(event, Requested):
            message = error_response(event.request, event.context.version, client_error(error))
            responses.append(Response(event.context.waiter, message))
        if applied:
            return Result(responses=responses, markers=result.markers)
        retry_ms = now + WRITE_RETRY_MS
        if isinstance(event, TimerFired):
            return Result(timers=[SetTimer(event.timer, retry_ms)])
        if isinstance(event, MarkersWritten):
            completion = CompletionTimer(event.transactional_id)
            return Result(marked=event, timers=[SetTimer(completion, retry_ms)])
        return Result(responses=responses)

    def _handle_request(self, event: Requested, now: int) -> Result:
        match event.request:
            case InitProducerIdRequest() as request:
                return self._init_producer_id(event, request, now)
            case AddPartitionsToTxnRequest() as request:
                return self._add_partitions(event, request, now)
            case AddOffsetsToTxnRequest() as request:
                group_partition = partition_for(request.group_id, self.config.group_partitions)
                partition = TopicPartition(GROUP_METADATA_TOPIC, group_partition)
                return self._add(
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
                return _respond(event, DescribeTransactionsResponse(transaction_states=described))
            case ListTransactionsRequest() as request:
                return _respond(event, list_transactions(self.transactions.values(), request, now))
            case other:
                raise TypeError(f"{type(other).__name__} is not for a transaction coordinator")

    # --- requests

    def _init_producer_id(
        self, event: Requested, request: InitProducerIdRequest, now: int
    ) -> Result:
        current = self.transactions.get(request.transactional_id or "")
        decided = init_producer_id(
            current, request, self.config, event.context.new_producer_id, now
        )
        if isinstance(decided, ErrorCode):
            return _respond_error(event, decided)
        if decided.state.is_ending:
            retry = error_response(
                request, event.context.version, ErrorCode.CONCURRENT_TRANSACTIONS
            )
            return self._begin_end(event, decided, retry, now)
        response = InitProducerIdResponse(
            producer_id=decided.producer_id, producer_epoch=decided.producer_epoch
        )
        return _respond(event, response, [self._record(decided)])

    def _add_partitions(
        self, event: Requested, request: AddPartitionsToTxnRequest, now: int
    ) -> Result:
        (transaction,) = request.transactions
        name = transaction.transactional_id
        if transaction.verify_only:
            verified = verify_partitions(self.transactions.get(name), transaction)
            response = AddPartitionsToTxnResponse(results_by_transaction=[verified])
            return _respond(event, response)
        return self._add(
            event,
            name,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions_in(transaction.topics),
            2 if event.context.version >= _BROKER_VERSION else 0,
            now,
        )

    def _add(
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
            return _respond_error(event, ErrorCode.INVALID_REQUEST)
        decided = add_partitions(
            self.transactions.get(transactional_id),
            producer_id,
            producer_epoch,
            partitions,
            client_transaction_version,
            now,
        )
        if isinstance(decided, ErrorCode):
            return _respond_error(event, decided)
        response = error_response(event.request, event.context.version, ErrorCode.NONE)
        return _respond(event, response, [self._record(decided)])

    def _end(self, event: Requested, request: EndTxnRequest, now: int) -> Result:
        version = event.context.version
        current = self.transactions.get(request.transactional_id)
        decided = end_transaction(current, request, version, event.context.new_producer_id, now)
        if isinstance(decided, ErrorCode):
            if decided or current is None or version < FIRST_EPOCH_BUMP:
                return _respond_error(event, decided)
            return _respond(event, _end_response(current))
        if version < FIRST_EPOCH_BUMP:
            return self._begin_end(event, decided, EndTxnResponse(), now)
        return self._begin_end(event, decided, _end_response(prepare_complete(decided, now)), now)

    def _begin_end(
        self, event: Requested, metadata: TransactionMetadata, response: Message, now: int
    ) -> Result:
        markers, timers = _write_markers([metadata], now)
        sent = Response(event.context.waiter, response)
        return Result(
            event, [self._record(metadata)], responses=[sent], timers=timers, markers=markers
        )

    # --- markers

    def _ending_transaction(self, written: MarkersWritten) -> TransactionMetadata | None:
        """Returns the transaction of these markers, unless it is complete."""
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
        metadata = self._ending_transaction(event)
        if metadata is None:
            return Result(event)
        if metadata.partitions <= event.partitions:
            return Result(event, [self._record(prepare_complete(metadata, now))])
        return Result(event, marked=event)

    # --- scans

    def _abort_timed_out(self, event: TimerFired[Timer], now: int) -> Result:
        # There is no new id for a producer without further epochs. It is fenced with the highest
        # epoch; the next producer, even if it is the same one, gets a new id.
        aborted = [
            prepare_fence(metadata, self.config.transaction_version, NO_ID, now)
            for metadata in self.transactions.values()
            if metadata.state is TransactionState.ONGOING
            and metadata.transactional_id not in self.in_doubt
            and metadata.timeout_ms != NO_TIMEOUT_MS
            and metadata.start_ms + metadata.timeout_ms < now
        ]
        markers, timers = _write_markers(aborted, now)
        next_scan = SetTimer(event.timer, now + self.config.abort_timed_out_cleanup_interval_ms)
        records = [self._record(metadata) for metadata in aborted]
        return Result(event, records, timers=[next_scan, *timers], markers=markers)

    def _remove_expired(self, event: TimerFired[Timer], now: int) -> Result:
        expired_ms = now - self.config.transactional_id_expiration_ms
        records = [
            tombstone(metadata.transactional_id)
            for metadata in self.transactions.values()
            if metadata.state.can_expire and metadata.last_update_ms <= expired_ms
        ]
        next_scan = SetTimer(event.timer, now + self.config.remove_expired_cleanup_interval_ms)
        return Result(event, records, timers=[next_scan])

    def _record(self, metadata: TransactionMetadata) -> TransactionRecord:
        return record_of(metadata, self.config.transaction_version)


def _write_markers(
    ending: Iterable[TransactionMetadata], now: int
) -> tuple[list[WriteMarkers], _Timers]:
    """Returns the effects and timers that end transactions in their partitions."""
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


def _end_response(metadata: TransactionMetadata) -> EndTxnResponse:
    """Returns the response with the id and epoch with which the producer continues."""
    return EndTxnResponse(producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch)


def _respond(
    event: Requested, response: Message, records: Sequence[TransactionRecord] = ()
) -> Result:
    return Result(event, records, responses=[Response(event.context.waiter, response)])


def _respond_error(event: Requested, error: ErrorCode) -> Result:
    return _respond(event, error_response(event.request, event.context.version, error))
