"""Committed offsets of the groups of one shard."""

from collections.abc import Iterable, Iterator

from penstock.coordinator.group.offsets.pending import PendingOffsets
from penstock.coordinator.group.offsets.records import OffsetRecord, offset_tombstone
from penstock.core.ids import TopicPartition
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue

Partitions = dict[int, OffsetCommitValue]


class Offsets:
    """Committed offsets by group, topic and partition. Only `GroupShard.apply` changes them."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Partitions]] = {}
        self.pending = PendingOffsets()

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Applies a record that was not written in a transaction."""
        if value is None:
            self._remove(key)
            self.pending.remove(key)
            return
        if self.pending:
            self.pending.supersede(key)
        self._put(key, value)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Makes the producer's pending offsets valid, or drops them."""
        for key, value in self.pending.end(producer_id, commit=commit):
            self._put(key, value)

    def _put(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        try:
            self.groups[key.group][key.topic][key.partition] = value
        except KeyError:
            topics = self.groups.setdefault(key.group, {})
            topics.setdefault(key.topic, {})[key.partition] = value

    def _remove(self, key: OffsetCommitKey) -> None:
        topics = self.groups.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self.groups[key.group]

    def of(self, group_id: str) -> dict[str, Partitions]:
        return self.groups.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self.of(group_id).get(topic, {}).get(partition)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Returns whether an offset is committed, or pending in a transaction."""
        committed = self.get(group_id, topic, partition)
        return committed is not None or self.pending.is_open(group_id, topic, partition)

    def tombstones(self, group_id: str) -> Iterator[OffsetRecord]:
        """Yields the records that delete all offsets of the group, pending ones too."""
        for topic, partitions in self.of(group_id).items():
            for partition in partitions:
                yield offset_tombstone(group_id, topic, partition)
        for topic, partition in self.pending.partitions(group_id):
            if self.get(group_id, topic, partition) is None:
                yield offset_tombstone(group_id, topic, partition)

    def tombstones_of(self, partitions: Iterable[TopicPartition]) -> Iterator[OffsetRecord]:
        """Yields the records that delete the offsets of all groups in these partitions."""
        deleted = list(partitions)
        for group_id in {**self.groups, **dict.fromkeys(self.pending.groups)}:
            for topic, partition in deleted:
                if self.has(group_id, topic, partition):
                    yield offset_tombstone(group_id, topic, partition)
