"""Which offsets a consumer has read from the database, and which of its partitions have moved on.

It decides only: the database and the consumer are its caller's.
"""

from collections.abc import Collection, Iterable, Mapping

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import IllegalStateError
from penstock.client.external_offsets.model import Move, StoredOffset
from penstock.core.ids import TopicPartition


class Ledger:
    """What is known of the stored offsets, for each partition that the consumer may read."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, StoredOffset] = {}
        self._left: dict[TopicPartition, Move] = {}
        """Gone to another member, but their records may be part of the transaction still."""
        self._revoked: set[TopicPartition] = set()
        """Not loaded since: what was consumed of them is known to belong to the past."""

    def unknown(self, assignment: Collection[TopicPartition]) -> list[TopicPartition]:
        """Partitions whose offsets are to be read before their records are."""
        return [each for each in assignment if each not in self._known]

    def loaded(self, partition: TopicPartition, stored: StoredOffset) -> OffsetAndMetadata:
        """Takes over what the database says; where the consumer must read on.

        A partition that comes back before the transaction ends goes on behind the records that
        are part of it already, unless its offset was moved meanwhile: then that move is still in
        the way of the transaction, as it must be.
        """
        self._known[partition] = stored
        self._revoked.discard(partition)
        left = self._left.get(partition)
        return stored.position if left is None or left.start != stored else left.end

    def revoked(
        self,
        partitions: Iterable[TopicPartition],
        consumed: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """The group takes these away: forget them, but for what is not saved yet."""
        for partition in partitions:
            stored = self._known.pop(partition, None)
            self._revoked.add(partition)
            end = consumed.get(partition)
            if stored is not None and end is not None:
                self._note(self._left, partition, Move(stored, end))

    def moves(
        self,
        assignment: Collection[TopicPartition],
        consumed: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> dict[TopicPartition, Move]:
        """What a transaction that ends now has to save.

        `consumed` says where reading is in partitions that records were handed out of.
        """
        moves = dict(self._left)
        for partition, end in consumed.items():
            stored = self._known.get(partition)
            if stored is not None:
                self._note(moves, partition, Move(stored, end))
            elif partition in assignment and partition not in self._revoked:
                raise IllegalStateError(
                    f"records of {partition} were polled before its stored offset was known: call "
                    "consumer.transaction() before the first poll(), and poll inside of its "
                    "block. This transaction is rolled back"
                )
        return moves

    def _note(
        self, moves: dict[TopicPartition, Move], partition: TopicPartition, move: Move
    ) -> None:
        left = self._left.get(partition)
        if left is None:
            if move.end.offset != move.start.position.offset:
                moves[partition] = move
        elif left.start == move.start:
            moves[partition] = move

    def saved(
        self, moves: Mapping[TopicPartition, Move]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The transaction with these moves is committed; the new positions of partitions kept."""
        self._left.clear()
        kept: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, move in moves.items():
            if partition in self._known:
                self._known[partition] = StoredOffset(move.end, move.start.version + 1)
                kept[partition] = move.end
        return kept

    def failed(
        self, consumed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The transaction is not committed, or nobody knows: where to read these partitions again.

        Nothing counts as known any more, so that the database is asked before the next poll.
        """
        again = {
            partition: stored.position
            for partition, stored in self._known.items()
            if partition in consumed or partition in self._left
        }
        self._left.clear()
        self._known.clear()
        return again
