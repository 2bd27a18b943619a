"""What a batch reads of each partition, and what is lost already: pure, from what the broker says.

Lost are records that a query would have read and that are not there any more, and the offsets of a
topic that was deleted and made again: they are offsets of other records.
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
    """Where a batch begins to read, and what was lost before."""

    offsets: Mapping[TopicPartition, int]
    """None for a partition of which nothing can be read."""
    losses: tuple[str, ...]


def new_partitions(start: SourceOffsets, end: SourceOffsets) -> frozenset[TopicPartition]:
    """Partitions that are read from their beginning: they, or their topics, came after `start`."""
    others = recreated_topics(start, end)
    return frozenset(
        partition
        for partition in end.offsets
        if partition not in start.offsets or partition.topic in others
    )


def batch_start(
    start: SourceOffsets, end: SourceOffsets, earliest: Mapping[TopicPartition, int]
) -> BatchStart:
    """`earliest` has the first offset of each new partition, and of as many others as are to be
    checked; a new partition that is not in it is gone again."""
    others = recreated_topics(start, end)
    losses = [
        f"topic {name} was deleted and made again: its offsets are those of other records now"
        for name in sorted(others)
    ]
    gone = {
        partition
        for partition in start.offsets.keys() - end.offsets.keys()
        if partition.topic not in others
    }
    fresh = new_partitions(start, end)
    if lost := gone | (fresh - earliest.keys()):
        losses.append(f"{listed(lost)} is gone")
    found: dict[TopicPartition, int] = {}
    for each, until in sorted(end.offsets.items()):
        first = earliest.get(each)
        if each in fresh:
            if first is None:
                continue
            found[each] = first
            if first > 0 and each.topic not in others:
                losses.append(f"new partition {each} starts at offset {first} instead of 0")
            continue
        at = start.offsets[each]
        found[each] = at
        if until < at:
            losses.append(
                f"{each} ends at offset {until}, and was read up to {at}. Either startingOffsets "
                "lies behind its end, or its log was cut"
            )
        elif first is not None and at < min(first, until):
            found[each] = min(first, until)
            losses.append(f"{each} starts at offset {first} now, and was read up to {at} only")
    return BatchStart(found, tuple(losses))


def ranges_between(begin: BatchStart, end: SourceOffsets) -> list[OffsetRange]:
    """By topic and partition, also those with nothing in them."""
    return [
        OffsetRange(
            each.topic, each.partition, at, end.offsets[each], end.topic_ids.get(each.topic, "")
        )
        for each, at in sorted(begin.offsets.items())
    ]


def recreated_since(end: SourceOffsets, now: Mapping[str, str]) -> frozenset[str]:
    """Topics that were made again after a batch was planned: its offsets are not theirs."""
    return frozenset(
        topic for topic, planned in end.topic_ids.items() if now.get(topic, planned) != planned
    )
