"""Transactions of a producer: where it is with them, and what it has to ask coordinators for.

A machine without I/O: requests are taken out of it one at a time, and it is handed the answers.
"""

import heapq
import logging
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.errors import (
    ClientError,
    CommitFailedError,
    IllegalStateError,
    ProducerFencedError,
    error_of,
)
from penstock.client.producer.idempotence import (
    NO_PRODUCER,
    ProducerIdAndEpoch,
    Sequences,
)
from penstock.client.producer.txn_request import Coordinator, TxnRequest, TxnResult
from penstock.client.producer.txn_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    FindCoordinator,
    InitProducerId,
    TxnOffsetCommit,
)
from penstock.client.producer.txn_state import SOURCES, State, misuse
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node

log = logging.getLogger(__name__)

_FATAL: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""After one of these for a batch, no other batch can do better."""


class TransactionMachine:
    """States and requests. Calls of the user raise what is wrong with them, and change nothing
    then."""

    def __init__(
        self,
        transactional_id: str | None = None,
        *,
        transaction_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
    ) -> None:
        self.transactional_id = transactional_id
        self.retry_backoff_ms = retry_backoff_ms
        self.state = State.UNINITIALIZED
        self.last_error: KafkaError | None = None
        self.sendable = not self.is_transactional
        """Whether `check_send` would let records pass. May be read by any thread."""
        self.producer = NO_PRODUCER
        """The id and epoch that new batches get."""
        self.is_v2 = False
        """Whether brokers add partitions by themselves and EndTxn gives a new epoch (KIP-890)."""
        self.transaction_started = False
        """Whether a coordinator knows, or may know, of the transaction."""
        self.new_partitions: set[TopicPartition] = set()
        self.pending_partitions: set[TopicPartition] = set()
        self.partitions_in_transaction: set[TopicPartition] = set()
        self.coordinators: dict[tuple[Coordinator, str], Node] = {}
        """Those that are known."""
        self.in_flight: TxnRequest[Any] | None = None
        self._transaction_timeout_ms = transaction_timeout_ms
        self._sequences = Sequences()
        self._bump_required = False
        self._coordinator_bumps = False
        self._was_refused = False
        self._gets_new_id = False
        """The last epoch of an idempotent producer's id is used up."""
        self._queue: list[tuple[int, int, TxnRequest[Any]]] = []
        self._order = count()
        self._transition: tuple[TxnResult, State] | None = None
        """A call that the user may have to repeat, because its time ran out."""

    # What a user does

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    def initialize(self) -> TxnResult:
        """init_transactions: fences producers before this one and gets an id."""
        self.ensure_transactional()
        return self._cached(self._initialize, State.INITIALIZING, "init_transactions")

    def _initialize(self) -> TxnResult:
        self._raise_error()
        self._to(State.INITIALIZING, "init_transactions")
        request = InitProducerId(self, self._transaction_timeout_ms)
        self.enqueue(request)
        return request.result

    def begin(self) -> None:
        self.ensure_transactional()
        self._raise_pending("begin_transaction")
        self._raise_error()
        self._to(State.IN_TRANSACTION, "begin_transaction")

    def begin_commit(self, transaction_version: int | None) -> TxnResult:
        def commit() -> TxnResult:
            self._raise_error()
            self._to(State.COMMITTING_TRANSACTION, "commit_transaction")
            return self._complete(transaction_version, commit=True)

        self.ensure_transactional()
        return self._cached(commit, State.COMMITTING_TRANSACTION, "commit_transaction")

    def begin_abort(self, transaction_version: int | None) -> TxnResult:
        def abort() -> TxnResult:
            if self.state is not State.ABORTABLE_ERROR:
                self._raise_error()
            self._to(State.ABORTING_TRANSACTION, "abort_transaction")
            self.new_partitions.clear()
            return self._complete(transaction_version, commit=False)

        self.ensure_transactional()
        return self._cached(abort, State.ABORTING_TRANSACTION, "abort_transaction")

    def _complete(self, transaction_version: int | None, *, commit: bool) -> TxnResult:
        if self.new_partitions:
            self._enqueue_new_partitions()
        request = EndTxn(self, commit=commit)
        # The transaction ends as it began; the next may be of the cluster's new version.
        self.note_transaction_version(transaction_version)
        self.enqueue(request)
        if not self._bump_required:
            return request.result
        bump = InitProducerId(self, self._transaction_timeout_ms, self.producer)
        self.enqueue(bump)
        return bump.result

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TxnResult:
        self.ensure_transactional()
        self._raise_pending("send_offsets_to_transaction")
        self._raise_error()
        if self.state is not State.IN_TRANSACTION:
            raise IllegalStateError(
                f"the producer is {self.state.value}: offsets go into a transaction, "
                "call begin_transaction first"
            )
        request: TxnRequest[Any]
        if self.is_v2:
            request = TxnOffsetCommit(self, offsets, group)
            self.transaction_started = True
        else:
            request = AddOffsetsToTxn(self, offsets, group)
        self.enqueue(request)
        return request.result

    def check_send(self) -> None:
        """Raises where records may not be sent now."""
        self._raise_error()
        self._raise_pending("send")
        if not self.is_transactional:
            return
        if not self.producer.is_valid:
            raise IllegalStateError("call init_transactions before anything is sent")
        if self.state is not State.IN_TRANSACTION:
            raise IllegalStateError(
                f"the producer is {self.state.value}: with a transactional_id records are sent "
                "in transactions only, call begin_transaction first"
            )

    def add_partition(self, partition: TopicPartition) -> None:
        """A record was sent to this partition; it becomes part of the transaction."""
        self.check_send()
        if not self.is_transactional or partition in self.partitions_in_transaction:
            return
        if self.is_v2:
            self.partitions_in_transaction.add(partition)
            self.transaction_started = True
        elif partition not in self.pending_partitions:
            self.new_partitions.add(partition)

    def knows(self, partition: TopicPartition) -> bool:
        """Whether `add_partition` would do nothing. May be called by any thread."""
        return partition in self.partitions_in_transaction or partition in self.pending_partitions

    def note_transaction_version(self, level: int | None, *, initially: bool = False) -> None:
        """The cluster's finalized `transaction.version`; None where it cannot be told now."""
        if level is None:
            return
        was, self.is_v2 = self.is_v2, level >= 2
        if self.is_v2 and not was and not initially:
            self._bump_required = True

    # Requests to coordinators, one at a time

    def enqueue(self, request: TxnRequest[Any]) -> None:
        heapq.heappush(self._queue, (request.priority, next(self._order), request))

    def look_up(self, kind: Coordinator, key: str) -> None:
        """Whoever was known does not coordinate any more, or does not answer."""
        self.coordinators.pop((kind, key), None)
        if not any(
            isinstance(request, FindCoordinator) and request.key == key
            for _, _, request in self._queue
        ):
            self.enqueue(FindCoordinator(self, kind, key))

    def next_request(self, *, has_incomplete: bool) -> TxnRequest[Any] | None:
        """What to send now; the caller sets `in_flight` until there is an answer.

        `has_incomplete`: batches are still on their way; a transaction ends after them.
        """
        if self.new_partitions:
            self._enqueue_new_partitions()
        if not self._queue or (self._queue[0][2].is_end and has_incomplete):
            return None
        request = self._take()
        if self.has_error and not (
            self.has_abortable_error and isinstance(request, FindCoordinator)
        ):
            assert self.last_error is not None
            request.fail(self.last_error)
            return None
        if request.is_end and not self.transaction_started:
            self.transaction_ended(request.result)
            return self._take() if self._queue else None
        return request

    def _take(self) -> TxnRequest[Any]:
        return heapq.heappop(self._queue)[2]

    def _enqueue_new_partitions(self) -> None:
        self.pending_partitions |= self.new_partitions
        self.new_partitions.clear()
        self.enqueue(AddPartitionsToTxn(self, sorted(self.pending_partitions)))

    def coordinator_ready(self, init_producer_id_version: int) -> None:
        """A connection to the transaction coordinator is there: KIP-360 from version 3 on."""
        self._coordinator_bumps = init_producer_id_version >= 3

    def initialized(self, producer: ProducerIdAndEpoch, *, is_bump: bool) -> None:
        self.producer = producer
        self._to(State.READY)
        if is_bump:
            self._sequences.reset()

    def next_epoch(self, producer: ProducerIdAndEpoch) -> None:
        """EndTxn of v2 was answered with the epoch of the next transaction."""
        self.producer = producer
        self._sequences.reset()

    def transaction_ended(self, result: TxnResult) -> None:
        """Everything is as before the transaction, and `result` is done.

        Where the sequences have come into doubt while it was being ended, a new epoch comes first.
        """
        bump_comes = any(isinstance(request, InitProducerId) for _, _, request in self._queue)
        if self._bump_required:
            self._to(State.INITIALIZING)
            if not bump_comes:
                self.enqueue(
                    InitProducerId(self, self._transaction_timeout_ms, self.producer, result)
                )
        else:
            self._to(State.READY)
        self.transaction_started = False
        self.new_partitions.clear()
        self.pending_partitions.clear()
        self.partitions_in_transaction.clear()
        if bump_comes or not self._bump_required:
            result.done()
        self._bump_required = False

    def partitions_added(self, partitions: list[TopicPartition]) -> None:
        self.partitions_in_transaction.update(partitions)
        self.transaction_started = True

    def authentication_failed(self, error: KafkaError) -> None:
        for _, _, request in list(self._queue):
            request.fatal(error)

    def fail_pending(self, error: KafkaError) -> None:
        queue, self._queue = self._queue, []
        for _, _, request in queue:
            request.fail(error)

    def close(self) -> None:
        """Nothing more will be asked: whoever waits is told."""
        error = IllegalStateError("the producer was closed before this call was done")
        self.fail_pending(error)
        if self.in_flight is not None:
            self.in_flight.fail(error)
        if self._transition is not None:
            self._transition[0].fail(error)

    @property
    def has_pending_requests(self) -> bool:
        return bool(self._queue) or self.in_flight is not None

    # State and errors

    @property
    def has_error(self) -> bool:
        return self.state is State.ABORTABLE_ERROR or self.state is State.FATAL_ERROR

    @property
    def has_fatal_error(self) -> bool:
        return self.state is State.FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self.state is State.ABORTABLE_ERROR

    @property
    def is_completing(self) -> bool:
        return self.state in (State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION)

    @property
    def is_aborting(self) -> bool:
        return self.state is State.ABORTING_TRANSACTION

    @property
    def has_ongoing_transaction(self) -> bool:
        return self.state is State.IN_TRANSACTION or self.is_completing or self.has_abortable_error

    @property
    def can_handle_abortable_error(self) -> bool:
        """Whether an epoch can follow the one whose sequences are in doubt."""
        return self._coordinator_bumps or self.is_v2

    def bump_after_error(self) -> None:
        """In v2 every transaction ends with a new epoch; before, the producer asks for one."""
        if self._coordinator_bumps and not self.is_v2:
            self._bump_required = True

    def to_abortable_error(self, error: KafkaError) -> None:
        if self.state is State.ABORTING_TRANSACTION:
            return
        log.info("the transaction of %s has to be aborted: %s", self.transactional_id, error)
        self._to(State.ABORTABLE_ERROR, error=error)

    def to_fatal_error(self, error: KafkaError) -> None:
        # Not a warning: every call of the producer raises it from here on.
        log.info("the producer cannot go on: %s", error)
        self._to(State.FATAL_ERROR, error=error)
        if self._transition is not None:
            self._transition[0].fail(error)

    def to_uninitialized(self, error: KafkaError) -> None:
        """Rights can be given: init_transactions may be tried again with this producer."""
        self._to(State.UNINITIALIZED)
        self._was_refused = True
        if self._transition is not None:
            self._transition[0].fail(error)

    def batch_or_send_failed(self, error: KafkaError) -> None:
        """A record of the transaction will not be there: the transaction must not be committed."""
        if error.code in _FATAL:
            self.to_fatal_error(error)
        elif self.is_transactional:
            if self.state not in SOURCES[State.ABORTABLE_ERROR] and not self.is_aborting:
                return
            if error.code.retriable or error.code is ErrorCode.INVALID_TXN_STATE:
                cause, error = (
                    error,
                    error_of(
                        ErrorCode.TRANSACTION_ABORTABLE,
                        f"records of the transaction could not be sent: {error.message}; "
                        "abort it (abort_transaction) and do it again",
                    ),
                )
                error.__cause__ = cause
            if not self.is_completing:
                self.bump_after_error()
            self.to_abortable_error(error)

    def fenced(self) -> ClientError:
        return ProducerFencedError(
            f"a newer producer with transactional id {self.transactional_id!r} has fenced this one "
            f"({self.producer}): close it"
        )

    def commit_failed(self, group: str, code: ErrorCode) -> ClientError:
        return CommitFailedError(
            f"offsets were not added to the transaction: the consumer is no longer a member of "
            f"this generation of group {group!r} ({code.name}); abort the transaction and go on "
            "from the last committed offsets",
            code,
        )

    def _raise_error(self) -> None:
        if not self.has_error:
            return
        error = self.last_error
        assert error is not None
        if error.code is ErrorCode.PRODUCER_FENCED:
            raise self.fenced()
        do = "close the producer" if self.has_fatal_error else "call abort_transaction"
        message = f"{error.message} [{do}]"
        if isinstance(error, ClientError):
            raise type(error)(message, error.code) from error
        raise error_of(error.code, message) from error

    def _raise_pending(self, operation: str) -> None:
        if self._transition is None:
            return
        result, _ = self._transition
        if not result.acked:
            raise IllegalStateError(
                f"{operation} has to wait: {result.operation} ran out of time before; call it "
                "again until it is done"
            )
        self._transition = None

    def _cached(self, start: Callable[[], TxnResult], state: State, name: str) -> TxnResult:
        if self._transition is not None:
            result, to = self._transition
            if not result.acked:
                if to is state:
                    return result
                self._raise_pending(name)
            self._transition = None
        result = start()
        result.operation = name
        self._transition = result, state
        return result

    def _to(
        self, target: State, call: str | None = None, *, error: KafkaError | None = None
    ) -> None:
        if self.state not in SOURCES[target]:
            wrong = IllegalStateError(misuse(self.state, call or f"becoming {target.value}"))
            if call is None:
                # Not the user but the sender is wrong about the state: nothing can be relied on.
                self.state = State.FATAL_ERROR
                self.sendable = False
                self.last_error = wrong
            raise wrong
        self.last_error = error
        self.state = target
        self.sendable = (
            target is State.IN_TRANSACTION if self.is_transactional else not self.has_error
        )

    def ensure_transactional(self) -> None:
        if not self.is_transactional:
            raise IllegalStateError("transactions need a producer with a transactional_id")
