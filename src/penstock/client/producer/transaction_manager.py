"""The state of an idempotent or transactional producer, and its requests to coordinators.

A state machine without I/O, used on the producer's loop: the driver takes requests from it, one at
a time, and passes the responses to `TxnRequest.handle`.
"""

import heapq
import logging
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.coordinators import CoordinatorKind
from penstock.client.errors import (
    ClientError,
    CommitFailedError,
    IllegalStateError,
    ProducerFencedError,
    error_of,
)
from penstock.client.producer.sequencer import BatchSequencer
from penstock.client.producer.sequences import NO_PRODUCER, ProducerIdAndEpoch
from penstock.client.producer.transaction_request import TxnRequest, TxnResult
from penstock.client.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    FindCoordinator,
    InitProducerId,
    TxnOffsetCommit,
)
from penstock.client.producer.transaction_state import SOURCES, State, illegal_call
from penstock.core.errors import ErrorCode, KafkaError, nested_text
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Node

logger = logging.getLogger(__name__)

_FATAL_ERRORS: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors of a batch that every other batch would get too."""


class TransactionManager:
    """The transactions of a producer. Without a `transactional_id` it is idempotent only: it has a
    producer id, an epoch and sequences.

    A call that is not allowed in the current state raises IllegalStateError and changes nothing.
    """

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
        self.can_send = not self.is_transactional
        """Whether `check_send` would succeed. Any thread may read it."""
        self.producer = NO_PRODUCER
        """The producer id and epoch of new batches."""
        self.is_v2 = False
        """Whether brokers add partitions, and EndTxn returns a new epoch (KIP-890)."""
        self.transaction_started = False
        """Whether a coordinator may have the transaction in its log."""
        self.new_partitions: set[TopicPartition] = set()
        self.pending_partitions: set[TopicPartition] = set()
        self.partitions_in_transaction: set[TopicPartition] = set()
        self.coordinators: dict[tuple[CoordinatorKind, str], Node] = {}
        self.in_flight: TxnRequest[Any] | None = None
        self.sequencer = BatchSequencer(self)
        self._transaction_timeout_ms = transaction_timeout_ms
        self.epoch_bump_required = False
        self._coordinator_supports_bump = False
        self._was_unauthorized = False
        self._queue: list[tuple[int, int, TxnRequest[Any]]] = []
        self._enqueue_order = count()
        self._pending_transition: tuple[TxnResult, State] | None = None
        """The call in progress, to be repeated if it times out, and the state it enters."""

    # --- calls of the user

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    def initialize(self) -> TxnResult:
        """Fences earlier producers with this id, and requests a producer id."""
        self.ensure_transactional()
        return self._start_or_repeat(self._initialize, State.INITIALIZING, "init_transactions")

    def _initialize(self) -> TxnResult:
        self._raise_error()
        self._transition_to(State.INITIALIZING, "init_transactions")
        request = InitProducerId(self, self._transaction_timeout_ms)
        self.enqueue(request)
        return request.result

    def begin(self) -> None:
        self.ensure_transactional()
        self._raise_pending("begin_transaction")
        self._raise_error()
        self._transition_to(State.IN_TRANSACTION, "begin_transaction")

    def begin_commit(self, transaction_version: int | None) -> TxnResult:
        def commit() -> TxnResult:
            self._raise_error()
            self._transition_to(State.COMMITTING_TRANSACTION, "commit_transaction")
            return self._complete(transaction_version, commit=True)

        self.ensure_transactional()
        return self._start_or_repeat(commit, State.COMMITTING_TRANSACTION, "commit_transaction")

    def begin_abort(self, transaction_version: int | None) -> TxnResult:
        def abort() -> TxnResult:
            if self.state is not State.ABORTABLE_ERROR:
                self._raise_error()
            self._transition_to(State.ABORTING_TRANSACTION, "abort_transaction")
            self.new_partitions.clear()
            return self._complete(transaction_version, commit=False)

        self.ensure_transactional()
        return self._start_or_repeat(abort, State.ABORTING_TRANSACTION, "abort_transaction")

    def _complete(self, transaction_version: int | None, *, commit: bool) -> TxnResult:
        if self.new_partitions:
            self._enqueue_new_partitions()
        request = EndTxn(self, commit=commit)
        # This transaction ends with the version it began with; the next may use a newer one.
        self.set_transaction_version(transaction_version)
        self.enqueue(request)
        if not self.epoch_bump_required:
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
        """Raises IllegalStateError, or the error of the transaction, if no record may be sent."""
        self._raise_error()
        self._raise_pending("send")
        if not self.is_transactional:
            return
        if not self.producer.is_valid:
            raise IllegalStateError("call init_transactions before anything is sent")
        if self.state is not State.IN_TRANSACTION:
            raise IllegalStateError(
                f"the producer is {self.state.value}: with a `transactional_id` records are sent "
                "in transactions only, call begin_transaction first"
            )

    def add_partition(self, partition: TopicPartition) -> None:
        """Makes the partition of a record that was sent a part of the transaction."""
        self.check_send()
        if not self.is_transactional or partition in self.partitions_in_transaction:
            return
        if self.is_v2:
            self.partitions_in_transaction.add(partition)
            self.transaction_started = True
        elif partition not in self.pending_partitions:
            self.new_partitions.add(partition)

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether `add_partition` would do nothing. Any thread may call it."""
        return partition in self.partitions_in_transaction or partition in self.pending_partitions

    def set_transaction_version(self, level: int | None, *, initially: bool = False) -> None:
        """Sets the cluster's finalized `transaction.version`; None if it is unknown now."""
        if level is None:
            return
        was_v2, self.is_v2 = self.is_v2, level >= 2
        if self.is_v2 and not was_v2 and not initially:
            self.epoch_bump_required = True

    # --- requests to coordinators, one at a time

    def enqueue(self, request: TxnRequest[Any]) -> None:
        heapq.heappush(self._queue, (request.priority, next(self._enqueue_order), request))

    def look_up_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Requests the coordinator anew, because the previous one moved or does not respond."""
        self.coordinators.pop((kind, key), None)
        if not any(
            isinstance(request, FindCoordinator) and request.key == key
            for _, _, request in self._queue
        ):
            self.enqueue(FindCoordinator(self, kind, key))

    def next_request(self, *, has_incomplete: bool) -> TxnRequest[Any] | None:
        """Returns the request to send now; the caller sets `in_flight` until its response.

        While there are incomplete batches (`has_incomplete`), EndTxn is held back.
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
            self.complete_transaction(request.result)
            return self._take() if self._queue else None
        return request

    def _take(self) -> TxnRequest[Any]:
        return heapq.heappop(self._queue)[2]

    def _enqueue_new_partitions(self) -> None:
        self.pending_partitions |= self.new_partitions
        self.new_partitions.clear()
        self.enqueue(AddPartitionsToTxn(self, sorted(self.pending_partitions)))

    def set_coordinator_version(self, init_producer_id_version: int) -> None:
        """Records the coordinator's InitProducerId version; from 3 on it bumps epochs (KIP-360)."""
        self._coordinator_supports_bump = init_producer_id_version >= 3

    def complete_initialization(self, producer: ProducerIdAndEpoch, *, is_bump: bool) -> None:
        self.producer = producer
        self._transition_to(State.READY)
        if is_bump:
            self.sequencer.reset()

    def start_epoch(self, producer: ProducerIdAndEpoch) -> None:
        """Uses the epoch of the next transaction, which a response to EndTxn of v2 contains."""
        self.producer = producer
        self.sequencer.reset()

    def complete_transaction(self, result: TxnResult) -> None:
        """Returns to READY and completes `result`.

        If an epoch bump became necessary during the end of the transaction, the bump comes first.
        """
        is_bump_queued = any(isinstance(request, InitProducerId) for _, _, request in self._queue)
        if self.epoch_bump_required:
            self._transition_to(State.INITIALIZING)
            if not is_bump_queued:
                self.enqueue(
                    InitProducerId(self, self._transaction_timeout_ms, self.producer, result)
                )
        else:
            self._transition_to(State.READY)
        self.transaction_started = False
        self.new_partitions.clear()
        self.pending_partitions.clear()
        self.partitions_in_transaction.clear()
        if is_bump_queued or not self.epoch_bump_required:
            result.complete()
        self.epoch_bump_required = False

    def confirm_partitions(self, partitions: list[TopicPartition]) -> None:
        self.partitions_in_transaction.update(partitions)
        self.transaction_started = True

    def fail_authentication(self, error: KafkaError) -> None:
        for _, _, request in list(self._queue):
            request.fail_fatally(error)

    def fail_pending(self, error: KafkaError) -> None:
        queue, self._queue = self._queue, []
        for _, _, request in queue:
            request.fail(error)

    def close(self) -> None:
        """Fails all requests and the call in progress."""
        error = IllegalStateError("the producer was closed before this call completed")
        self.fail_pending(error)
        if self.in_flight is not None:
            self.in_flight.fail(error)
        if self._pending_transition is not None:
            self._pending_transition[0].fail(error)

    @property
    def has_pending_requests(self) -> bool:
        return bool(self._queue) or self.in_flight is not None

    # --- state and errors

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
        """Whether the epoch can be bumped after a batch with an unknown outcome."""
        return self._coordinator_supports_bump or self.is_v2

    def require_epoch_bump(self) -> None:
        """Has the epoch bumped. In v2 every transaction ends with a new epoch anyway."""
        if self._coordinator_supports_bump and not self.is_v2:
            self.epoch_bump_required = True

    def to_abortable_error(self, error: KafkaError) -> None:
        if self.state is State.ABORTING_TRANSACTION:
            return
        logger.info("the transaction of %s must be aborted: %s", self.transactional_id, error)
        self._transition_to(State.ABORTABLE_ERROR, error=error)

    def to_fatal_error(self, error: KafkaError) -> None:
        # Not a warning, because every later call of the producer raises it.
        logger.info("the producer has failed: %s", error)
        self._transition_to(State.FATAL_ERROR, error=error)
        if self._pending_transition is not None:
            self._pending_transition[0].fail(error)

    def to_uninitialized(self, error: KafkaError) -> None:
        """Allows init_transactions again, after an authorization error that an ACL can fix."""
        self._transition_to(State.UNINITIALIZED)
        self._was_unauthorized = True
        if self._pending_transition is not None:
            self._pending_transition[0].fail(error)

    def handle_record_failure(self, error: KafkaError) -> None:
        """Handles a record that could not be sent: its transaction must not be committed."""
        if error.code in _FATAL_ERRORS:
            self.to_fatal_error(error)
        elif self.is_transactional:
            if self.state not in SOURCES[State.ABORTABLE_ERROR] and not self.is_aborting:
                return
            if error.code.retriable or error.code is ErrorCode.INVALID_TXN_STATE:
                cause, error = (
                    error,
                    error_of(
                        ErrorCode.TRANSACTION_ABORTABLE,
                        f"records of the transaction could not be sent: {nested_text(error)}; "
                        "abort it (abort_transaction) and do it again",
                    ),
                )
                error.__cause__ = cause
            if not self.is_completing:
                self.require_epoch_bump()
            self.to_abortable_error(error)

    def fenced_error(self) -> ClientError:
        return ProducerFencedError(
            f"a newer producer with transactional id {self.transactional_id!r} has fenced this "
            f"one ({self.producer})",
            remedy="close it",
        )

    def commit_failed_error(self, group: str, code: ErrorCode) -> ClientError:
        return CommitFailedError(
            "offsets were not added to the transaction: the consumer is no longer a member of "
            f"this generation of group {group!r} ({code.name})",
            code,
            remedy="abort the transaction and continue from the last committed offsets",
        )

    def _raise_error(self) -> None:
        if not self.has_error:
            return
        error = self.last_error
        assert error is not None
        if error.code is ErrorCode.PRODUCER_FENCED:
            raise self.fenced_error()
        remedy = "close the producer" if self.has_fatal_error else "call abort_transaction"
        message = f"{nested_text(error)} [{remedy}]"
        if isinstance(error, ClientError):
            raise type(error)(message, error.code) from error
        raise error_of(error.code, message) from error

    def _raise_pending(self, operation: str) -> None:
        if self._pending_transition is None:
            return
        result, _ = self._pending_transition
        if not result.is_acknowledged:
            raise IllegalStateError(
                f"{operation} is not possible yet: {result.operation} timed out",
                remedy="call that again until it completes",
            )
        self._pending_transition = None

    def _start_or_repeat(
        self, start: Callable[[], TxnResult], state: State, name: str
    ) -> TxnResult:
        if self._pending_transition is not None:
            result, target = self._pending_transition
            if not result.is_acknowledged:
                if target is state:
                    return result
                self._raise_pending(name)
            self._pending_transition = None
        result = start()
        result.operation = name
        self._pending_transition = result, state
        return result

    def _transition_to(
        self, target: State, call: str | None = None, *, error: KafkaError | None = None
    ) -> None:
        if self.state not in SOURCES[target]:
            illegal = IllegalStateError(
                illegal_call(self.state, call or f"becoming {target.value}")
            )
            if call is None:
                # A bug of the sender, not of the user: the state cannot be relied on.
                self.state = State.FATAL_ERROR
                self.can_send = False
                self.last_error = illegal
            raise illegal
        self.last_error = error
        self.state = target
        self.can_send = (
            target is State.IN_TRANSACTION if self.is_transactional else not self.has_error
        )

    # --- producer ids of idempotent producers

    def discard_producer_id(self) -> None:
        """Forgets the producer id, whose epochs are used up, so that a new one is requested."""
        self.producer = NO_PRODUCER
        self._transition_to(State.UNINITIALIZED)

    def request_producer_id_if_needed(self, timeout_ms: int, *, has_incomplete: bool) -> None:
        # After an authorization error it is requested again only when there are records to send.
        is_needed = has_incomplete or not self._was_unauthorized
        if is_needed and self.state is State.UNINITIALIZED and not self.producer.is_valid:
            self._transition_to(State.INITIALIZING)
            self.enqueue(InitProducerId(self, timeout_ms))

    def ensure_transactional(self) -> None:
        if not self.is_transactional:
            raise IllegalStateError("transactions need a producer with a `transactional_id`")
