"""Idempotence: the sequences of batches, when a batch is retried, and when the epoch is bumped."""

from typing import TYPE_CHECKING, Final

from penstock.client.errors import error_of
from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.sequences import (
    MAX_EPOCH,
    NO_SEQUENCE,
    PartitionSequences,
    increment_sequence,
    is_after,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.producer.transaction_manager import TransactionManager

_MAX_INT: Final = 2**31 - 1
_NOT_IN_LOG: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""Errors after which the batch is certainly not stored, by any attempt."""


class BatchSequencer:
    """Assigns sequences to batches and tracks the batches until they are acknowledged.

    Part of a `TransactionManager`, whose producer id, epoch and state it uses. Used on the
    producer's loop: by the accumulator as batches are drained, and by the sender as responses
    arrive.
    """

    def __init__(self, manager: "TransactionManager") -> None:
        self._manager = manager
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: dict[TopicPartition, int] = {}
        """Partitions with an expired batch that may be stored, and the sequence after it."""
        self._to_rewrite: set[TopicPartition] = set()
        """Partitions whose sequences restart with the next epoch of an idempotent producer."""
        self._needs_new_id = False
        """Whether the id of an idempotent producer has used up its epochs."""

    def _sequences(self, partition: TopicPartition) -> PartitionSequences:
        sequences = self._partitions.get(partition)
        if sequences is None:
            sequences = self._partitions[partition] = PartitionSequences()
        return sequences

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
        sequences = self._partitions.get(partition)
        if not batch.has_sequence:
            if partition in self._unresolved or partition in self._to_rewrite:
                return True
            if sequences is None or not sequences.in_flight:
                return False
            # A new epoch may start at 0 only once all earlier batches are acknowledged. And a
            # broker accepts any sequence as the first of a producer: if the very first batch is
            # rejected, a later one must not take its place.
            return (
                sequences.owner != manager.producer
                or sequences.last_acked_sequence == NO_SEQUENCE
                or sequences.is_full
            )
        if sequences is None or not sequences.in_flight:
            return False
        # Retries are sent one at a time and in order.
        if batch is not sequences.in_flight[0]:
            return True
        return partition in self._to_rewrite and batch not in sequences.unacknowledged

    def assign_sequence(self, batch: ProducerBatch) -> None:
        producer = self._manager.producer
        sequences = self._sequences(batch.topic_partition)
        if sequences.owner != producer and not sequences.in_flight:
            sequences.restart(producer)
        batch.set_producer_state(
            producer.producer_id,
            producer.epoch,
            sequences.next_sequence,
            self._manager.is_transactional,
        )
        sequences.next_sequence = increment_sequence(sequences.next_sequence, batch.records_count)
        sequences.add_in_flight(batch)

    def add_in_flight(self, batch: ProducerBatch) -> None:
        """Tracks a part of a split batch, which has its sequence already."""
        self._sequences(batch.topic_partition).add_in_flight(batch)

    # --- responses

    def batch_sent(self, batch: ProducerBatch) -> None:
        self._sequences(batch.topic_partition).on_the_wire.add(batch)

    def batch_returned(self, batch: ProducerBatch, code: ErrorCode) -> None:
        """Records the response to a batch; NETWORK_EXCEPTION or REQUEST_TIMED_OUT without one."""
        sequences = self._partitions.get(batch.topic_partition)
        if sequences is None:
            return
        sequences.on_the_wire.discard(batch)
        if code in _NOT_IN_LOG:
            sequences.unacknowledged.discard(batch)
        elif code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            sequences.unacknowledged.add(batch)

    def remove_in_flight(self, batch: ProducerBatch) -> None:
        """Stops tracking a batch that has failed, or was split and whose parts are tracked."""
        sequences = self._partitions.get(batch.topic_partition)
        if sequences is not None:
            sequences.remove_in_flight(batch)

    def batch_completed(self, batch: ProducerBatch, base_offset: int) -> None:
        """Records that a batch is stored, at offset -1 if the broker does not tell."""
        sequences = self._partitions.get(batch.topic_partition)
        if sequences is None:
            return
        if sequences.owner == (batch.producer_id, batch.producer_epoch):
            last = sequences.last_acked_sequence
            if last == NO_SEQUENCE or is_after(batch.last_sequence, last):
                sequences.last_acked_sequence = batch.last_sequence
        if base_offset >= 0:
            last_offset = base_offset + batch.records_count - 1
            sequences.last_acked_offset = max(sequences.last_acked_offset, last_offset)
        sequences.remove_in_flight(batch)

    def batch_failed(
        self, batch: ProducerBatch, error: KafkaError, *, adjust_sequences: bool
    ) -> None:
        """Stops tracking a failed batch. `adjust_sequences` says that the broker has not stored
        it, so that later batches must take its sequences."""
        manager = self._manager
        manager.handle_record_failure(error)
        self.remove_in_flight(batch)
        if manager.has_fatal_error:
            return
        partition = batch.topic_partition
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not manager.is_transactional:
            self._request_bump(partition)
        elif error.code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # The broker has forgotten the producer: the partition restarts at 0.
            self._partitions.pop(partition, None)
            self._unresolved.pop(partition, None)
        elif adjust_sequences and batch.has_sequence:
            if not manager.is_transactional:
                self._request_bump(partition)
            elif partition in self._partitions:
                self._partitions[partition].close_gap(batch.base_sequence, batch.records_count)

    def can_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether to send a batch again after this error. Requests a new epoch if needed."""
        partition = batch.topic_partition
        manager = self._manager
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset == -1 or batch.reopened:
                return True
            if not manager.is_transactional:
                self._request_bump(partition)
                return True
            sequences = self._sequences(partition)
            if sequences.last_acked_offset < log_start_offset:
                # Retention has removed all records of this producer: its sequences may restart.
                sequences.restart(manager.producer)
                return True
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            unresolved = self._unresolved.get(partition)
            if unresolved is None and (
                batch.reopened or not self._is_next(partition, batch.base_sequence)
            ):
                return True
            if not manager.is_transactional:
                if unresolved is None or unresolved == batch.base_sequence:
                    self._request_bump(partition)
                return True
        return code.retriable

    def _is_next(self, partition: TopicPartition, sequence: int) -> bool:
        """Whether everything before this sequence is acknowledged."""
        sequences = self._partitions.get(partition)
        last = NO_SEQUENCE if sequences is None else sequences.last_acked_sequence
        return sequence == increment_sequence(last, 1)

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """Marks a batch that expired after it was sent: it may or may not be stored."""
        following = increment_sequence(batch.last_sequence, 1)
        unresolved = self._unresolved.get(batch.topic_partition)
        if unresolved is None or is_after(following, unresolved):
            self._unresolved[batch.topic_partition] = following

    def resolve_sequences(self) -> None:
        """Handles partitions in which all batches after an unresolved one have a response."""
        for partition in list(self._unresolved):
            sequences = self._sequences(partition)
            if sequences.in_flight:
                continue
            del self._unresolved[partition]
            if self._is_next(partition, sequences.next_sequence):
                continue
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
        self._partitions.clear()
        self._unresolved.clear()

    def bump_idempotent_epoch_if_needed(self, *, has_incomplete: bool) -> None:
        """Bumps the epoch of a producer without transactions, or requests its producer id."""
        manager = self._manager
        if manager.is_transactional:
            return
        if manager.epoch_bump_required and self._can_rewrite():
            if manager.producer.epoch >= MAX_EPOCH:
                manager.discard_producer_id()
                self._needs_new_id = True
            elif manager.producer.is_valid:
                if self._needs_new_id:
                    self._needs_new_id = False
                else:
                    epoch = manager.producer.epoch + 1
                    manager.producer = manager.producer._replace(epoch=epoch)
                for partition in self._to_rewrite:
                    self._sequences(partition).restart(manager.producer)
                    self._unresolved.pop(partition, None)
                self._to_rewrite.clear()
                manager.epoch_bump_required = False
        manager.request_producer_id_if_needed(_MAX_INT, has_incomplete=has_incomplete)

    def _can_rewrite(self) -> bool:
        """Whether a new epoch can begin.

        A batch on the wire, or one without a response, may be stored with its old sequence: with a
        new one it would be stored twice.
        """
        return all(
            sequences is None or sequences.can_be_rewritten
            for sequences in map(self._partitions.get, self._to_rewrite)
        )

    def _request_bump(self, partition: TopicPartition) -> None:
        self._manager.epoch_bump_required = True
        self._to_rewrite.add(partition)
