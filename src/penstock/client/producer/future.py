"""The future of a record that was sent.

A batch has one `BatchResult`. The futures of its records refer to it and to their number in the
batch, and have no lock of their own. When a batch is split because it is too large for the broker,
its result is chained to those of the parts; waiters do not notice.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

from penstock.client.errors import KafkaTimeoutError
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition

logger = logging.getLogger(__name__)

_WHOLE: Final = -1
"""Stands for all records of the batch in place of a record's number."""

_lock = Lock()
"""Guards the waiters of all results. It is held so briefly that one lock suffices."""


class RecordMetadata(NamedTuple):
    """The position of a record in the log. `offset` is -1 with `acks=0`; sizes are -1 for null."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int


DeliveryCallback = Callable[[RecordMetadata | None, KafkaError | None], None]
"""Called on the sender's thread with the metadata of a record, or with the error."""


class BatchResult:
    """The outcome of one batch, shared by the futures of its records."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.base_offset = -1
        self.log_append_time = -1
        self.error: KafkaError | None = None
        self.record_errors: Mapping[int, KafkaError] | None = None
        self._is_set = False
        self._parts: tuple[list[int], list[BatchResult]] | None = None
        self._waiters: list[tuple[int, Callable[[], None]]] = []
        self._loop_waiters: dict[
            asyncio.AbstractEventLoop, list[tuple[int, asyncio.Future[None]]]
        ] = {}

    @property
    def done(self) -> bool:
        """Whether every record of the batch is acknowledged or has failed."""
        parts = self._parts
        return self._is_set if parts is None else all(part.done for part in parts[1])

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the whole batch is done, including the parts of a split one.

        Returns False if that takes longer than `timeout` seconds.
        """
        return self.done or self._wait(_WHOLE, timeout)

    def add_done_callback(self, fn: Callable[[], None]) -> None:
        """Calls `fn` once when the whole batch is done; at once if it is done already."""
        self._add_waiter(_WHOLE, fn)

    # --- used by the batch

    def set_outcome(
        self,
        base_offset: int,
        log_append_time: int,
        error: KafkaError | None = None,
        record_errors: Mapping[int, KafkaError] | None = None,
    ) -> None:
        """Sets the outcome. `notify_waiters` follows after the callbacks of the records."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.error = error
        self.record_errors = record_errors
        with _lock:
            self._is_set = True

    def notify_waiters(self) -> None:
        waiters, loop_waiters = self._take_waiters()
        for _, fn in waiters:
            _call(fn)
        for loop, futures in loop_waiters.items():
            _call_in(loop, _complete, [future for _, future in futures])

    def chain(self, first_numbers: list[int], parts: "list[BatchResult]") -> None:
        """Refers to the results of the parts after a split; they begin with `first_numbers`."""
        with _lock:
            self._parts = (first_numbers, parts)
        waiters, loop_waiters = self._take_waiters()
        for number, fn in waiters:
            self._add_waiter(number, fn)
        for loop, futures in loop_waiters.items():
            for number, future in futures:
                self.add_loop_waiter(number, loop, future)

    # --- used by the futures

    def locate(self, number: int) -> "tuple[BatchResult, int]":
        """Returns the result of record `number` after all splits, and its number there."""
        result = self
        while result._parts is not None:
            first_numbers, parts = result._parts
            index = bisect_right(first_numbers, number) - 1
            number -= first_numbers[index]
            result = parts[index]
        return result, number

    def record_done(self, number: int) -> bool:
        return self.locate(number)[0]._is_set

    def record_error(self, number: int) -> KafkaError | None:
        """Returns the error of a record that is done, or None."""
        result, number = self.locate(number)
        if result.record_errors is not None:
            return result.record_errors.get(number, result.error)
        return result.error

    def first_error(self, first: int, count: int) -> KafkaError | None:
        """Returns the first error among `count` records from `first` on, which must be done."""
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
        """Returns the metadata of a record that is done and has not failed."""
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
        """Completes `future`, which belongs to `loop`, when record `number` is done.

        The loop is woken once, however many futures wait on it.
        """
        result, number = self.locate(number)
        with _lock:
            if not result._is_set and result._parts is None:
                result._loop_waiters.setdefault(loop, []).append((number, future))
                return
        if result._parts is not None:
            result.add_loop_waiter(number, loop, future)
        else:
            _call_in(loop, _complete, [future])

    def _wait(self, number: int, timeout: float | None) -> bool:
        gate = Lock()
        gate.acquire()
        self._add_waiter(number, gate.release)
        return gate.acquire(timeout=-1 if timeout is None else max(timeout, 0.0))

    def _add_waiter(self, number: int, fn: Callable[[], None]) -> None:
        with _lock:
            if not self._is_set and self._parts is None:
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
            waiters, loop_waiters = self._waiters, self._loop_waiters
            self._waiters, self._loop_waiters = [], {}
        return waiters, loop_waiters


class RecordFuture(NamedTuple):
    """The future of a record. Call `result()` in any thread, or await it on any event loop.

    It is a tuple because a producer creates one for every record.
    """

    batch_result: BatchResult
    relative_offset: int
    create_timestamp: int
    serialized_key_size: int
    serialized_value_size: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record goes to, which is known at once."""
        return self.batch_result.topic_partition

    def done(self) -> bool:
        return self.batch_result.record_done(self.relative_offset)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is acknowledged, and returns its metadata.

        Raises the error of a record that failed, and KafkaTimeoutError after `timeout` seconds;
        the record is still being sent then.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.metadata()

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Waits like `result`, and returns the record's error, or None."""
        if not self.batch_result.wait_for_record(self.relative_offset, timeout):
            raise not_acknowledged(f"a record for {self.topic_partition}", timeout)
        return self.batch_result.record_error(self.relative_offset)

    def add_done_callback(self, fn: "Callable[[RecordFuture], None]") -> None:
        """Calls `fn` with this future when it is done, on the sender's thread; at once if it is."""
        self.batch_result.add_record_waiter(self.relative_offset, lambda: fn(self))

    def metadata(self) -> RecordMetadata:
        """Returns the metadata of a record that is done and has not failed, without waiting."""
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


class Deadline:
    """A timeout that several waits share."""

    def __init__(self, timeout: float | None) -> None:
        self._deadline = None if timeout is None else monotonic() + timeout

    def remaining_s(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())


def when_all_done(results: Sequence[BatchResult], fn: Callable[[], None]) -> None:
    """Calls `fn` once when all of `results` are done, on the thread that completes the last."""
    pending = len(results)
    if pending == 0:
        _call(fn)
        return

    def on_done() -> None:
        nonlocal pending
        with _lock:
            pending -= 1
            is_last = pending == 0
        if is_last:
            _call(fn)

    for result in results:
        result.add_done_callback(on_done)


def wake_loop(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[None]") -> None:
    """Completes a future of `loop` from any thread. Does nothing if the loop is closed."""
    _call_in(loop, _complete, [future])


def not_acknowledged(what: str, timeout: float | None) -> KafkaTimeoutError:
    return KafkaTimeoutError(
        f"{what} was not acknowledged within {timeout} s. It is still being sent",
        remedy="wait longer, or lower `delivery_timeout_ms` to have it fail earlier",
    )


def _call(fn: Callable[[], None]) -> None:
    try:
        fn()
    except Exception:
        logger.exception("a callback of a future failed")


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


def _complete(futures: "list[asyncio.Future[None]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
