"""`penstock consume`: records of topics to standard output (C2)."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.cli import complete
from penstock.cli.admin.offsets import Isolation
from penstock.cli.names import choose_topics
from penstock.cli.names import pattern as name_pattern
from penstock.cli.options import argument, flag, option
from penstock.cli.output import UsageError
from penstock.cli.records.reading_plan import (
    Start,
    StartKind,
    chosen_partitions,
    parse_partitions,
    parse_span,
)
from penstock.cli.records.record_reader import Reader, Show, Values, interruptible
from penstock.cli.session import Session, with_session
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.consumer.record import ConsumerRecord


class Shape(StrEnum):
    RAW = "raw"
    HEX = "hex"
    BASE64 = "base64"


@with_session
def consume(
    session: Session,
    topics: list[str] = argument(
        "TOPIC", help="The topics to read.", autocompletion=complete.topics
    ),
    pattern: bool = flag("--pattern", help="The topics are regular expressions."),
    offset: list[str] | None = option(
        "--offset",
        "-o",
        help="Where to start: beginning (the default), end, stored, N, -N for the last N, "
        "s@TIME; e@TIME is the stop. TIME is 2026-01-31T12:00:00 or ms since 1970.",
    ),
    partitions: list[str] | None = option(
        "--partition", "-p", help="Only these partitions, such as 0,2-4."
    ),
    group: str | None = option(
        "--group",
        "-G",
        help="Read as a member of this group, and commit the offsets of printed records.",
        autocompletion=complete.groups,
    ),
    no_commit: bool = flag("--no-commit", help="With --group: commit nothing."),
    count: int | None = option("--count", "-c", min=0, help="Stop after this number of records."),
    at_end: bool = option(
        "--exit/--follow",
        "-e/-F",
        default=False,
        help="Stop at the end offsets of the start; or wait for more records.",
    ),
    idle: float | None = option(
        "--idle", min=0, metavar="SECONDS", help="Stop when no record has arrived for this time."
    ),
    text: str | None = option(
        "--format",
        "-f",
        help=r"How to print a record, as in kcat: %s %S %R (value, length, length in 4 bytes), "
        r"%k %K (key), %h (headers), %T (timestamp), %t %p %o (topic, partition, offset), \n "
        r"\t \0 \xNN.",
    ),
    delimiter: str = option(
        "--delimiter", "-D", default=r"\n", help="The end of a record, without -f."
    ),
    key_separator: str | None = option(
        "--key-separator", "-K", help="Print keys too, with this separator before the value."
    ),
    output: Shape = option("--output", default=Shape.RAW, help="How keys and values are printed."),
    decode: list[str] | None = option(
        "--decode",
        "-s",
        metavar="[key=|value=]HOW",
        help="raw, utf-8, hex, base64, json, short, int, long, float, double, uuid, or kcat's "
        "letters: < > b B h H i I q Q c s $.",
    ),
    null: bool = flag("--null", "-Z", help="Print NULL for keys and values that are null."),
    isolation: Isolation | None = option(
        "--isolation-level", help="read_committed skips records of open and aborted transactions."
    ),
) -> None:
    """Print records, from the beginning of the topics unless -o is given.

    With --json one object to a line. Waits for more records until Ctrl-C, which ends it with exit
    code 0, or with 130 if --count or --exit had not reached their end.
    """
    span = parse_span(offset or ())
    if group is not None and (partitions or span.start is not None):
        _check_group_start(span.start, bool(partitions))
    if group is None and span.start is not None and span.start.kind is StartKind.STORED:
        raise UsageError("-o stored needs --group: offsets are stored for groups")
    show = _printer(session, text, delimiter, key_separator, output, decode or [], null)
    is_end = span.start is not None and span.start.kind is StartKind.END
    consumer = session.consumer(
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        isolation_level=isolation and isolation.value,
        group_id=group,
        auto_offset_reset=group and ("latest" if is_end else "earliest"),
    )
    with consumer, interruptible() as stop:
        reader = Reader(consumer, show, stop, count, span.stop_ms, at_end=at_end, idle=idle)
        reader.commits = group is not None and not no_commit
        if group is None:
            numbers = parse_partitions(partitions) if partitions else None
            reader.begin(_partitions(consumer, topics, pattern, numbers), span)
        else:
            consumer.subscribe(_one_pattern(topics) if pattern else topics)
        reader.run()
    reader.report(session)


def _one_pattern(patterns: list[str]) -> re.Pattern[str]:
    for word in patterns:
        name_pattern(word)
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def _check_group_start(start: Start | None, has_partitions: bool) -> None:
    if has_partitions:
        raise UsageError(
            "--partition cannot be used with --group: the group assigns the partitions"
        )
    if start is not None and start.kind not in (
        StartKind.BEGINNING,
        StartKind.END,
        StartKind.STORED,
    ):
        raise UsageError(
            "with --group -o is beginning or end, for partitions without a committed offset; "
            "penstock group reset-offsets sets others"
        )


def _partitions(
    consumer: "Consumer", topics: list[str], pattern: bool, numbers: set[int] | None
) -> list[TopicPartition]:
    if pattern:
        listed = consumer.list_topics()
        hidden = [name for name in listed if name.startswith("__")]
        names = choose_topics(topics, [name for name in listed if name not in hidden], hidden)
        counts = {name: len(listed[name]) for name in names}
    else:
        counts = {name: len(consumer.partitions_for(name)) for name in dict.fromkeys(topics)}
    return chosen_partitions(counts, numbers)


def _printer(
    session: Session,
    text: str | None,
    delimiter: str,
    key_separator: str | None,
    output: Shape,
    decode: list[str],
    null: bool,
) -> Show:
    from penstock.cli.records.record_formats import (
        compile_format,
        decoder_of,
        json_printer,
        undecodable,
        unescaped,
    )

    formats = {"key": output.value, "value": output.value}
    for entry in decode:
        name, equals, rest = entry.partition("=")
        if equals and name in formats:
            formats[name] = rest
        else:
            formats = {"key": entry, "value": entry}
    decoders = {name: decoder_of(decoder_name) for name, decoder_name in formats.items()}
    nothing = b"NULL" if null else b""
    if session.out.as_json:
        if text is not None:
            raise UsageError("-f and --json exclude each other", remedy="choose one")
        print_record = json_printer(formats["key"], formats["value"])
    elif text is None and key_separator is None and decoders["value"] is None:
        return Values(unescaped(delimiter), nothing)
    else:
        if text is None:
            keys = "" if key_separator is None else f"%k{_literal(key_separator)}"
            text = f"{keys}%s{_literal(delimiter)}"
        print_record = compile_format(
            text, key=decoders["key"], value=decoders["value"], null=nothing
        )

    def show(records: Sequence["ConsumerRecord"], errors: list[KafkaError]) -> bytes:
        try:
            return b"".join(map(print_record, records))
        except ValueError:
            printed = []
            for record in records:
                try:
                    printed.append(print_record(record))
                except ValueError as error:
                    errors.append(undecodable(record, error))
            return b"".join(printed)

    return show


def _literal(text: str) -> str:
    return text.replace("%", "%%")
