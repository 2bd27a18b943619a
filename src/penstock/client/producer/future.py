"""What a sent record becomes: a future of its place in the log.

A batch has one `BatchResult`; the futures of its records refer to it and to their place in the
batch, and hold no lock of their own. A batch that the broker finds too large is split: its result
then follows those of the parts, and nobody who waits notices.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from logging import getLogger
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

from penstock.client.errors import KafkaTimeoutError
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition

_log = getLogger(__name__)

_WHOLE: Final = -1
"""In place of a record's number: all records of the batch."""

_lock = Lock()
"""Guards who waits for which result. Held for a few steps, so one does for all of them."""


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 with `acks=0`, sizes are -1 for null."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int


DeliveryCallback = Callable[[RecordMetadata | None, KafkaError | None], None]
"""Called on the sender's thread with the metadata of a record, or with why there is none."""


class BatchResult:
    """The outcome of one batch, which the futures of its records share."""

    __slots__ = (
        "_loop_waiters",
        "_parts",
        "_settled",
        "_waiters",
        "base_offset",
        "error",
        "log_append_time",
        "record_errors",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.base_offset = -1
        self.log_append_time = -1
        self.error: KafkaError | None = None
        self.record_errors: Mapping[int, KafkaError] | None = None
        self._settled = False
        self._parts: tuple[list[int], list[BatchResult]] | None = None
        self._waiters: list[tuple[int, Callable[[], None]]] = []
        self._loop_waiters: dict[
            asyncio.AbstractEventLoop, list[tuple[int, asyncio.Future[None]]]
        ] = {}

    @property
    def done(self) -> bool:
        """Whether every record of the batch is in the log or has failed."""
        parts = self._parts
        return self._settled if parts is None else all(part.done for part in parts[1])

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the whole batch is done, with its parts if it is split; False: timed out."""
        return self.done or self._wait(_WHOLE, timeout)

    def add_done_callback(self, fn: Callable[[], None]) -> None:
        """Call `fn` once when the whole batch is done, with its parts; now if it is already."""
        self._add_waiter(_WHOLE, fn)

    # For the batch

    def settle(
        self,
        base_offset: int,
        log_append_time: int,
        error: KafkaError | None = None,
        record_errors: Mapping[int, KafkaError] | None = None,
    ) -> None:
        """Say how it went. Who waits is told by `wake`, after the callbacks of the records."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.error = error
        self.record_errors = record_errors
        with _lock:
            self._settled = True

    def wake(self) -> None:
        """Tell all who wait for this result."""
        waiters, loop_waiters = self._take_waiters()
        for _, fn in waiters:
            _call(fn)
        for loop, futures in loop_waiters.items():
            _call_in(loop, _finish, [future for _, future in futures])

    def follow(self, firsts: list[int], parts: "list[BatchResult]") -> None:
        """The batch was split: `parts` begin with the records numbered `firsts`."""
        with _lock:
            self._parts = (firsts, parts)
        waiters, loop_waiters = self._take_waiters()
        for number, fn in waiters:
            self._add_waiter(number, fn)
        for loop, futures in loop_waiters.items():
            for number, future in futures:
                self.add_loop_waiter(number, loop, future)

    # For the futures

    def locate(self, number: int) -> "tuple[BatchResult, int]":
        """The result that record `number` has after all splits, and its number there."""
        result = self
        while result._parts is not None:
            firsts, parts = result._parts
            index = bisect_right(firsts, number) - 1
            number -= firsts[index]
            result = parts[index]
        return result, number

    def record_done(self, number: int) -> bool:
        return self.locate(number)[0]._settled

    def record_error(self, number: int) -> KafkaError | None:
        """Why a record that is done is not in the log."""
        result, number = self.locate(number)
        if result.record_errors is not None:
            return result.record_errors.get(number, result.error)
        return result.error

    def first_error(self, first: int, count: int) -> KafkaError | None:
        """The first failure among `count` records from `first` on, all of them done."""
        if self._parts is None and self.error is None:
            return None
        for number in range(first, first + count):
            error = self.record_error(number)
            if error is not None:
                return error
        return None

    def metadata(
        self, number: int, timestamp: int, key_size: int, value_size: int
    ) -> RecordMetadata:
        """Where a record that is done and has not failed is."""
        result = self
        if self._parts is not None:
            result, number = self.locate(number)
        topic, partition = self.topic_partition
        base = result.base_offset
        append_time = result.log_append_time
        return RecordMetadata(
            topic,
            partition,
            base + number if base >= 0 else -1,
            timestamp if append_time < 0 else append_time,
            key_size,
            value_size,
        )

    def wait_for_record(self, number: int, timeout: float | None) -> bool:
        return self.record_done(number) or self._wait(number, timeout)

    def add_record_waiter(self, number: int, fn: Callable[[], None]) -> None:
        self._add_waiter(number, fn)

    def add_loop_waiter(
        self, number: int, loop: asyncio.AbstractEventLoop, future: "asyncio.Future[None]"
    ) -> None:
        """Finish `future`, which belongs to `loop`, when record `number` is done.

        However many wait on a loop, the loop is woken once.
        """
        result, number = self.locate(number)
        with _lock:
            if not result._settled and result._parts is None:
                result._loop_waiters.setdefault(loop, []).append((number, future))
                return
        if result._parts is not None:
            result.add_loop_waiter(number, loop, future)
        else:
            _call_in(loop, _finish, [future])

    def _wait(self, number: int, timeout: float | None) -> bool:
        gate = Lock()
        gate.acquire()
        self._add_waiter(number, gate.release)
        return gate.acquire(timeout=-1 if timeout is None else max(timeout, 0.0))

    def _add_waiter(self, number: int, fn: Callable[[], None]) -> None:
        with _lock:
            if not self._settled and self._parts is None:
                self._waiters.append((number, fn))
                return
        if self._parts is None:
            _call(fn)
        elif number == _WHOLE:
            when_all_done(self._parts[1], fn)
        else:
            result, number = self.locate(number)
            result._add_waiter(number, fn)

    def _take_waiters(
        self,
    ) -> tuple[
        list[tuple[int, Callable[[], None]]],
        dict[asyncio.AbstractEventLoop, list[tuple[int, "asyncio.Future[None]"]]],
    ]:
        with _lock:
            taken = self._waiters, self._loop_waiters
            self._waiters, self._loop_waiters = [], {}
        return taken


class RecordFuture(NamedTuple):
    """A record on its way. Ask `result()` in any thread, or await it on any loop.

    It is a tuple because a producer makes one for every record.
    """

    batch_result: BatchResult
    relative_offset: int
    create_timestamp: int
    serialized_key_size: int
    serialized_value_size: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record goes, which is known at once."""
        return self.batch_result.topic_partition

    def done(self) -> bool:
        return self.batch_result.record_done(self.relative_offset)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the record to be in the log.

        `KafkaTimeoutError` after `timeout` seconds: the record is still on its way then. If the
        record failed, its error is raised.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.metadata()

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Wait as `result`, and return the record's error, or None."""
        if not self.batch_result.wait_for_record(self.relative_offset, timeout):
            raise timed_out(f"a record for {self.topic_partition}", timeout)
        return self.batch_result.record_error(self.relative_offset)

    def add_done_callback(self, fn: "Callable[[RecordFuture], None]") -> None:
        """Call `fn` with this future when it is done: on the sender's thread, or now."""
        self.batch_result.add_record_waiter(self.relative_offset, lambda: fn(self))

    def metadata(self) -> RecordMetadata:
        """Of a record that is done and has not failed."""
        return self.batch_result.metadata(
            self.relative_offset,
            self.create_timestamp,
            self.serialized_key_size,
            self.serialized_value_size,
        )

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self.batch_result.add_loop_waiter(self.relative_offset, loop, waiter)
            yield from waiter
        return self.result(0)


class Remaining:
    """What is left of a timeout over several waits."""

    def __init__(self, timeout: float | None) -> None:
        self._deadline = None if timeout is None else monotonic() + timeout

    def seconds(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())


def when_all_done(results: Sequence[BatchResult], fn: Callable[[], None]) -> None:
    """Call `fn` once when all of `results` are done, on the thread that finishes the last."""
    left = len(results)
    if left == 0:
        _call(fn)
        return

    def one_done() -> None:
        nonlocal left
        with _lock:
            left -= 1
            last = left == 0
        if last:
            _call(fn)

    for result in results:
        result.add_done_callback(one_done)


def wake_loop(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[None]") -> None:
    """Finish a future of `loop` from any thread. A loop that is closed has nobody waiting."""
    _call_in(loop, _finish, [future])


def timed_out(what: str, timeout: float | None) -> KafkaTimeoutError:
    """The error of a wait that was too short."""
    return KafkaTimeoutError(
        f"{what} was not acknowledged within {timeout} s. It is still being sent: wait longer, or "
        "lower delivery_timeout_ms to have it fail earlier"
    )


def _call(fn: Callable[[], None]) -> None:
    try:
        fn()
    except Exception:  # noqa: BLE001
        _log.exception("a callback of a future failed")


def _call_in(
    loop: asyncio.AbstractEventLoop,
    fn: "Callable[[list[asyncio.Future[None]]], None]",
    futures: "list[asyncio.Future[None]]",
) -> None:
    try:
        loop.call_soon_threadsafe(fn, futures)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _finish(futures: "list[asyncio.Future[None]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
