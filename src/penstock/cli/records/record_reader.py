"""The loop of `penstock consume`: polls records and prints them until an end condition holds."""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING

from penstock.cli.records.reading_plan import Span, Start, StartKind, start_offsets
from penstock.cli.session import Session, describe_error
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.consumer.record import ConsumerRecord

_POLL_RECORDS = 20_000
_POLL_S = 0.2
"""The longest delay until a signal is handled."""
_COMMIT_S = 5.0
_BULK_FROM = 100_000

Show = Callable[[Sequence["ConsumerRecord"], list[KafkaError]], bytes]
"""Returns the output for records; appends errors of those that cannot be printed to the list."""


class Values:
    """Prints values only, which has a fast path, and a faster one for many records."""

    def __init__(self, end: bytes, null: bytes) -> None:
        self.end = end
        self.null = null

    def __call__(self, records: Sequence["ConsumerRecord"], errors: list[KafkaError]) -> bytes:
        from penstock.cli.records.record_formats import print_values

        return print_values(records, self.end, self.null)


def _write(data: bytes | memoryview) -> None:
    """Writes all data: with PYTHONUNBUFFERED one write to a pipe may be partial."""
    out = sys.stdout.buffer
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[out.write(remaining) :]
    out.flush()


class Stop:
    """Whether a signal has requested the end.

    If `is_patient`, it is checked between two polls, and a second signal raises KeyboardInterrupt;
    otherwise the first signal does.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self.is_patient = False

    def request(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested or not self.is_patient:
            raise KeyboardInterrupt
        self.is_requested = True


@contextmanager
def interruptible() -> Iterator[Stop]:
    stop = Stop()
    before = {
        number: signal.signal(number, stop.request) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Reader:
    """Polls and prints records until an end condition holds."""

    def __init__(
        self,
        consumer: "Consumer",
        show: Show,
        stop: Stop,
        count: int | None,
        stop_ms: int | None,
        *,
        at_end: bool,
        idle: float | None,
    ) -> None:
        self.commits = False
        self._consumer = consumer
        self._show = show
        self._stop = stop
        self._remaining = count
        self._stop_ms = stop_ms
        self._at_end = at_end
        self._idle = idle
        self._ends: dict[TopicPartition, int] = {}
        """The offsets at which --exit stops, of partitions that have not reached them."""
        self._known_partitions: set[TopicPartition] = set()
        self._stopped: set[TopicPartition] = set()
        """Partitions that have reached the stop time."""
        self._printed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._errors = 0
        self._is_cut_short = False
        self._bulk_from: float = math.inf
        """The number of records after which Arrow columns outweigh the time to load Arrow."""
        if isinstance(show, Values) and stop_ms is None and find_spec("pyarrow") is not None:
            self._bulk_from = _BULK_FROM
        self._count = 0

    def begin(self, partitions: list[TopicPartition], span: Span) -> None:
        """Assigns partitions and seeks to the start. For reading without a group."""
        consumer = self._consumer
        start = span.start or Start(StartKind.BEGINNING)
        # Before the first fetch, because brokers process the requests of a connection in order.
        beginnings = consumer.beginning_offsets(partitions)
        ends = consumer.end_offsets(partitions)
        times = {}
        if start.kind is StartKind.TIME:
            offsets_at_time = consumer.offsets_for_times(dict.fromkeys(partitions, start.number))
            times = {
                partition: None if at is None else at.offset
                for partition, at in offsets_at_time.items()
            }
        offsets = start_offsets(start, beginnings, ends, times)
        consumer.assign(partitions)
        for partition, at in offsets.items():
            consumer.seek(partition, at)
        self._known_partitions = set(partitions)
        self._ends = {partition: end for partition, end in ends.items() if offsets[partition] < end}

    def run(self) -> None:
        self._stop.is_patient = True
        last_came = time.monotonic()
        while not self._is_done():
            came = self._print_some(_POLL_S if self._idle is None else min(_POLL_S, self._idle))
            now = time.monotonic()
            if came:
                last_came = now
            elif self._idle is not None and now - last_came >= self._idle:
                break
            if self.commits and now - self._committed_at >= _COMMIT_S:
                self._commit()
            if self._stop.is_requested:
                self._is_cut_short = self._remaining is not None or self._at_end
                break
        self._commit()

    def _print_some(self, timeout: float) -> bool:
        """Polls and prints records; returns whether any arrived."""
        if self._count >= self._bulk_from and not self.commits:
            return self._print_columns(timeout)
        most = _POLL_RECORDS if self._remaining is None else min(_POLL_RECORDS, self._remaining)
        records = self._consumer.poll(timeout, most)
        if records:
            self._print(records)
        self._count += len(records)
        return bool(records)

    def _print_columns(self, timeout: float) -> bool:
        from penstock.cli.records.bulk_values import joined_values

        assert isinstance(self._show, Values)
        batch = self._consumer.poll_arrow(timeout, _POLL_RECORDS)
        if batch is None:
            return False
        if self._remaining is not None:
            batch = batch.slice(0, self._remaining)
            self._remaining -= batch.num_rows
        _write(joined_values(batch, self._show.end, self._show.null))
        return True

    def report(self, session: Session) -> None:
        """Exits with 1 if a record could not be printed, with 130 if --count was not reached."""
        if self._errors:
            session.out.note(f"penstock: {self._errors} records could not be printed")
            raise SystemExit(1)
        if self._is_cut_short:
            raise SystemExit(130)

    def _print(self, records: list["ConsumerRecord"]) -> None:
        if self._stop_ms is not None:
            records = self._before_stop(records, self._stop_ms)
        errors: list[KafkaError] = []
        data = self._show(records, errors)
        for error in errors:
            print(f"penstock: {describe_error(error)}", file=sys.stderr)
        self._errors += len(errors)
        _write(data)
        if self._remaining is not None:
            self._remaining -= len(records)
        if self.commits:
            for record in records:
                self._printed[TopicPartition(record.topic, record.partition)] = record.offset + 1

    def _before_stop(self, records: list["ConsumerRecord"], stop_ms: int) -> list["ConsumerRecord"]:
        earlier = []
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            if partition in self._stopped:
                continue
            if record.timestamp >= stop_ms:
                self._stopped.add(partition)
                self._consumer.pause([partition])
            else:
                earlier.append(record)
        return earlier

    def _is_done(self) -> bool:
        if self._remaining == 0:
            return True
        assigned = self._consumer.assignment()
        if assigned and assigned <= self._stopped:
            return True
        if not self._at_end or not assigned:
            return False
        new = assigned - self._known_partitions
        if new:
            # Only members of a group get partitions later.
            self._known_partitions |= new
            self._ends |= self._consumer.end_offsets(new)
        for partition in list(self._ends):
            if (
                partition in self._stopped
                or partition not in assigned
                or self._consumer.position(partition) >= self._ends[partition]
            ):
                del self._ends[partition]
        return not self._ends

    def _commit(self) -> None:
        self._committed_at = time.monotonic()
        if self.commits and self._printed:
            printed, self._printed = self._printed, {}
            assigned = self._consumer.assignment()
            self._consumer.commit(
                {partition: at for partition, at in printed.items() if partition in assigned}
            )
