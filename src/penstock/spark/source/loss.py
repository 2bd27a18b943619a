"""Where a batch starts in each partition, and which records are lost. Pure.

Records are lost if a query would have read them and they no longer exist. The offsets of a topic
that was deleted and created again are lost, too: they now belong to other records.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.ids import TopicPartition
from penstock.spark.exactly_once import recreated_topics
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.offsets_json import listed
from penstock.spark.source.ranges import OffsetRange


@dataclass(frozen=True)
class BatchStart:
    """Where a batch starts to read, and what was lost before."""

    offsets: Mapping[TopicPartition, int]
    """Without partitions of which nothing can be read."""
    losses: tuple[str, ...]


def new_partitions(start: SourceOffsets, end: SourceOffsets) -> frozenset[TopicPartition]:
    """Returns the partitions that are read from their start: they, or their topics, are new."""
    recreated = recreated_topics(start, end)
    return frozenset(
        partition
        for partition in end.offsets
        if partition not in start.offsets or partition.topic in recreated
    )


def batch_start(
    start: SourceOffsets, end: SourceOffsets, earliest: Mapping[TopicPartition, int]
) -> BatchStart:
    """Returns where a batch from `start` to `end` starts, and what is lost.

    `earliest` has the first offset of each new partition that still exists, and of the other
    partitions that are to be checked.
    """
    recreated = recreated_topics(start, end)
    losses = [
        f"topic {name} was deleted and created again: its offsets now belong to other records"
        for name in sorted(recreated)
    ]
    removed = {
        partition
        for partition in start.offsets.keys() - end.offsets.keys()
        if partition.topic not in recreated
    }
    fresh = new_partitions(start, end)
    if lost := removed | (fresh - earliest.keys()):
        losses.append(f"{listed(lost)} is gone")
    offsets: dict[TopicPartition, int] = {}
    for partition, until in sorted(end.offsets.items()):
        first = earliest.get(partition)
        if partition in fresh:
            if first is None:
                continue
            offsets[partition] = first
            if first > 0 and partition.topic not in recreated:
                losses.append(f"new partition {partition} starts at offset {first} instead of 0")
            continue
        position = start.offsets[partition]
        offsets[partition] = position
        if until < position:
            losses.append(
                f"{partition} ends at offset {until}, and was read up to {position}. Either "
                "startingOffsets lies behind its end, or its log was cut"
            )
        elif first is not None and position < min(first, until):
            offsets[partition] = min(first, until)
            losses.append(
                f"{partition} starts at offset {first} now, and was read up to {position} only"
            )
    return BatchStart(offsets, tuple(losses))


def ranges_between(begin: BatchStart, end: SourceOffsets) -> list[OffsetRange]:
    """Returns the ranges by topic and partition, including empty ones."""
    return [
        OffsetRange(
            partition.topic,
            partition.partition,
            position,
            end.offsets[partition],
            end.topic_ids.get(partition.topic, ""),
        )
        for partition, position in sorted(begin.offsets.items())
    ]


def recreated_since(end: SourceOffsets, now: Mapping[str, str]) -> frozenset[str]:
    """Returns the topics that were created again after a batch was planned."""
    return frozenset(
        topic for topic, planned in end.topic_ids.items() if now.get(topic, planned) != planned
    )
