"""Starting and ending positions as options name them; the broker resolves them to offsets."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from penstock.core.ids import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.offsets_json import EARLIEST, LATEST, listed


class LogBoundary(Enum):
    """The start or the end of each partition."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True)
class AtOffsets:
    """An offset for each partition, which may be EARLIEST or LATEST."""

    offsets: SourceOffsets


@dataclass(frozen=True)
class AtTime:
    """The first record at or after a time (ms since 1970), the same for all partitions."""

    time: int
    latest_if_none: bool
    """If no record is that late: LATEST instead of an error."""


@dataclass(frozen=True)
class AtTimes:
    """The first record at or after a time, with a time for each partition."""

    times: Mapping[TopicPartition, int]
    latest_if_none: bool


Position: TypeAlias = LogBoundary | AtOffsets | AtTime | AtTimes


def check_order(starting: Position, ending: Position) -> None:
    """Raises `OptionError` if a batch read ends before it starts, as far as the options show it."""
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        _compare("Offsets", starting.offsets.offsets, ending.offsets.offsets)
    elif isinstance(starting, AtTimes) and isinstance(ending, AtTimes):
        _compare("OffsetsByTimestamp", starting.times, ending.times)
    elif (
        isinstance(starting, AtTime) and isinstance(ending, AtTime) and starting.time > ending.time
    ):
        raise OptionError(
            f"startingTimestamp {starting.time} is later than endingTimestamp {ending.time}"
        )


def _compare(
    kind: str, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> None:
    if different := start.keys() ^ end.keys():
        raise OptionError(
            f"starting{kind} and ending{kind} must name the same partitions: "
            f"{listed(different)} is in one of them only"
        )
    for partition, first in start.items():
        if 0 <= end[partition] < first:
            raise OptionError(
                f"starting{kind} of {partition} is {first}, after its ending{kind} {end[partition]}"
            )
