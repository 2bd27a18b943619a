"""Where reading starts and ends, as options say it: not offsets yet, the broker knows those."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from penstock.core.ids import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.offsets_json import EARLIEST, LATEST, listed


class LogBoundary(Enum):
    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True)
class AtOffsets:
    """An offset for each partition, EARLIEST and LATEST among them."""

    offsets: SourceOffsets


@dataclass(frozen=True)
class AtTime:
    """The first record from a time on (ms since 1970), the same for all partitions."""

    time: int
    latest_if_none: bool
    """Where no record is that late: LATEST, rather than an error."""


@dataclass(frozen=True)
class AtTimes:
    """The first record from a time on, for each partition."""

    times: Mapping[TopicPartition, int]
    latest_if_none: bool


Position: TypeAlias = LogBoundary | AtOffsets | AtTime | AtTimes


def check_order(starting: Position, ending: Position) -> None:
    """OptionError where the end of a batch read lies before its start, as far as that can be told
    without asking the broker."""
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
