"""Ranges of offsets, one for each Spark task, and how a batch is split into them.

The split is that of Spark's own Kafka source, so `minPartitions` and `maxRecordsPerPartition` have
the same meaning.
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
    """The id of the topic when the range was planned (`topic_ids.to_text`); empty if the broker has
    no ids."""

    @property
    def size(self) -> int:
        """The number of offsets; there may be fewer records (compaction, transaction markers)."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def split(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Returns one range for each task; empty ranges are left out.

    `max_records_per_partition` limits the offsets of a range. If there are still fewer ranges than
    `min_partitions`, large ones are split further, into approximately that many.
    """
    pieces = [offset_range for offset_range in ranges if offset_range.size > 0]
    if max_records_per_partition is not None:
        pieces = [
            part
            for offset_range in pieces
            for part in _divide(
                offset_range, math.ceil(offset_range.size / max_records_per_partition)
            )
        ]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    small = [piece for piece in pieces if _parts(piece.size, total, min_partitions) == 1]
    undivided = {piece.topic_partition for piece in small}
    remaining = total - sum(piece.size for piece in small)
    remaining_partitions = max(min_partitions - len(small), 1)
    return [
        part
        for piece in pieces
        for part in _divide(
            piece,
            1
            if piece.topic_partition in undivided
            else _parts(piece.size, remaining, remaining_partitions),
        )
    ]


def _parts(size: int, total: int, partitions: int) -> int:
    """Returns the share of the partitions, rounded half up, at least one."""
    return max(math.floor(size / total * partitions + 0.5), 1)


def _divide(offset_range: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Yields parts of nearly equal size, none of them empty."""
    start, remaining = offset_range.start, offset_range.size
    for remaining_parts in range(min(parts, offset_range.size), 0, -1):
        size = remaining // remaining_parts
        remaining -= size
        yield replace(offset_range, start=start, end=start + size)
        start += size
