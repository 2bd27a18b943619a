"""Which stored offsets a consumer reads from, and which of them its next transaction must update.

It only decides: its caller accesses the database and the consumer.
"""

from collections.abc import Collection, Iterable, Mapping

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import IllegalStateError
from penstock.client.external_offsets.model import OffsetUpdate, StoredOffset
from penstock.core.ids import TopicPartition


class OffsetTracker:
    """The stored offsets of all partitions that the consumer may read."""

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, StoredOffset] = {}
        self._revoked_updates: dict[TopicPartition, OffsetUpdate] = {}
        """Of partitions that were revoked, while their records belong to the open transaction."""
        self._revoked: set[TopicPartition] = set()
        """Not loaded since: their consumed positions are out of date."""

    def missing(self, assignment: Collection[TopicPartition]) -> list[TopicPartition]:
        """Returns the partitions whose offsets must be loaded before they are polled."""
        return [partition for partition in assignment if partition not in self._stored]

    def load(self, partition: TopicPartition, stored: StoredOffset) -> OffsetAndMetadata:
        """Notes a stored offset; returns the position to read from.

        A partition that is assigned again before the transaction ends continues after the records
        that the transaction already has. If its offset was changed in between, it continues from
        that; the transaction then fails, as it must.
        """
        self._stored[partition] = stored
        self._revoked.discard(partition)
        update = self._revoked_updates.get(partition)
        if update is None or update.previous != stored:
            return stored.position
        return update.position

    def revoke(
        self,
        partitions: Iterable[TopicPartition],
        consumed: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Drops partitions that the consumer loses; keeps their unsaved updates."""
        for partition in partitions:
            stored = self._stored.pop(partition, None)
            self._revoked.add(partition)
            position = consumed.get(partition)
            if stored is not None and position is not None:
                self._add(self._revoked_updates, partition, OffsetUpdate(stored, position))

    def updates(
        self,
        assignment: Collection[TopicPartition],
        consumed: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> dict[TopicPartition, OffsetUpdate]:
        """Returns the updates that a transaction must save if it ends now.

        `consumed` has the positions of partitions that records were polled from. Raises
        IllegalStateError for a partition that was polled before its offset was loaded.
        """
        updates = dict(self._revoked_updates)
        for partition, position in consumed.items():
            stored = self._stored.get(partition)
            if stored is not None:
                self._add(updates, partition, OffsetUpdate(stored, position))
            elif partition in assignment and partition not in self._revoked:
                raise IllegalStateError(
                    f"records of {partition} were polled before its stored offset was loaded",
                    remedy="call consumer.transaction() before the first poll(), and poll inside "
                    "of its block. This transaction is rolled back",
                )
        return updates

    def _add(
        self,
        updates: dict[TopicPartition, OffsetUpdate],
        partition: TopicPartition,
        update: OffsetUpdate,
    ) -> None:
        revoked_update = self._revoked_updates.get(partition)
        if revoked_update is None:
            if update.position.offset != update.previous.position.offset:
                updates[partition] = update
        elif revoked_update.previous == update.previous:
            updates[partition] = update

    def commit(
        self, updates: Mapping[TopicPartition, OffsetUpdate]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Notes that a transaction has committed; returns the positions of owned partitions."""
        self._revoked_updates.clear()
        positions: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, update in updates.items():
            if partition in self._stored:
                self._stored[partition] = StoredOffset(update.position, update.previous.version + 1)
                positions[partition] = update.position
        return positions

    def roll_back(
        self, consumed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Notes that a transaction has failed, or may have; returns the positions to seek to.

        All stored offsets are dropped, so that they are loaded again before the next poll.
        """
        positions = {
            partition: stored.position
            for partition, stored in self._stored.items()
            if partition in consumed or partition in self._revoked_updates
        }
        self._revoked_updates.clear()
        self._stored.clear()
        return positions
