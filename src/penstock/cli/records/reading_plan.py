"""Where a consumer begins and ends: decisions of `penstock consume`, without I/O."""

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
    """Where to begin. `number` is the offset, how many before the end, or ms since 1970."""

    kind: StartKind
    number: int = 0


class Span(NamedTuple):
    """From where, and before which timestamp each partition ends (None: it does not)."""

    start: Start | None = None
    stop_ms: int | None = None


_WORDS = {
    "beginning": StartKind.BEGINNING,
    "earliest": StartKind.BEGINNING,
    "end": StartKind.END,
    "latest": StartKind.END,
    "stored": StartKind.STORED,
}


def parse_span(words: Iterable[str]) -> Span:
    """What the values of `-o` say, as in kcat: words, N, -N, s@time, e@time."""
    span = Span()
    for word in words:
        if word.startswith("e@"):
            if span.stop_ms is not None:
                raise UsageError(f"-o {word}: the end is given twice")
            span = span._replace(stop_ms=_time(word))
            continue
        if span.start is not None:
            raise UsageError(f"-o {word}: the start is given twice")
        span = span._replace(start=_start(word))
    return span


def _start(word: str) -> Start:
    if word in _WORDS:
        return Start(_WORDS[word])
    if word.startswith("s@"):
        return Start(StartKind.TIME, _time(word))
    digits = word.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        number = int(digits)
        return Start(StartKind.LAST if word.startswith("-") else StartKind.OFFSET, number)
    raise UsageError(
        f"-o {word}: it is beginning, end, stored, an offset, -N for the last N records, s@TIME to "
        "start and e@TIME to stop, with a time such as 2026-01-31T12:00:00 or ms since 1970"
    )


def _time(word: str) -> int:
    text = word[2:]
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return parse_time_ms(text)
    except UsageError as error:
        raise UsageError(f"-o {word}: {error}") from None


def start_offsets(
    start: Start,
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, int]:
    """The first offset to read of each partition, never outside of what it has."""
    result = {}
    for partition, low in beginnings.items():
        high = ends[partition]
        match start.kind:
            case StartKind.BEGINNING:
                wanted = low
            case StartKind.OFFSET:
                wanted = start.number
            case StartKind.LAST:
                wanted = high - start.number
            case StartKind.TIME:
                later = at_time[partition]
                wanted = high if later is None else later
            case _:
                wanted = high
        result[partition] = min(max(wanted, low), high)
    return result


def parse_partitions(words: Iterable[str]) -> set[int]:
    """Partitions such as 0, 2-4 or 0,2-4."""
    result: set[int] = set()
    for word in ",".join(words).split(","):
        low, dash, high = word.strip().partition("-")
        if not (low.isdecimal() and low.isascii()) or (dash and not high.isdecimal()):
            raise UsageError(f"-p {word}: partitions are numbers, such as 0, 2-4 or 0,2-4")
        last = int(high) if dash else int(low)
        if last < int(low) or last - int(low) > 100_000:
            raise UsageError(f"-p {word}: the range makes no sense")
        result.update(range(int(low), last + 1))
    return result


def chosen_partitions(
    counts: Mapping[str, int], numbers: Collection[int] | None
) -> list[TopicPartition]:
    """Those of all topics that are wanted. UsageError where a topic does not have one of them."""
    result = []
    for topic, count in counts.items():
        missing = [number for number in numbers or () if number >= count]
        if missing:
            raise UsageError(
                f"topic {topic} has {count} partitions, 0 to {count - 1}: there is no partition "
                f"{min(missing)}"
            )
        wanted = range(count) if numbers is None else sorted(numbers)
        result += [TopicPartition(topic, item) for item in wanted]
    return result
