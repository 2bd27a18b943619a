"""`penstock offsets`: the first and last offsets of partitions (kafka-get-offsets.sh; C2)."""

from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from penstock.cli import complete
from penstock.cli.admin.reset_offsets import parse_time_ms
from penstock.cli.admin.topic_selection import ClusterTopics
from penstock.cli.options import argument, flag, option
from penstock.cli.output import UsageError, moment
from penstock.cli.session import Session, with_session
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

_SPECS = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@with_session
def offsets(
    session: Session,
    topics: list[str] | None = argument(
        "TOPIC[:PARTITIONS]",
        default=None,
        help="Names or regular expressions, such as orders, orders:0,2-4 or 'orders.*:0'. "
        "Default: all.",
        autocompletion=complete.topics,
    ),
    time: str | None = option(
        "--time",
        "-t",
        help="One offset instead of all: latest or -1, earliest or -2, max-timestamp or -3, "
        "earliest-local or -4, latest-tiered or -5, earliest-pending-upload or -6, or a time: "
        "2026-01-31T12:00:00 or milliseconds since 1970.",
    ),
    internal: bool = flag("--internal", help="Internal topics too, such as __consumer_offsets."),
    isolation: Isolation = option(
        "--isolation-level",
        default=Isolation.READ_UNCOMMITTED,
        help="With --time latest: read_committed is the LSO.",
    ),
) -> None:
    """Show the first offset, the high watermark and the last stable offset of partitions.

    Consumers read below the high watermark, those with read_committed below the last stable offset.
    With --time: one offset, and the timestamp of its record.
    """
    spec = None if time is None else time_spec(time)
    level: Literal["read_uncommitted", "read_committed"] = isolation.value
    with session.admin() as admin:
        partitions = _partitions(admin, topics, internal)
        if spec is not None:
            listed_offsets = admin.list_offsets(
                dict.fromkeys(partitions, spec), isolation_level=level
            )
            session.out.table(
                ["Topic", "Partition", "Offset", "Timestamp"],
                [
                    (*partition, _offset(at.offset), moment(at.timestamp))
                    for partition, at in sorted(listed_offsets.items())
                ],
                document=[
                    {
                        "topic": partition.topic,
                        "partition": partition.partition,
                        "offset": _offset(at.offset),
                        "timestamp": _offset(at.timestamp),
                        "leader_epoch": at.leader_epoch,
                    }
                    for partition, at in sorted(listed_offsets.items())
                ],
                empty="there are no such partitions",
            )
            return
        first = admin.list_offsets(dict.fromkeys(partitions, _SPECS["earliest"]))
        ends = dict.fromkeys(partitions, _SPECS["latest"])
        last = admin.list_offsets(ends)
        stable = admin.list_offsets(ends, isolation_level="read_committed")
    rows = []
    for partition in partitions:
        low, high = first[partition].offset, last[partition].offset
        rows.append((*partition, low, high, stable[partition].offset, high - low))
    session.out.table(
        ["Topic", "Partition", "Earliest", "High watermark", "Last stable", "Offsets"],
        rows,
        empty="there are no topics",
    )


def time_spec(text: str) -> int:
    """Parses `--time`: returns one of Kafka's negative numbers, or ms since 1970."""
    if text in _SPECS:
        return _SPECS[text]
    if text.lstrip("-").isdecimal():
        number = int(text)
        if number < min(_SPECS.values()):
            raise UsageError("it must be -1 to -6, a name, or a time", subject=f"--time {text}")
        return number
    try:
        return max(0, parse_time_ms(text))
    except UsageError as error:
        names = ", ".join(_SPECS)
        raise UsageError(str(error), subject="--time", remedy=f"or one of {names}") from None


def _partitions(admin: "Admin", patterns: list[str] | None, internal: bool) -> list[TopicPartition]:
    topics = ClusterTopics.read(admin)
    if internal:
        topics = topics._replace(internal=[])
    if patterns:
        return topics.choose(patterns)
    return sorted(
        partition for partition in topics.replicas if partition.topic not in topics.internal
    )


def _offset(value: int) -> int | None:
    return value if value >= 0 else None
