"""The new offsets of a group: the decisions of `penstock group reset-offsets`, without I/O.

A rule derives the new offset from the offsets of the partition. The result always lies
between the first offset and the end of the partition, so that the group can read from there.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from io import StringIO
from typing import NamedTuple

from penstock.cli.output import UsageError
from penstock.core.ids import TopicPartition

_DURATION = re.compile(
    r"(?P<sign>-)?P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


class RuleKind(Enum):
    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    CURRENT = "--to-current"
    OFFSET = "--to-offset"
    TIME = "--to-datetime or --by-duration"
    SHIFT = "--shift-by"
    FILE = "--from-file"


class Rule(NamedTuple):
    """How new offsets are derived. `number` is an offset, a shift, or a time in ms since 1970."""

    kind: RuleKind
    number: int = 0
    offsets: Mapping[TopicPartition, int] | None = None
    """The offsets in the file, for FILE."""


class Bounds(NamedTuple):
    """The offsets of a partition, and the one that the group has committed."""

    earliest: int
    latest: int
    committed: int | None = None
    at_time: int | None = None
    """The first offset at or after the rule's time; None if no record is that late."""


class Reset(NamedTuple):
    """The old and the new offset of a partition, and a note for the user."""

    partition: TopicPartition
    current: int | None
    new: int
    note: str | None = None


def decide(rule: Rule, partition: TopicPartition, bounds: Bounds) -> Reset:
    """Returns the new offset of one partition.

    Raises UsageError if the rule cannot be applied to it.
    """
    target, note = _apply(rule, partition, bounds)
    new = min(max(target, bounds.earliest), bounds.latest)
    if new != target:
        note = f"{target} is outside of {bounds.earliest} to {bounds.latest}"
    return Reset(partition, bounds.committed, new, note)


def _apply(rule: Rule, partition: TopicPartition, bounds: Bounds) -> tuple[int, str | None]:
    if rule.kind is RuleKind.EARLIEST:
        return bounds.earliest, None
    if rule.kind is RuleKind.LATEST:
        return bounds.latest, None
    if rule.kind is RuleKind.OFFSET:
        return rule.number, None
    if rule.kind is RuleKind.FILE:
        return (rule.offsets or {})[partition], None
    if rule.kind is RuleKind.TIME:
        if bounds.at_time is None:
            return bounds.latest, "no record is as late: the end"
        return bounds.at_time, None
    if rule.kind is RuleKind.CURRENT:
        if bounds.committed is None:
            return bounds.latest, "nothing was committed: the end"
        return bounds.committed, None
    if bounds.committed is None:
        raise UsageError(
            (f"--shift-by needs a committed offset, and the group has none for {partition}"),
            remedy="leave the partition out, or use --to-offset",
        )
    return bounds.committed + rule.number, None


def parse_duration_ms(text: str) -> int:
    """Parses an ISO 8601 duration of days to seconds, such as P7D, PT1H30M, P1DT12H."""
    match = _DURATION.fullmatch(text.strip())
    parts = {} if match is None else match.groupdict()
    sign = parts.pop("sign", None)
    values = {name: float(value) for name, value in parts.items() if value is not None}
    if not values or text.rstrip().upper().endswith("T"):
        raise UsageError(
            f"'{text}' is not a duration",
            remedy=("write days, hours, minutes and seconds as in P7D, PT30M or P1DT12H30M"),
        )
    milliseconds = int(timedelta(**values) / timedelta(milliseconds=1))
    return -milliseconds if sign else milliseconds


def parse_time_ms(text: str) -> int:
    """Returns a time in ms since 1970. The text is ISO 8601, by default in UTC, or that number."""
    stripped = text.strip()
    if stripped.isascii() and stripped.isdecimal() and len(stripped) > 8:
        return int(stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise UsageError(
            f"'{text}' is not a time",
            remedy="write 2026-01-31T12:00:00.000, with a zone such as +01:00 if it is "
            "not UTC, or milliseconds since 1970",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


GroupOffsets = Mapping[str, Mapping[TopicPartition, int]]


def parse_csv(text: str, groups: list[str], source: str) -> dict[str, dict[TopicPartition, int]]:
    """Parses Kafka's file of offsets: `topic,partition,offset`, or `group,topic,partition,offset`.

    Lines without a group are for the only group in `groups`.
    """
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for number, row in enumerate(csv.reader(StringIO(text)), 1):
        if not row or row in (["topic", "partition", "offset"], _LONG_HEAD):
            continue
        location = f"{source}, line {number}"
        if len(row) not in (3, 4):
            raise UsageError("it must be [GROUP,]TOPIC,PARTITION,OFFSET", subject=location)
        if len(row) == 3 and len(groups) != 1:
            raise UsageError(
                "with several groups each line must begin with its group", subject=location
            )
        group, topic, partition, offset = row if len(row) == 4 else (groups[0], *row)
        try:
            of_group = offsets.setdefault(group, {})
            of_group[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise UsageError(
                "partition and offset must be whole numbers", subject=location
            ) from None
    return offsets


_LONG_HEAD = ["group", "topic", "partition", "offset"]


def to_csv(resets: Iterable[tuple[str, Reset]], *, with_group: bool) -> str:
    """Returns the new offsets in the format of `parse_csv` and Kafka's scripts."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, reset in resets:
        row = [reset.partition.topic, reset.partition.partition, reset.new]
        writer.writerow([group, *row] if with_group else row)
    return out.getvalue()
