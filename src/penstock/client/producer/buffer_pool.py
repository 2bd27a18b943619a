"""The memory of batches: limited to `buffer_memory`, in blocks that are reused."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING

from penstock.client.errors import BufferExhaustedError, IllegalStateError, RecordTooLargeError

if TYPE_CHECKING:
    from penstock.client.metrics import Metrics


class ReservedBuffer:
    """Memory that a caller has waited for, until a batch takes it."""

    __slots__ = ("_buffer",)

    def __init__(self, buffer: bytearray | None = None) -> None:
        self._buffer = buffer

    def take(self) -> bytearray | None:
        buffer, self._buffer = self._buffer, None
        return buffer

    def release(self, pool: "BufferPool") -> None:
        """Returns the memory to the pool, unless a batch has taken it."""
        buffer = self.take()
        if buffer is not None:
            pool.deallocate(buffer, len(buffer))


@dataclass(eq=False, slots=True)
class _Waiter:
    """A thread or task that waits for `size` bytes. `notify` is called when it has `buffer`."""

    size: int
    notify: Callable[[], None]
    buffer: bytearray | None = None


class BufferPool:
    """A pool of `memory` bytes. Blocks of exactly `block_size` bytes are reused. Thread-safe.

    Buffers of other sizes count towards the limit, but are not reused. Memory that is returned
    goes to the thread or task that has waited longest, whatever sizes the others need.
    """

    def __init__(self, memory: int, block_size: int, metrics: "Metrics | None" = None) -> None:
        self.total_memory = memory
        self.block_size = block_size
        self._lock = Lock()
        self._free: deque[bytearray] = deque()
        self._unallocated = memory
        self._waiters: deque[_Waiter] = deque()
        self._closed = False
        self._record_wait: Callable[[float], None] = lambda seconds: None
        self._record_exhausted: Callable[[], None] = lambda: None
        if metrics is not None:
            self._register(metrics)

    @property
    def available_memory(self) -> int:
        """The bytes that no batch holds."""
        with self._lock:
            return self._available()

    @property
    def waiting(self) -> int:
        """The number of threads and tasks that wait for memory."""
        return len(self._waiters)

    def try_allocate(self, size: int) -> bytearray | None:
        """Returns a buffer of `size` bytes, or None if there is no memory or others wait for it.

        Raises RecordTooLargeError for more than the pool's total memory.
        """
        with self._lock:
            self._check(size)
            if self._waiters or self._available() < size:
                return None
            return self._take(size)

    def allocate(self, size: int, max_block_ms: int) -> bytearray:
        """Returns a buffer of `size` bytes; blocks the thread until there is memory.

        Raises BufferExhaustedError after `max_block_ms`, IllegalStateError once the pool is closed.
        """
        gate = Lock()
        gate.acquire()
        waiter = self._take_or_queue(size, gate.release)
        if isinstance(waiter, bytearray):
            return waiter
        start = perf_counter()
        try:
            gate.acquire(timeout=max(max_block_ms, 0) / 1000)
        except BaseException:
            self._cancel_wait(waiter)
            raise
        return self._finish_wait(waiter, start, max_block_ms)

    async def allocate_async(self, size: int, max_block_ms: int) -> bytearray:
        """Like `allocate`, but only the calling task waits."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        waiter = self._take_or_queue(size, lambda: _set_in(loop, woken))
        if isinstance(waiter, bytearray):
            return waiter
        start = perf_counter()
        timer = loop.call_later(max(max_block_ms, 0) / 1000, woken.set)
        try:
            await woken.wait()
        except BaseException:
            self._cancel_wait(waiter)
            raise
        finally:
            timer.cancel()
        return self._finish_wait(waiter, start, max_block_ms)

    def deallocate(self, buffer: bytearray | None, size: int) -> None:
        """Returns the `size` bytes of an allocation to the pool.

        `buffer` is reused if it is a block. Pass None for a block that a request may still read:
        its bytes are free, but the block itself is not reused.
        """
        with self._lock:
            if buffer is not None and size == self.block_size == len(buffer):
                self._free.append(buffer)
            else:
                self._unallocated += size
            self._notify_waiters()

    def close(self) -> None:
        """Ends all allocations: waiters fail. Memory may still be returned."""
        with self._lock:
            self._closed = True
            waiters = list(self._waiters)
            self._waiters.clear()
        for waiter in waiters:
            waiter.notify()

    def _available(self) -> int:
        return self._unallocated + len(self._free) * self.block_size

    def _check(self, size: int) -> None:
        if self._closed:
            raise IllegalStateError(
                "the producer is closed", remedy="create a new one to send more records"
            )
        if size > self.total_memory:
            raise RecordTooLargeError(
                f"a batch for this record takes {size} bytes, more than `buffer_memory` "
                f"({self.total_memory} bytes) as a whole",
                remedy="raise `buffer_memory`, or send less",
            )

    def _take(self, size: int) -> bytearray:
        """Returns a buffer. There must be memory for it."""
        if size == self.block_size and self._free:
            return self._free.pop()
        while self._unallocated < size:
            self._free.popleft()
            self._unallocated += self.block_size
        buffer = bytearray(size)
        self._unallocated -= size
        return buffer

    def _notify_waiters(self) -> None:
        """Hands memory to the waiters in order, as long as there is enough for the first."""
        waiters = self._waiters
        while waiters and self._available() >= waiters[0].size:
            waiter = waiters.popleft()
            waiter.buffer = self._take(waiter.size)
            waiter.notify()

    def _take_or_queue(self, size: int, notify: Callable[[], None]) -> bytearray | _Waiter:
        with self._lock:
            self._check(size)
            if not self._waiters and self._available() >= size:
                return self._take(size)
            waiter = _Waiter(size, notify)
            self._waiters.append(waiter)
            return waiter

    def _finish_wait(self, waiter: _Waiter, start: float, max_block_ms: int) -> bytearray:
        self._record_wait(perf_counter() - start)
        with self._lock:
            if waiter.buffer is not None:
                return waiter.buffer
            self._remove(waiter)
            if self._closed:
                raise IllegalStateError(
                    "the producer was closed while this record waited for memory"
                )
            available = self._available()
        self._record_exhausted()
        raise BufferExhaustedError(
            f"no {waiter.size} bytes of memory within `max_block_ms` ({max_block_ms} ms): "
            f"{available} of `buffer_memory` ({self.total_memory} bytes) are free. The brokers "
            "store records more slowly than they are sent",
            remedy="send fewer, wait longer (`max_block_ms`) or raise `buffer_memory`",
        )

    def _cancel_wait(self, waiter: _Waiter) -> None:
        """Ends a wait that was interrupted, and returns memory that it received concurrently."""
        with self._lock:
            if waiter.buffer is None:
                self._remove(waiter)
                return
        self.deallocate(waiter.buffer, waiter.size)

    def _remove(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            # The next waiter may need less.
            self._notify_waiters()

    def _register(self, metrics: "Metrics") -> None:
        from penstock.client.metrics import MetricGroup, Rate, Total, meter

        group = MetricGroup(metrics, "producer-metrics")
        ratio = group.sensor(
            "bufferpool-wait-time",
            {"bufferpool-wait-ratio": (Rate(), "Fraction of time that appends wait for memory")},
        )
        description = "Nanoseconds that appends waited for memory"
        total = group.sensor(
            "bufferpool-wait-time-total",
            {"bufferpool-wait-time-ns-total": (Total(), description)},
        )
        exhausted = group.sensor(
            "buffer-exhausted-records", meter("buffer-exhausted", "Records that found no memory")
        )
        group.gauge(
            "waiting-threads", "Threads and tasks that wait for memory", lambda: self.waiting
        )
        group.gauge("buffer-total-bytes", "All of the memory", lambda: self.total_memory)
        group.gauge(
            "buffer-available-bytes", "Bytes that no batch holds", lambda: self.available_memory
        )

        def record_wait(seconds: float) -> None:
            ratio.record(seconds)
            total.record(seconds * 1e9)

        self._record_wait = record_wait
        self._record_exhausted = exhausted.record


def _set_in(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(event.set)
    except RuntimeError:
        if not loop.is_closed():
            raise
