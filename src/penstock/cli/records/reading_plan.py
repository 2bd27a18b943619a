"""Where reading starts and ends: the decisions of `penstock consume`, without I/O."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from penstock.cli.admin.reset_offsets import parse_time_ms
from penstock.cli.output import UsageError
from penstock.core.ids import TopicPartition


class StartKind(Enum):
    BEGINNING = auto()
    END = auto()
    STORED = auto()
    OFFSET = auto()
    LAST = auto()
    TIME = auto()


class Start(NamedTuple):
    """Where to start. `number` is an offset, a count before the end, or ms since 1970."""

    kind: StartKind
    number: int = 0


class Span(NamedTuple):
    """The start, and the timestamp at which each partition ends; None for no end."""

    start: Start | None = None
    stop_ms: int | None = None


_NAMES = {
    "beginning": StartKind.BEGINNING,
    "earliest": StartKind.BEGINNING,
    "end": StartKind.END,
    "latest": StartKind.END,
    "stored": StartKind.STORED,
}


def parse_span(values: Iterable[str]) -> Span:
    """Parses the values of `-o`, as in kcat: names, N, -N, s@time, e@time."""
    span = Span()
    for value in values:
        if value.startswith("e@"):
            if span.stop_ms is not None:
                raise UsageError("the end is given twice", subject=f"-o {value}")
            span = span._replace(stop_ms=_time(value))
            continue
        if span.start is not None:
            raise UsageError("the start is given twice", subject=f"-o {value}")
        span = span._replace(start=_start(value))
    return span


def _start(value: str) -> Start:
    if value in _NAMES:
        return Start(_NAMES[value])
    if value.startswith("s@"):
        return Start(StartKind.TIME, _time(value))
    digits = value.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        number = int(digits)
        return Start(StartKind.LAST if value.startswith("-") else StartKind.OFFSET, number)
    raise UsageError(
        "it must be beginning, end, stored, an offset, -N for the last N "
        "records, s@TIME to start and e@TIME to stop, with a time such as "
        "2026-01-31T12:00:00 or ms since 1970",
        subject=f"-o {value}",
    )


def _time(value: str) -> int:
    text = value[2:]
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return parse_time_ms(text)
    except UsageError as error:
        raise UsageError(str(error), subject=f"-o {value}") from None


def start_offsets(
    start: Start,
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, int]:
    """Returns the first offset to read of each partition, always within its log."""
    offsets = {}
    for partition, low in beginnings.items():
        high = ends[partition]
        match start.kind:
            case StartKind.BEGINNING:
                offset = low
            case StartKind.OFFSET:
                offset = start.number
            case StartKind.LAST:
                offset = high - start.number
            case StartKind.TIME:
                later = at_time[partition]
                offset = high if later is None else later
            case _:
                offset = high
        offsets[partition] = min(max(offset, low), high)
    return offsets


def parse_partitions(values: Iterable[str]) -> set[int]:
    """Parses partitions such as 0, 2-4 or 0,2-4."""
    numbers: set[int] = set()
    for value in ",".join(values).split(","):
        low, dash, high = value.strip().partition("-")
        if not (low.isdecimal() and low.isascii()) or (dash and not high.isdecimal()):
            raise UsageError(
                "partitions are numbers, such as 0, 2-4 or 0,2-4", subject=f"-p {value}"
            )
        last = int(high) if dash else int(low)
        if last < int(low) or last - int(low) > 100_000:
            raise UsageError("the range is not valid", subject=f"-p {value}")
        numbers.update(range(int(low), last + 1))
    return numbers


def chosen_partitions(
    counts: Mapping[str, int], numbers: Collection[int] | None
) -> list[TopicPartition]:
    """Returns the chosen partitions of all topics. Raises UsageError if a topic lacks one."""
    partitions = []
    for topic, count in counts.items():
        missing = [number for number in numbers or () if number >= count]
        if missing:
            raise UsageError(
                f"topic {topic} has {count} partitions, 0 to {count - 1}: there is no partition "
                f"{min(missing)}"
            )
        chosen = range(count) if numbers is None else sorted(numbers)
        partitions += [TopicPartition(topic, number) for number in chosen]
    return partitions
