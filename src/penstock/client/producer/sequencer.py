"""Idempotence: the sequences of batches, when a batch is retried, and when the epoch is bumped."""

from typing import TYPE_CHECKING, Final

from penstock.client.errors import error_of
from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.sequences import MAX_EPOCH, Sequences
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.producer.transaction_manager import TransactionManager

_MAX_INT: Final = 2**31 - 1


class BatchSequencer:
    """Assigns sequences to batches and tracks the batches until they are acknowledged.

    Part of a `TransactionManager`, whose producer id, epoch and state it uses. Used on the
    producer's loop: by the accumulator as batches are drained, and by the sender as responses
    arrive.
    """

    def __init__(self, manager: "TransactionManager") -> None:
        self._manager = manager
        self._sequences = Sequences()
        self._needs_new_id = False
        """Whether the id of an idempotent producer has used up its epochs."""

    # --- draining

    @property
    def is_completing(self) -> bool:
        return self._manager.is_completing

    def should_stop_drain(self, batch: ProducerBatch, partition: TopicPartition) -> bool:
        """Whether this batch, the next of its partition, must not be sent yet."""
        manager = self._manager
        if manager.has_fatal_error or not manager.producer.is_valid:
            return True
        if manager.is_transactional and partition not in manager.partitions_in_transaction:
            return True
        if manager.in_flight is not None and manager.in_flight.is_end:
            # A record appended now must not be stored after the end of its transaction.
            return True
        return self._sequences.should_stop_drain(batch, manager.producer)

    def assign_sequence(self, batch: ProducerBatch) -> None:
        manager = self._manager
        self._sequences.assign(batch, manager.producer, is_transactional=manager.is_transactional)

    def add_in_flight(self, batch: ProducerBatch) -> None:
        """Tracks a part of a split batch, which has its sequence already."""
        self._sequences.add_in_flight(batch)

    # --- responses

    def batch_sent(self, batch: ProducerBatch) -> None:
        self._sequences.sent(batch)

    def batch_returned(self, batch: ProducerBatch, code: ErrorCode) -> None:
        """Records the response to a batch; NETWORK_EXCEPTION or REQUEST_TIMED_OUT without one."""
        self._sequences.returned(batch, code)

    def remove_in_flight(self, batch: ProducerBatch) -> None:
        """Stops tracking a batch that was split; its parts are tracked instead."""
        self._sequences.remove_in_flight(batch)

    def batch_completed(self, batch: ProducerBatch, base_offset: int) -> None:
        self._sequences.acknowledge(batch, base_offset)

    def batch_failed(
        self, batch: ProducerBatch, error: KafkaError, *, adjust_sequences: bool
    ) -> None:
        """Stops tracking a failed batch. `adjust_sequences` says that the broker has not stored
        it, so that later batches must take its sequences."""
        manager = self._manager
        manager.handle_record_failure(error)
        self._sequences.remove_in_flight(batch)
        if manager.has_fatal_error:
            return
        partition = batch.topic_partition
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not manager.is_transactional:
            self._request_bump(partition)
        elif error.code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._sequences.remove(partition)
        elif adjust_sequences and batch.has_sequence:
            if manager.is_transactional:
                self._sequences.close_gap(batch)
            else:
                self._request_bump(partition)

    def can_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether to send a batch again after this error. Requests a new epoch if needed."""
        partition = batch.topic_partition
        manager, sequences = self._manager, self._sequences
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset == -1 or batch.reopened:
                return True
            if not manager.is_transactional:
                self._request_bump(partition)
                return True
            if sequences.last_acked_offset(partition) < log_start_offset:
                # Retention has removed all records of this producer: its sequences may restart.
                sequences.restart(partition, manager.producer)
                return True
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            unresolved = sequences.unresolved_after(partition)
            if unresolved is None and (
                batch.reopened or not sequences.is_next(partition, batch.base_sequence)
            ):
                return True
            if not manager.is_transactional:
                if unresolved is None or unresolved == batch.base_sequence:
                    self._request_bump(partition)
                return True
        return code.retriable

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """Marks a batch that expired after it was sent: it may or may not be stored."""
        self._sequences.mark_unresolved(batch)

    def resolve_sequences(self) -> None:
        """Handles partitions in which all batches after an unresolved one have a response."""
        for partition in self._sequences.resolve():
            if self._manager.is_transactional:
                self._fail_transaction()
            else:
                self._request_bump(partition)

    def _fail_transaction(self) -> None:
        manager = self._manager
        problem = "some records of the transaction were sent but never acknowledged"
        if manager.can_handle_abortable_error:
            manager.require_epoch_bump()
            manager.to_abortable_error(
                error_of(ErrorCode.TRANSACTION_ABORTABLE, f"{problem}: abort it and do it again")
            )
        else:
            manager.to_fatal_error(
                error_of(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{problem}, and the broker is too old to bump the epoch: create a new "
                    "producer",
                )
            )

    # --- epochs

    def reset(self) -> None:
        """Starts all sequences at 0, for a new epoch. No batch may be in flight."""
        self._sequences.reset()

    def bump_idempotent_epoch_if_needed(self, *, has_incomplete: bool) -> None:
        """Bumps the epoch of a producer without transactions, or requests its producer id."""
        manager = self._manager
        if manager.is_transactional:
            return
        if manager.epoch_bump_required and self._sequences.can_rewrite():
            if manager.producer.epoch >= MAX_EPOCH:
                manager.discard_producer_id()
                self._needs_new_id = True
            elif manager.producer.is_valid:
                if self._needs_new_id:
                    self._needs_new_id = False
                else:
                    epoch = manager.producer.epoch + 1
                    manager.producer = manager.producer._replace(epoch=epoch)
                self._sequences.rewrite(manager.producer)
                manager.epoch_bump_required = False
        manager.request_producer_id_if_needed(_MAX_INT, has_incomplete=has_incomplete)

    def _request_bump(self, partition: TopicPartition) -> None:
        self._manager.epoch_bump_required = True
        self._sequences.rewrite_later(partition)
