"""The sequences of records, by which a broker distinguishes a retry from a new record.

Every batch of an idempotent producer has the producer's id and epoch, and the sequence of its first
record in its partition. A batch keeps them for all attempts, unless the broker has certainly not
stored it: then the epoch is bumped and the sequences restart at 0.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from penstock.client.producer.batch import ProducerBatch

NO_SEQUENCE: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1
MAX_EPOCH: Final = 2**15 - 1


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer to the brokers."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > -1

    def __str__(self) -> str:
        return f"producer id {self.producer_id} and epoch {self.epoch}"


BATCHES_REMEMBERED: Final = 5
"""The batches of a producer that a broker recognises when they are sent again, in a partition."""
NO_PRODUCER: Final = ProducerIdAndEpoch(-1, -1)


def increment_sequence(sequence: int, increment: int) -> int:
    """Returns the sequence `increment` records later; sequences wrap from 2**31 - 1 to 0."""
    return (sequence + increment) & MAX_SEQUENCE


def is_after(sequence: int, earlier: int) -> bool:
    """Whether `sequence` is later than `other`. Both must belong to batches in flight."""
    return 0 < (sequence - earlier) & MAX_SEQUENCE < 2**30


class PartitionSequences:
    """The sequences of one partition, and its batches that are not yet acknowledged."""

    def __init__(self) -> None:
        self.owner = NO_PRODUCER
        """The producer id and epoch that the sequences belong to."""
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = -1
        self.in_flight: list[ProducerBatch] = []
        """In the order of their sequences, including those that wait for a retry."""
        self._numbers: dict[ProducerBatch, int] = {}
        """Counts the batches of the partition: the numbers of those in flight."""
        self._last_number = 0
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

    @property
    def is_full(self) -> bool:
        """Whether the broker would forget the first batch in flight if it stored one more.

        The limit of requests in flight is that of a connection: after a change of the leader, the
        new one may get batches while the old one has not responded to earlier ones.
        """
        first = self._numbers[self.in_flight[0]] if self.in_flight else self._last_number + 1
        return self._last_number - first + 1 >= BATCHES_REMEMBERED

    def add_in_flight(self, batch: "ProducerBatch") -> None:
        self._last_number += 1
        self._numbers[batch] = self._last_number
        at = len(self.in_flight)
        while at > 0 and is_after(self.in_flight[at - 1].base_sequence, batch.base_sequence):
            at -= 1
        self.in_flight.insert(at, batch)

    def remove_in_flight(self, batch: "ProducerBatch") -> None:
        if batch in self.in_flight:
            self.in_flight.remove(batch)
            del self._numbers[batch]
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
