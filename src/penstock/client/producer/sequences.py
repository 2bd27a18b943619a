"""The sequences of records, by which a broker distinguishes a retry from a new record.

Every batch of an idempotent producer has the producer's id and epoch, and the sequence of its first
record in its partition. A batch keeps them for all attempts, unless the broker has certainly not
stored it: then the epoch is bumped and the sequences restart at 0.
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
"""Errors after which the batch is certainly not stored, by any attempt."""


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer to the brokers."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > -1

    def __str__(self) -> str:
        return f"producer id {self.producer_id} and epoch {self.epoch}"


NO_PRODUCER: Final = ProducerIdAndEpoch(-1, -1)


def increment_sequence(sequence: int, increment: int) -> int:
    """Returns the sequence `increment` records later; sequences wrap from 2**31 - 1 to 0."""
    return (sequence + increment) & MAX_SEQUENCE


def is_after(sequence: int, other: int) -> bool:
    """Whether `sequence` is later than `other`. Both must belong to batches in flight."""
    return 0 < (sequence - other) & MAX_SEQUENCE < 2**30


class PartitionSequences:
    """The sequences of one partition, and its batches that are not yet acknowledged."""

    __slots__ = (
        "in_flight",
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "on_the_wire",
        "owner",
        "unacknowledged",
    )

    def __init__(self) -> None:
        self.owner = NO_PRODUCER
        """The producer id and epoch that the sequences belong to."""
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = -1
        self.in_flight: list[ProducerBatch] = []
        """In the order of their sequences, including those that wait for a retry."""
        self.on_the_wire: set[ProducerBatch] = set()
        """Batches in requests without a response, including those that have expired since."""
        self.unacknowledged: set[ProducerBatch] = set()
        """Batches whose last attempt got no response: the broker may have stored them."""

    @property
    def can_be_rewritten(self) -> bool:
        """Whether no batch in flight is stored, or can still be stored by a request on the wire.

        The broker stores sequences without gaps: if it has not stored the first, it has none.
        """
        if self.on_the_wire:
            return False
        return not self.in_flight or self.in_flight[0] not in self.unacknowledged

    def add_in_flight(self, batch: "ProducerBatch") -> None:
        at = len(self.in_flight)
        while at > 0 and is_after(self.in_flight[at - 1].base_sequence, batch.base_sequence):
            at -= 1
        self.in_flight.insert(at, batch)

    def remove_in_flight(self, batch: "ProducerBatch") -> None:
        for index, candidate in enumerate(self.in_flight):
            if candidate is batch:
                del self.in_flight[index]
                break
        self.unacknowledged.discard(batch)

    def restart(self, owner: ProducerIdAndEpoch) -> None:
        """Restarts at 0 for a producer id and epoch that the broker has not stored anything of.

        The batches in flight get new sequences.
        """
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer_state(owner.producer_id, owner.epoch, sequence)
            sequence = increment_sequence(sequence, batch.records_count)
        self.unacknowledged.clear()
        self.owner = owner
        self.next_sequence = sequence
        self.last_acked_sequence = NO_SEQUENCE

    def close_gap(self, base_sequence: int, count: int) -> None:
        """Moves the later batches up after a batch that failed and is not stored."""
        self.next_sequence = (self.next_sequence - count) & MAX_SEQUENCE
        for batch in self.in_flight:
            if is_after(batch.base_sequence, base_sequence):
                batch.reset_producer_state(
                    batch.producer_id,
                    batch.producer_epoch,
                    (batch.base_sequence - count) & MAX_SEQUENCE,
                )


class Sequences:
    """The sequences of all partitions, and the partitions with batches of unknown outcome."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unresolved: dict[TopicPartition, int] = {}
        """Partitions with an expired batch that may be stored, and the sequence after it."""
        self._to_rewrite: set[TopicPartition] = set()
        """Partitions whose sequences restart with the next epoch of an idempotent producer."""

    def should_stop_drain(self, batch: "ProducerBatch", producer: ProducerIdAndEpoch) -> bool:
        """Whether this batch, the next of its partition, must not be sent yet."""
        partition = batch.topic_partition
        entry = self._partitions.get(partition)
        if not batch.has_sequence:
            if partition in self._unresolved or partition in self._to_rewrite:
                return True
            if entry is None or not entry.in_flight:
                return False
            # A new epoch may start at 0 only once all earlier batches are acknowledged. And a
            # broker accepts any sequence as the first of a producer: if the very first batch is
            # rejected, a later one must not take its place.
            return entry.owner != producer or entry.last_acked_sequence == NO_SEQUENCE
        if entry is None or not entry.in_flight:
            return False
        # Retries are sent one at a time and in order.
        if batch is not entry.in_flight[0]:
            return True
        return partition in self._to_rewrite and batch not in entry.unacknowledged

    def assign(
        self, batch: "ProducerBatch", producer: ProducerIdAndEpoch, *, is_transactional: bool
    ) -> None:
        entry = self._entry(batch.topic_partition)
        if entry.owner != producer and not entry.in_flight:
            entry.restart(producer)
        batch.set_producer_state(
            producer.producer_id, producer.epoch, entry.next_sequence, is_transactional
        )
        entry.next_sequence = increment_sequence(entry.next_sequence, batch.records_count)
        entry.add_in_flight(batch)

    def add_in_flight(self, batch: "ProducerBatch") -> None:
        """Tracks a part of a split batch, which has its sequence already."""
        self._entry(batch.topic_partition).add_in_flight(batch)

    def sent(self, batch: "ProducerBatch") -> None:
        """Records that a request with the batch is sent."""
        self._entry(batch.topic_partition).on_the_wire.add(batch)

    def returned(self, batch: "ProducerBatch", code: ErrorCode) -> None:
        """Records the response to a batch; NETWORK_EXCEPTION or REQUEST_TIMED_OUT without one."""
        entry = self._partitions.get(batch.topic_partition)
        if entry is None:
            return
        entry.on_the_wire.discard(batch)
        if code in _NOT_IN_LOG:
            entry.unacknowledged.discard(batch)
        elif code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            entry.unacknowledged.add(batch)

    def acknowledge(self, batch: "ProducerBatch", base_offset: int) -> None:
        """Records that a batch is stored, at offset -1 if the broker does not tell."""
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

    def remove_in_flight(self, batch: "ProducerBatch") -> None:
        """Stops tracking a batch that has failed or was split."""
        entry = self._partitions.get(batch.topic_partition)
        if entry is not None:
            entry.remove_in_flight(batch)

    def close_gap(self, batch: "ProducerBatch") -> None:
        """Moves the later batches up after a batch that failed and is not stored."""
        entry = self._partitions.get(batch.topic_partition)
        if entry is not None:
            entry.close_gap(batch.base_sequence, batch.records_count)

    def remove(self, partition: TopicPartition) -> None:
        """Restarts a partition at 0, because the broker has forgotten the producer."""
        self._partitions.pop(partition, None)
        self._unresolved.pop(partition, None)

    def reset(self) -> None:
        """Starts a new epoch; no batch may be in flight."""
        self._partitions.clear()
        self._unresolved.clear()

    def restart(self, partition: TopicPartition, producer: ProducerIdAndEpoch) -> None:
        self._entry(partition).restart(producer)

    def mark_unresolved(self, batch: "ProducerBatch") -> None:
        """Marks a batch that expired after it was sent: it may or may not be stored."""
        following = increment_sequence(batch.last_sequence, 1)
        partition = batch.topic_partition
        unresolved = self._unresolved.get(partition)
        if unresolved is None or is_after(following, unresolved):
            self._unresolved[partition] = following

    def resolve(self) -> list[TopicPartition]:
        """Resolves the partitions in which no batch is in flight any more.

        Returns those in which sequences turned out to be missing.
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
        """Restarts this partition with the next epoch."""
        self._to_rewrite.add(partition)

    def can_rewrite(self) -> bool:
        """Whether a new epoch can begin.

        A batch on the wire, or one without a response, may be stored with its old sequence: with a
        new one it would be stored twice.
        """
        return all(
            entry is None or entry.can_be_rewritten
            for entry in map(self._partitions.get, self._to_rewrite)
        )

    def rewrite(self, producer: ProducerIdAndEpoch) -> None:
        """Begins a new epoch in the partitions that need it."""
        for partition in self._to_rewrite:
            self._entry(partition).restart(producer)
            self._unresolved.pop(partition, None)
        self._to_rewrite.clear()

    def last_acked_offset(self, partition: TopicPartition) -> int:
        """Returns the last offset that is known to be stored; -1 if there is none."""
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
