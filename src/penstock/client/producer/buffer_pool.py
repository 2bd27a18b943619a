"""The memory that batches are filled in: bounded, and its blocks used again."""

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Final

from penstock.client.errors import BufferExhaustedError, IllegalStateError, RecordTooLargeError

if TYPE_CHECKING:
    from penstock.client.metrics import Metrics

_GROUP: Final = "producer-metrics"


class _Waiter:
    """A thread or task that waits for `size` bytes; `notify` is called when it may look."""

    __slots__ = ("buffer", "notify", "size")

    def __init__(self, size: int, notify: Callable[[], None]) -> None:
        self.size = size
        self.notify = notify
        self.buffer: bytearray | None = None


class BufferPool:
    """`memory` bytes in all. Blocks of exactly `block` bytes are kept for the next batch.

    Buffers of other sizes count, but are not kept. Who finds no memory waits; memory that comes
    back goes to the one who has waited longest, whatever the others need.
    """

    def __init__(self, memory: int, block: int, metrics: "Metrics | None" = None) -> None:
        self.total_memory = memory
        self.block = block
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
        """Bytes that no batch has, whether they were ever allocated or not."""
        with self._lock:
            return self._available()

    @property
    def waiting(self) -> int:
        """How many threads and tasks wait for memory."""
        return len(self._waiters)

    def try_allocate(self, size: int) -> bytearray | None:
        """A buffer of `size` bytes, or None where there is no memory or others wait for it.

        `RecordTooLargeError`: more than the pool will ever have.
        """
        with self._lock:
            self._check(size)
            if self._waiters or self._available() < size:
                return None
            return self._take(size)

    def allocate(self, size: int, max_block_ms: int) -> bytearray:
        """A buffer of `size` bytes; blocks the thread until there is memory.

        `BufferExhaustedError` after `max_block_ms`; `IllegalStateError` once the pool is closed.
        """
        gate = Lock()
        gate.acquire()
        waiter = self._take_or_queue(size, gate.release)
        if isinstance(waiter, bytearray):
            return waiter
        began = perf_counter()
        try:
            gate.acquire(timeout=max(max_block_ms, 0) / 1000)
        except BaseException:
            self._give_up(waiter)
            raise
        return self._waited(waiter, began, max_block_ms)

    async def allocate_async(self, size: int, max_block_ms: int) -> bytearray:
        """`allocate` for tasks: only the task waits."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        waiter = self._take_or_queue(size, lambda: _set_in(loop, woken))
        if isinstance(waiter, bytearray):
            return waiter
        began = perf_counter()
        timer = loop.call_later(max(max_block_ms, 0) / 1000, woken.set)
        try:
            await woken.wait()
        except BaseException:
            self._give_up(waiter)
            raise
        finally:
            timer.cancel()
        return self._waited(waiter, began, max_block_ms)

    def deallocate(self, buffer: bytearray | None, size: int) -> None:
        """Give back the `size` bytes of an allocation.

        `buffer` is used again if it is a block. Without one the bytes are free all the same: for a
        block that somebody may still read.
        """
        with self._lock:
            if buffer is not None and size == self.block == len(buffer):
                self._free.append(buffer)
            else:
                self._unallocated += size
            self._serve()

    def close(self) -> None:
        """Nothing is allocated any more: those who wait fail. Memory may still come back."""
        with self._lock:
            self._closed = True
            waiters = list(self._waiters)
            self._waiters.clear()
        for waiter in waiters:
            waiter.notify()

    def _available(self) -> int:
        return self._unallocated + len(self._free) * self.block

    def _check(self, size: int) -> None:
        if self._closed:
            raise IllegalStateError("the producer is closed: make a new one to send more records")
        if size > self.total_memory:
            raise RecordTooLargeError(
                f"a batch for this record takes {size} bytes, more than buffer_memory "
                f"({self.total_memory} bytes) as a whole: raise buffer_memory, or send less"
            )

    def _take(self, size: int) -> bytearray:
        """A buffer, when there is memory for it."""
        if size == self.block and self._free:
            return self._free.pop()
        while self._unallocated < size:
            self._free.popleft()
            self._unallocated += self.block
        made = bytearray(size)
        self._unallocated -= size
        return made

    def _serve(self) -> None:
        """Give memory to those who wait, as long as there is enough for the first of them."""
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

    def _waited(self, waiter: _Waiter, began: float, max_block_ms: int) -> bytearray:
        self._record_wait(perf_counter() - began)
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
            f"no {waiter.size} bytes of memory within max_block_ms ({max_block_ms} ms): "
            f"{available} of buffer_memory ({self.total_memory} bytes) are free. The brokers take "
            "records more slowly than they are sent: send fewer, wait longer (max_block_ms) or "
            "raise buffer_memory"
        )

    def _give_up(self, waiter: _Waiter) -> None:
        """The wait was interrupted. What was given meanwhile goes back."""
        with self._lock:
            if waiter.buffer is None:
                self._remove(waiter)
                return
        self.deallocate(waiter.buffer, waiter.size)

    def _remove(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            # It may have held up others who need less.
            self._serve()

    def _register(self, metrics: "Metrics") -> None:
        from penstock.client.metrics import Rate, Total

        ratio = metrics.sensor("bufferpool-wait-time")
        ratio.add(
            metrics.name(
                "bufferpool-wait-ratio", _GROUP, "Part of the time that a sender waits for memory."
            ),
            Rate(),
        )
        total = metrics.sensor("bufferpool-wait-time-total")
        total.add(
            metrics.name(
                "bufferpool-wait-time-ns-total", _GROUP, "Nanoseconds of waiting for memory."
            ),
            Total(),
        )
        exhausted = metrics.sensor("buffer-exhausted-records")
        exhausted.add_meter(
            metrics.name(
                "buffer-exhausted-rate", _GROUP, "Records per second that found no memory."
            ),
            metrics.name("buffer-exhausted-total", _GROUP, "Records that found no memory."),
        )
        metrics.gauge(
            metrics.name("waiting-threads", _GROUP, "Threads and tasks that wait for memory."),
            lambda: self.waiting,
        )
        metrics.gauge(
            metrics.name("buffer-total-bytes", _GROUP, "buffer.memory."),
            lambda: self.total_memory,
        )
        metrics.gauge(
            metrics.name("buffer-available-bytes", _GROUP, "Memory that no batch has."),
            lambda: self.available_memory,
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
