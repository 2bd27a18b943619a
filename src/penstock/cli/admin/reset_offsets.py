"""Which offsets a group shall have: decisions of `penstock group reset-offsets`, without I/O.

A rule says from which of the partition's offsets the new one is taken. The result always lies
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
    """How offsets are chosen. `number` is the offset, the shift, or the time in ms since 1970."""

    kind: RuleKind
    number: int = 0
    offsets: Mapping[TopicPartition, int] | None = None
    """With FILE: what it says."""


class Bounds(NamedTuple):
    """What is known of a partition: its offsets, and what the group has committed."""

    earliest: int
    latest: int
    committed: int | None = None
    at_time: int | None = None
    """The first offset at or after the rule's time; None where there is none as late."""


class Reset(NamedTuple):
    """A decision: from where to where, and what had to be said about it."""

    partition: TopicPartition
    current: int | None
    new: int
    note: str | None = None


def decide(rule: Rule, partition: TopicPartition, bounds: Bounds) -> Reset:
    """The new offset of one partition. UsageError where the rule cannot be applied to it."""
    wanted, note = _wanted(rule, partition, bounds)
    new = min(max(wanted, bounds.earliest), bounds.latest)
    if new != wanted:
        note = f"{wanted} is outside of {bounds.earliest} to {bounds.latest}"
    return Reset(partition, bounds.committed, new, note)


def _wanted(rule: Rule, partition: TopicPartition, bounds: Bounds) -> tuple[int, str | None]:
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
            f"--shift-by needs a committed offset, and the group has none for {partition}: "
            "leave the partition out, or use --to-offset"
        )
    return bounds.committed + rule.number, None


def parse_duration_ms(text: str) -> int:
    """An ISO 8601 duration of days to seconds, such as P7D, PT1H30M, P1DT12H."""
    match = _DURATION.fullmatch(text.strip())
    parts = {} if match is None else match.groupdict()
    sign = parts.pop("sign", None)
    given = {name: float(value) for name, value in parts.items() if value is not None}
    if not given or text.rstrip().upper().endswith("T"):
        raise UsageError(
            f"'{text}' is no duration: write days, hours, minutes and seconds as in P7D, PT30M "
            "or P1DT12H30M"
        )
    milliseconds = int(timedelta(**given) / timedelta(milliseconds=1))
    return -milliseconds if sign else milliseconds


def parse_time_ms(text: str) -> int:
    """A moment as ms since 1970: ISO 8601, in UTC where it names no zone; or that number."""
    stripped = text.strip()
    if stripped.isascii() and stripped.isdecimal() and len(stripped) > 8:
        return int(stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise UsageError(
            f"'{text}' is no time: write 2026-01-31T12:00:00.000, with Z or +01:00 behind it "
            "where it is not UTC, or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


GroupOffsets = Mapping[str, Mapping[TopicPartition, int]]


def parse_csv(text: str, groups: list[str], source: str) -> dict[str, dict[TopicPartition, int]]:
    """Offsets in Kafka's file: `topic,partition,offset`, or `group,topic,partition,offset`.

    Lines without a group are for the one group that is meant.
    """
    result: dict[str, dict[TopicPartition, int]] = {}
    for number, row in enumerate(csv.reader(StringIO(text)), 1):
        if not row or row in (["topic", "partition", "offset"], _LONG_HEAD):
            continue
        where = f"{source}, line {number}"
        if len(row) not in (3, 4):
            raise UsageError(f"{where}: it must be [GROUP,]TOPIC,PARTITION,OFFSET")
        if len(row) == 3 and len(groups) != 1:
            raise UsageError(f"{where}: with several groups each line must begin with its group")
        group, topic, partition, offset = row if len(row) == 4 else (groups[0], *row)
        try:
            of_group = result.setdefault(group, {})
            of_group[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise UsageError(f"{where}: partition and offset must be whole numbers") from None
    return result


_LONG_HEAD = ["group", "topic", "partition", "offset"]


def to_csv(resets: Iterable[tuple[str, Reset]], *, with_group: bool) -> str:
    """Decisions as `parse_csv` and Kafka's scripts read them."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, reset in resets:
        row = [reset.partition.topic, reset.partition.partition, reset.new]
        writer.writerow([group, *row] if with_group else row)
    return out.getvalue()
