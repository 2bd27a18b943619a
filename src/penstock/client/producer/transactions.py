"""What an idempotent or transactional producer knows of itself.

A machine without I/O, used on the producer's own loop: the sender takes requests out of it, one at
a time, and hands it the answers; the accumulator asks it for sequences as batches leave. Without a
`transactional_id` it only has a producer id, epochs and sequences (idempotence).
"""

from typing import Final

from penstock.client.errors import error_of
from penstock.client.producer.batch import ProducerBatch
from penstock.client.producer.idempotence import MAX_EPOCH, NO_PRODUCER
from penstock.client.producer.txn_machine import TransactionMachine
from penstock.client.producer.txn_requests import InitProducerId
from penstock.client.producer.txn_state import State
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

_MAX_INT: Final = 2**31 - 1


class TransactionManager(TransactionMachine):
    """Transactions, and the sequences of batches."""

    def should_stop_drain(self, batch: ProducerBatch, partition: TopicPartition) -> bool:
        """Whether this batch, the next of its partition, must not leave now."""
        if self.has_fatal_error or not self.producer.is_valid:
            return True
        if self.is_transactional and partition not in self.partitions_in_transaction:
            return True
        if self.in_flight is not None and self.in_flight.is_end:
            # Whatever slipped in now must not land behind the end of its transaction.
            return True
        return self._sequences.should_stop_drain(batch, self.producer)

    def assign(self, batch: ProducerBatch) -> None:
        self._sequences.assign(batch, self.producer, is_transactional=self.is_transactional)

    def track(self, batch: ProducerBatch) -> None:
        self._sequences.track(batch)

    def sent(self, batch: ProducerBatch) -> None:
        """The batch is in a request that goes out."""
        self._sequences.sent(batch)

    def returned(self, batch: ProducerBatch, code: ErrorCode) -> None:
        """The request was answered, or lost: NETWORK_EXCEPTION, or REQUEST_TIMED_OUT."""
        self._sequences.returned(batch, code)

    def forget(self, batch: ProducerBatch) -> None:
        """A batch is no longer in flight: it was split, and its parts are tracked."""
        self._sequences.forget(batch)

    def batch_completed(self, batch: ProducerBatch, base_offset: int) -> None:
        self._sequences.acked(batch, base_offset)

    def batch_failed(
        self, batch: ProducerBatch, error: KafkaError, *, adjust_sequences: bool
    ) -> None:
        """`adjust_sequences` where the broker is known not to have the batch."""
        self.batch_or_send_failed(error)
        self._sequences.forget(batch)
        if self.has_fatal_error:
            return
        partition = batch.topic_partition
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.is_transactional:
            self._request_bump(partition)
        elif error.code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._sequences.remove(partition)
        elif adjust_sequences and batch.has_sequence:
            if self.is_transactional:
                self._sequences.close_gap(batch)
            else:
                self._request_bump(partition)

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """The batch was given up after it had been sent: nobody knows whether it is in the log."""
        self._sequences.mark_unresolved(batch)

    def resolve_sequences(self) -> None:
        """Draw the conclusions where all that followed a batch in doubt is settled."""
        for partition in self._sequences.resolve():
            if self.is_transactional:
                self._unacknowledged()
            else:
                self._request_bump(partition)

    def _unacknowledged(self) -> None:
        what = "some records of the transaction were sent but never acknowledged"
        if self.can_handle_abortable_error:
            self.bump_after_error()
            self.to_abortable_error(
                error_of(ErrorCode.TRANSACTION_ABORTABLE, f"{what}: abort it and do it again")
            )
        else:
            self.to_fatal_error(
                error_of(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{what}, and the broker is too old to raise the epoch: make a new producer",
                )
            )

    def bump_idempotent_epoch_if_needed(self, *, has_incomplete: bool) -> None:
        """A producer without transactions gets its id, and raises its epoch, by itself."""
        if self.is_transactional:
            return
        if self._bump_required and self._sequences.may_rewrite():
            if self.producer.epoch >= MAX_EPOCH:
                self.producer = NO_PRODUCER
                self._to(State.UNINITIALIZED)
                self._gets_new_id = True
            elif self.producer.is_valid:
                if self._gets_new_id:
                    self._gets_new_id = False
                else:
                    self.producer = self.producer._replace(epoch=self.producer.epoch + 1)
                self._sequences.rewrite(self.producer)
                self._bump_required = False
        # Who may not have an id is asked again when there is something to send, not all the time.
        wanted = has_incomplete or not self._was_refused
        if wanted and self.state is State.UNINITIALIZED and not self.producer.is_valid:
            self._to(State.INITIALIZING)
            self.enqueue(InitProducerId(self, _MAX_INT))

    def _request_bump(self, partition: TopicPartition) -> None:
        self._bump_required = True
        self._sequences.rewrite_later(partition)

    def can_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether to send a batch again after this answer; asks for a new epoch where needed."""
        partition = batch.topic_partition
        sequences = self._sequences
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset == -1 or batch.reopened:
                return True
            if not self.is_transactional:
                self._request_bump(partition)
                return True
            if sequences.last_acked_offset(partition) < log_start_offset:
                # Retention took everything of this producer's: its sequences may start again.
                sequences.restart(partition, self.producer)
                return True
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            unresolved = sequences.unresolved_after(partition)
            if unresolved is None and (
                batch.reopened or not sequences.is_next(partition, batch.base_sequence)
            ):
                return True
            if not self.is_transactional:
                if unresolved is None or unresolved == batch.base_sequence:
                    self._request_bump(partition)
                return True
        return code.retriable
