"""Sequences: the numbers by which a broker tells a retry from a new record.

Every batch of an idempotent producer has the producer's id and epoch and the sequence of its first
record in its partition. A batch keeps them for all its attempts, unless the broker is known not to
have it: then the epoch is raised and the sequences start again.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.producer.batch import ProducerBatch

NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1
MAX_EPOCH: Final = 2**15 - 1
_NOT_IN_LOG: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""Sequences were compared: the batch is not in the log, from no attempt whatsoever."""


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer is to the brokers."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > -1

    def __str__(self) -> str:
        return f"producer id {self.producer_id} and epoch {self.epoch}"


NO_PRODUCER: Final = ProducerIdAndEpoch(-1, -1)


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequences wrap from 2**31 - 1 to 0."""
    return (sequence + increment) & MAX_SEQUENCE


def is_after(sequence: int, other: int) -> bool:
    """Whether `sequence` comes after `other`, with as much between them as can be in flight."""
    return 0 < (sequence - other) & MAX_SEQUENCE < 2**30


class PartitionSequences:
    """The sequences of one partition, and the batches that have one and are not settled."""

    __slots__ = (
        "doubtful",
        "in_flight",
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "on_the_wire",
        "owner",
    )

    def __init__(self) -> None:
        self.owner = NO_PRODUCER
        """The id and epoch that the sequences belong to."""
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = -1
        self.in_flight: list[ProducerBatch] = []
        """In the order of their sequences, whatever the order of the answers; retries included."""
        self.on_the_wire: set[ProducerBatch] = set()
        """Those in requests that are not answered yet; also some that were given up meanwhile."""
        self.doubtful: set[ProducerBatch] = set()
        """Those whose last attempt got no answer: the broker may have them."""

    @property
    def may_be_rewritten(self) -> bool:
        """Whether no batch in flight can be in the log already, or get there meanwhile.

        The broker takes sequences without gaps. So if it does not have the first, it has none.
        """
        if self.on_the_wire:
            return False
        return not self.in_flight or self.in_flight[0] not in self.doubtful

    def add_in_flight(self, batch: "ProducerBatch") -> None:
        at = len(self.in_flight)
        while at > 0 and is_after(self.in_flight[at - 1].base_sequence, batch.base_sequence):
            at -= 1
        self.in_flight.insert(at, batch)

    def remove_in_flight(self, batch: "ProducerBatch") -> None:
        for index, each in enumerate(self.in_flight):
            if each is batch:
                del self.in_flight[index]
                break
        self.doubtful.discard(batch)

    def start_at_beginning(self, owner: ProducerIdAndEpoch) -> None:
        """The broker knows nothing of this owner: what is in flight is numbered anew from 0."""
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer_state(owner.producer_id, owner.epoch, sequence)
            sequence = increment_sequence(sequence, batch.records_count)
        self.doubtful.clear()
        self.owner = owner
        self.next_sequence = sequence
        self.last_acked_sequence = NO_SEQUENCE

    def close_gap(self, base_sequence: int, count: int) -> None:
        """A batch failed for good and is in no log: what comes after it moves up."""
        self.next_sequence = (self.next_sequence - count) & MAX_SEQUENCE
        for batch in self.in_flight:
            if is_after(batch.base_sequence, base_sequence):
                batch.reset_producer_state(
                    batch.producer_id,
                    batch.producer_epoch,
                    (batch.base_sequence - count) & MAX_SEQUENCE,
                )


class Sequences:
    """The sequences of all partitions that were sent to, and what is in doubt about them."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: dict[TopicPartition, int] = {}
        """A batch was given up that may be in the log: the sequence that comes after it."""
        self._to_rewrite: set[TopicPartition] = set()
        """Partitions that get new sequences with the next epoch of an idempotent producer."""

    def should_stop_drain(self, batch: "ProducerBatch", producer: ProducerIdAndEpoch) -> bool:
        """Whether this batch, the next of its partition, must not leave now."""
        partition = batch.topic_partition
        entry = self._partitions.get(partition)
        if not batch.has_sequence:
            if partition in self._unresolved or partition in self._to_rewrite:
                return True
            if entry is None or not entry.in_flight:
                return False
            # A new epoch starts at 0, which is only right once everything before is settled. And
            # brokers take any sequence as the first of a producer: if the very first batch is
            # refused, one behind it must not take its place.
            return entry.owner != producer or entry.last_acked_sequence == NO_SEQUENCE
        if entry is None or not entry.in_flight:
            return False
        # Retries leave one at a time and in order.
        if batch is not entry.in_flight[0]:
            return True
        return partition in self._to_rewrite and batch not in entry.doubtful

    def assign(
        self, batch: "ProducerBatch", producer: ProducerIdAndEpoch, *, is_transactional: bool
    ) -> None:
        entry = self._entry(batch.topic_partition)
        if entry.owner != producer and not entry.in_flight:
            entry.start_at_beginning(producer)
        batch.set_producer_state(
            producer.producer_id, producer.epoch, entry.next_sequence, is_transactional
        )
        entry.next_sequence = increment_sequence(entry.next_sequence, batch.records_count)
        entry.add_in_flight(batch)

    def track(self, batch: "ProducerBatch") -> None:
        """A batch that has its sequence already: a part of one that was split."""
        self._entry(batch.topic_partition).add_in_flight(batch)

    def sent(self, batch: "ProducerBatch") -> None:
        """The batch is in a request that goes out."""
        self._entry(batch.topic_partition).on_the_wire.add(batch)

    def returned(self, batch: "ProducerBatch", code: ErrorCode) -> None:
        """The request was answered, or lost: NETWORK_EXCEPTION, or REQUEST_TIMED_OUT."""
        entry = self._partitions.get(batch.topic_partition)
        if entry is None:
            return
        entry.on_the_wire.discard(batch)
        if code in _NOT_IN_LOG:
            entry.doubtful.discard(batch)
        elif code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            entry.doubtful.add(batch)

    def acked(self, batch: "ProducerBatch", base_offset: int) -> None:
        """A batch is in the log; -1 where the broker does not say at which offset."""
        entry = self._partitions.get(batch.topic_partition)
        if entry is None:
            return
        if entry.owner == (batch.producer_id, batch.producer_epoch):
            last = entry.last_acked_sequence
            if last == NO_SEQUENCE or is_after(batch.last_sequence, last):
                entry.last_acked_sequence = batch.last_sequence
        if base_offset >= 0:
            last_offset = base_offset + batch.records_count - 1
            entry.last_acked_offset = max(entry.last_acked_offset, last_offset)
        entry.remove_in_flight(batch)

    def forget(self, batch: "ProducerBatch") -> None:
        """A batch has failed, or was split: it is no longer in flight."""
        entry = self._partitions.get(batch.topic_partition)
        if entry is not None:
            entry.remove_in_flight(batch)

    def close_gap(self, batch: "ProducerBatch") -> None:
        """A batch failed for good and is in no log."""
        entry = self._partitions.get(batch.topic_partition)
        if entry is not None:
            entry.close_gap(batch.base_sequence, batch.records_count)

    def remove(self, partition: TopicPartition) -> None:
        """The broker has forgotten the producer: it takes 0 next."""
        self._partitions.pop(partition, None)
        self._unresolved.pop(partition, None)

    def reset(self) -> None:
        """Everything is settled and a new epoch begins."""
        self._partitions.clear()
        self._unresolved.clear()

    def restart(self, partition: TopicPartition, producer: ProducerIdAndEpoch) -> None:
        self._entry(partition).start_at_beginning(producer)

    def mark_unresolved(self, batch: "ProducerBatch") -> None:
        """The batch was given up after it had been sent: nobody knows whether it is in the log."""
        after = increment_sequence(batch.last_sequence, 1)
        partition = batch.topic_partition
        known = self._unresolved.get(partition)
        if known is None or is_after(after, known):
            self._unresolved[partition] = after

    def resolve(self) -> list[TopicPartition]:
        """Where all that followed a batch in doubt is settled, so is the doubt.

        Returns the partitions where it turned out that sequences are missing.
        """
        missing = []
        for partition in list(self._unresolved):
            entry = self._entry(partition)
            if entry.in_flight:
                continue
            if not self.is_next(partition, entry.next_sequence):
                missing.append(partition)
            del self._unresolved[partition]
        return missing

    def unresolved_after(self, partition: TopicPartition) -> int | None:
        return self._unresolved.get(partition)

    def rewrite_later(self, partition: TopicPartition) -> None:
        """This partition needs a new epoch."""
        self._to_rewrite.add(partition)

    def may_rewrite(self) -> bool:
        """Whether a new epoch can begin.

        A batch that is under way, or was lost on its way, may be in the log under its old
        sequence: with a new one it would be there twice.
        """
        return all(
            entry is None or entry.may_be_rewritten
            for entry in map(self._partitions.get, self._to_rewrite)
        )

    def rewrite(self, producer: ProducerIdAndEpoch) -> None:
        """A new epoch: the partitions that need it start again."""
        for partition in self._to_rewrite:
            self._entry(partition).start_at_beginning(producer)
            self._unresolved.pop(partition, None)
        self._to_rewrite.clear()

    def last_acked_offset(self, partition: TopicPartition) -> int:
        """-1 where none is known."""
        entry = self._partitions.get(partition)
        return -1 if entry is None else entry.last_acked_offset

    def is_next(self, partition: TopicPartition, sequence: int) -> bool:
        """Whether everything before this sequence is acknowledged."""
        entry = self._partitions.get(partition)
        last = NO_SEQUENCE if entry is None else entry.last_acked_sequence
        return sequence == increment_sequence(last, 1)

    def _entry(self, partition: TopicPartition) -> PartitionSequences:
        entry = self._partitions.get(partition)
        if entry is None:
            entry = self._partitions[partition] = PartitionSequences()
        return entry
