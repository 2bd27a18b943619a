"""Offset ranges: what one Spark task reads, and how many tasks read a batch.

The split is that of Spark's own Kafka source, so that `minPartitions` and `maxRecordsPerPartition`
mean the same here.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from penstock.core.ids import TopicPartition


@dataclass(frozen=True)
class OffsetRange:
    """The records of a partition with offsets in [start, end): the work of one task."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    """The id that the topic had when the range was planned, as `topic_ids.to_text` writes it; ""
    where the broker has no ids."""

    @property
    def size(self) -> int:
        """Offsets in it; there may be fewer records (compaction, transaction markers)."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def split(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """One range for each task; those with nothing in them are left out.

    `max_records_per_partition` bounds the offsets of a range. Where there are still fewer ranges
    than `min_partitions`, large ones are split further: about so many, not exactly.
    """
    found = [range_ for range_ in ranges if range_.size > 0]
    if max_records_per_partition is not None:
        found = [
            part
            for each in found
            for part in _divided(each, math.ceil(each.size / max_records_per_partition))
        ]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(each.size for each in found)
    whole = [each for each in found if _parts(each.size, total, min_partitions) == 1]
    kept = {each.topic_partition for each in whole}
    rest = total - sum(each.size for each in whole)
    rest_partitions = max(min_partitions - len(whole), 1)
    return [
        part
        for each in found
        for part in _divided(
            each,
            1 if each.topic_partition in kept else _parts(each.size, rest, rest_partitions),
        )
    ]


def _parts(size: int, total: int, partitions: int) -> int:
    """Its share of the partitions, rounded half up, at least one."""
    return max(math.floor(size / total * partitions + 0.5), 1)


def _divided(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Parts of nearly the same size, none of them empty."""
    start, remaining = whole.start, whole.size
    for left in range(min(parts, whole.size), 0, -1):
        size = remaining // left
        remaining -= size
        yield replace(whole, start=start, end=start + size)
        start += size
