"""`penstock produce`: records from files or standard input into a topic (C2)."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING

from penstock.cli import complete
from penstock.cli.admin.reset_offsets import parse_time_ms
from penstock.cli.names import count_of
from penstock.cli.options import argument, flag, option
from penstock.cli.output import UsageError
from penstock.cli.records.record_input import (
    Bulk,
    Encoding,
    InputError,
    InputKind,
    Reading,
    read_bulks,
)
from penstock.cli.session import Session, describe_error, with_session

if TYPE_CHECKING:
    from penstock.cli.records.record_sender import Sender
    from penstock.client.producer.producer import Producer

_CHUNK = 1 << 20
_STDIN = "standard input"
_FAILURES_SHOWN = 5


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    NOBODY = "0"
    LEADER = "1"
    ALL = "all"


@with_session
def produce(
    session: Session,
    topic: str = argument(
        "TOPIC",
        help="The topic; - with --input json: the topic of each record.",
        autocompletion=complete.topics,
    ),
    files: list[Path] | None = argument(
        "FILE", default=None, help="Files to send. Default: standard input."
    ),
    kind: InputKind = option(
        "--input",
        "-i",
        default=InputKind.LINES,
        help="A record is a line, a JSON object on a line, a value after its length in 4 bytes "
        "(sized; sized-keys has a key of the same kind before it), or a whole file.",
    ),
    delimiter: str = option(
        "--delimiter", "-D", default=r"\n", help=r"The end of a line: text, \n, \t, \0, \xNN."
    ),
    key_separator: str | None = option(
        "--key-separator", "-K", help="The separator of key and value in a line."
    ),
    key_optional: bool = flag("--key-optional", help="Lines without the separator have no key."),
    key: str | None = option("--key", "-k", help="The key of records without one."),
    headers: list[str] | None = option(
        "--header",
        "-H",
        metavar="NAME=VALUE",
        help="A header of all records; without = its value is null. May be repeated.",
    ),
    partition: int | None = option(
        "--partition",
        "-p",
        min=-1,
        help="The partition; with -1 the key decides even if JSON names one.",
    ),
    timestamp: str | None = option(
        "--timestamp",
        help="The timestamp of all records: 2026-01-31T12:00:00 or ms since 1970; else now.",
    ),
    null: bool = flag(
        "--null", "-Z", help="Empty values (and keys before -K) are null: tombstones."
    ),
    key_encoding: Encoding = option(
        "--key-encoding", default=Encoding.RAW, help="The encoding of keys."
    ),
    value_encoding: Encoding = option(
        "--value-encoding", default=Encoding.RAW, help="The encoding of values."
    ),
    count: int | None = option("--count", "-c", min=0, help="Stop after this number of records."),
    compression: Compression | None = option(
        "--compression", "-z", help="The compression of batches."
    ),
    acks: Acks | None = option(
        "--acks", help="The replicas that must have a record. Default: all."
    ),
    idempotence: bool | None = option(
        "--idempotence/--no-idempotence",
        help="Store each record once and in order, also after retries.",
    ),
    transactional_id: str | None = option(
        "--transactional-id",
        help="Send all records in one transaction: consumers read all or none.",
    ),
    keep_going: bool = flag("--keep-going", help="Continue after a record that failed."),
) -> None:
    """Send records, and print how many are acknowledged.

    The exit code is 0 if all of them are, 1 if one is not, with the line and the reason; it then
    stops at the first unless --keep-going. With --transactional-id nothing counts in that case.
    """
    from penstock.cli.records.record_formats import unescaped
    from penstock.client.producer.producer import Producer

    if kind is InputKind.FILES and not files:
        raise UsageError("--input files needs files", remedy="name them after the topic")
    if topic == "-" and kind is not InputKind.JSON:
        raise UsageError("with - each record names its topic, which needs --input json")
    reading = Reading(
        delimiter=unescaped(delimiter),
        key_separator=None if key_separator is None else unescaped(key_separator),
        key_optional=key_optional,
        key=None if key is None else _argument(key),
        null=null,
        key_encoding=key_encoding,
        value_encoding=value_encoding,
        headers=tuple(_header(header) for header in headers or ()),
    )
    for name, text in (("-D", reading.delimiter), ("-K", reading.key_separator)):
        if text == b"":
            raise UsageError(f"{name} is empty: it needs at least one character")
    bulks = _bulks(kind, files or [], reading)
    is_typed = not files and sys.stdin.isatty()
    work = _Work(session, keep_going=keep_going, count=count, is_typed=is_typed)
    options = session.producer_options(
        compression_type=compression and compression.value,
        acks=acks and acks.value,
        enable_idempotence=idempotence,
        transactional_id=transactional_id,
    )
    with Producer(**options) as producer:
        work.run(
            producer,
            None if topic == "-" else topic,
            bulks,
            partition,
            None if timestamp is None else parse_time_ms(timestamp),
            transactional=transactional_id is not None,
        )
    work.report()


class _Work:
    """One run of the command: sends all records, then reports the result."""

    def __init__(
        self, session: Session, *, keep_going: bool, count: int | None, is_typed: bool
    ) -> None:
        self._session = session
        self._is_typed = is_typed
        self._keep_going = keep_going
        self._remaining = count
        self._sender: Sender | None = None
        self._problem: str | None = None
        """What ended the input early, besides records that failed."""
        self._has_aborted = False
        self._is_interrupted = False
        self._started = time.monotonic()

    def run(
        self,
        producer: "Producer",
        topic: str | None,
        bulks: Iterator[Bulk],
        partition: int | None,
        timestamp: int | None,
        *,
        transactional: bool,
    ) -> None:
        from penstock.cli.records.record_sender import Sender

        if transactional:
            producer.init_transactions()
            producer.begin_transaction()
        with self._progress() as advance:
            self._sender = sender = Sender(
                producer, topic, partition=partition, timestamp=timestamp, on_progress=advance
            )
            try:
                self._send_all(bulks, sender)
            except InputError as error:
                self._problem = str(error)
            except OSError as error:
                self._problem = f"{error.filename or _STDIN}: {error.strerror}"
            except KeyboardInterrupt:
                self._is_interrupted = True
            if transactional:
                self._end_transaction(producer, sender)
            sender.finish()

    def _progress(self) -> AbstractContextManager[Callable[[int], None]]:
        if self._is_typed:
            # No progress bar between the lines that a user is typing.
            return nullcontext(lambda steps: None)
        return self._session.out.progress("records", None)

    def _send_all(self, bulks: Iterator[Bulk], sender: "Sender") -> None:
        for bulk in bulks:
            size = len(bulk.values)
            if self._remaining is not None:
                size = min(size, self._remaining)
                self._remaining -= size
            sender.send(bulk if size == len(bulk.values) else _cut(bulk, size))
            if self._remaining == 0 or (sender.failed and not self._keep_going):
                return

    def _end_transaction(self, producer: "Producer", sender: "Sender") -> None:
        producer.flush()
        sender.finish()
        if sender.failed or self._problem is not None or self._is_interrupted:
            self._has_aborted = True
            producer.abort_transaction()
        else:
            producer.commit_transaction()

    def report(self) -> None:
        """Prints the result, and exits with 1 if a record failed."""
        sender, out = self._sender, self._session.out
        assert sender is not None
        took = time.monotonic() - self._started
        failures = sender.failures
        if out.as_json:
            out.document(
                {
                    "acknowledged": 0 if self._has_aborted else sender.acknowledged,
                    "failed": len(failures),
                    "bytes": 0 if self._has_aborted else sender.acknowledged_bytes,
                    "seconds": round(took, 3),
                    "aborted": self._has_aborted,
                    "problem": self._problem,
                    "failures": [
                        {
                            "where": failure.where,
                            "error": failure.error.code.name,
                            "message": describe_error(failure.error),
                        }
                        for failure in failures
                    ],
                }
            )
        else:
            self._print(took)
        if self._is_interrupted:
            raise SystemExit(130)
        if failures or self._problem is not None:
            raise SystemExit(1)

    def _print(self, took: float) -> None:
        sender, out = self._sender, self._session.out
        assert sender is not None
        failures = sender.failures
        for where, error in failures[:_FAILURES_SHOWN]:
            out.note(f"penstock: {where}: {describe_error(error)} ({error.code.name})")
        if len(failures) > _FAILURES_SHOWN:
            out.note(f"penstock: {len(failures) - _FAILURES_SHOWN} more failed")
        if self._problem is not None:
            out.note(f"penstock: {self._problem}")
        if self._has_aborted:
            out.line("the transaction was aborted: no record of it will be read")
            return
        speed = sender.acknowledged_bytes / max(took, 1e-9) / 1e6
        failed = f", {len(failures)} failed" if failures else ""
        out.line(
            f"{count_of(sender.acknowledged, 'record')} acknowledged{failed} "
            f"({sender.acknowledged_bytes:,} bytes in {took:.1f} s, {speed:.1f} MB/s)"
        )
        if (failures and not self._keep_going) or self._problem is not None:
            out.note("penstock: nothing behind that was sent")


def _cut(bulk: Bulk, size: int) -> Bulk:
    return bulk._replace(
        values=bulk.values[:size],
        keys=bulk.keys and bulk.keys[:size],
        timestamps=bulk.timestamps and bulk.timestamps[:size],
    )


def _bulks(kind: InputKind, files: list[Path], reading: Reading) -> Iterator[Bulk]:
    if not files:
        yield from read_bulks(kind, _STDIN, _chunks(sys.stdin.buffer), reading)
    for path in files:
        if str(path) == "-":
            yield from read_bulks(kind, _STDIN, _chunks(sys.stdin.buffer), reading)
            continue
        with path.open("rb") as file:
            yield from read_bulks(kind, str(path), _chunks(file), reading)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yields the available bytes without waiting for a full chunk, because users type lines."""
    read = getattr(file, "read1", file.read)
    while chunk := read(_CHUNK):
        yield chunk


def _argument(text: str) -> bytes:
    """Returns the bytes of an argument unchanged, even if they are not UTF-8."""
    return text.encode(errors="surrogateescape")


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError("it must be NAME=VALUE", subject=f"-H {text}")
    return name, _argument(value) if equals else None
