"""Pending offsets: committed by producers in transactions that are still open (P4).

They become valid when the transaction commits, unless a later commit for the same partition is
valid by then: the order of the records decides, not that of the markers.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue

_Partition = tuple[str, int]


class _Pending(NamedTuple):
    key: OffsetCommitKey
    value: OffsetCommitValue | None
    """None if a later commit is valid already."""
    order: int


class PendingOffsets:
    """Pending offsets by producer. Only `GroupShard.apply` changes them."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[tuple[str, str, int], _Pending]] = {}
        self._open: dict[str, dict[_Partition, set[int]]] = {}
        """The producers with an open transaction, by group and partition."""
        self._order = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    # --- queries

    def is_open(self, group_id: str, topic: str, partition: int) -> bool:
        """Returns whether an open transaction may change the offset: it is not stable."""
        return (topic, partition) in self._open.get(group_id, ())

    def has_open(self, group_id: str) -> bool:
        return group_id in self._open

    @property
    def groups(self) -> list[str]:
        return list(self._open)

    def partitions(self, group_id: str) -> Iterator[_Partition]:
        """Returns the partitions of a group whose offsets are not stable."""
        return iter(self._open.get(group_id, ()))

    # --- changes

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """Adds an offset that a producer has committed in its transaction."""
        self._order += 1
        name = (key.group, key.topic, key.partition)
        offsets = self._by_producer.setdefault(producer_id, {})
        offsets[name] = _Pending(key, value, self._order)
        partitions = self._open.setdefault(key.group, {})
        partitions.setdefault((key.topic, key.partition), set()).add(producer_id)

    def supersede(self, key: OffsetCommitKey) -> None:
        """Drops older pending offsets after a commit without a transaction."""
        self._supersede(key, self._order + 1)

    def remove(self, key: OffsetCommitKey) -> None:
        """Drops the pending offsets of a partition whose offset has been deleted."""
        partitions = self._open.get(key.group, {})
        for producer_id in partitions.pop((key.topic, key.partition), ()):
            offsets = self._by_producer[producer_id]
            del offsets[key.group, key.topic, key.partition]
            if not offsets:
                del self._by_producer[producer_id]
        if not partitions:
            self._open.pop(key.group, None)

    def end(
        self, producer_id: int, *, commit: bool
    ) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """Ends a transaction; returns the offsets that become valid."""
        valid = []
        for name, pending in self._by_producer.pop(producer_id, {}).items():
            self._close(producer_id, *name)
            if commit and pending.value is not None:
                self._supersede(pending.key, pending.order)
                valid.append((pending.key, pending.value))
        return valid

    def _supersede(self, key: OffsetCommitKey, order: int) -> None:
        """Drops the pending offsets of this partition that are older than `order`."""
        name = (key.group, key.topic, key.partition)
        for producer_id in self._open.get(key.group, {}).get((key.topic, key.partition), ()):
            pending = self._by_producer[producer_id][name]
            if pending.order < order:
                self._by_producer[producer_id][name] = pending._replace(value=None)

    def _close(self, producer_id: int, group_id: str, topic: str, partition: int) -> None:
        partitions = self._open[group_id]
        producers = partitions[topic, partition]
        producers.discard(producer_id)
        if not producers:
            del partitions[topic, partition]
        if not partitions:
            del self._open[group_id]
