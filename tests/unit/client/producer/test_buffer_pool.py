"""The producer's memory (P5)."""

import asyncio
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import (
    BufferExhaustedError,
    IllegalStateError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from penstock.client.metrics import Metrics
from penstock.client.producer.buffer_pool import BufferPool
from tests.support.client.accumulator import until
from tests.support.clock import ManualClock


def take(pool: BufferPool, size: int) -> bytearray:
    buffer = pool.try_allocate(size)
    assert buffer is not None
    assert len(buffer) == size
    return buffer


def test_blocks_are_reused() -> None:
    """P5: a returned block is the next to be allocated."""
    pool = BufferPool(64, 16)
    block = take(pool, 16)
    assert pool.available_memory == 48
    pool.deallocate(block, 16)
    assert pool.available_memory == 64
    assert take(pool, 16) is block


def test_buffers_of_other_sizes_are_not_reused() -> None:
    """P5: a record larger than a block gets its own memory, which counts but is not pooled."""
    pool = BufferPool(64, 16)
    large = take(pool, 40)
    assert pool.available_memory == 24
    pool.deallocate(large, 40)
    assert pool.available_memory == 64
    assert take(pool, 40) is not large
    grown = bytearray(20)
    block = take(pool, 16)
    assert block is not grown
    pool.deallocate(grown, 16)
    assert take(pool, 16) is not grown


def test_a_block_that_is_still_read_is_not_reused() -> None:
    pool = BufferPool(16, 16)
    block = take(pool, 16)
    pool.deallocate(None, 16)
    assert take(pool, 16) is not block


def test_free_blocks_are_released_for_other_sizes() -> None:
    """P5: the total is limited whatever the sizes."""
    pool = BufferPool(64, 16)
    for block in [take(pool, 16) for _ in range(4)]:
        pool.deallocate(block, 16)
    assert pool.available_memory == 64
    take(pool, 50)
    assert pool.available_memory == 14
    assert pool.try_allocate(16) is None


def test_more_than_the_total_memory_is_rejected() -> None:
    """P5, P7."""
    pool = BufferPool(64, 16)
    with pytest.raises(RecordTooLargeError, match=r"65 bytes.*raise buffer_memory"):
        pool.try_allocate(65)
    with pytest.raises(RecordTooLargeError):
        pool.allocate(65, 0)


def test_exhausted() -> None:
    """P5, E1: after max_block_ms an error with a remedy."""
    pool = BufferPool(16, 16)
    block = take(pool, 16)
    with pytest.raises(BufferExhaustedError, match=r"max_block_ms \(1 ms\).*raise buffer_memory"):
        pool.allocate(16, 1)
    assert pool.waiting == 0
    assert issubclass(BufferExhaustedError, KafkaTimeoutError)
    pool.deallocate(block, 16)
    assert pool.allocate(16, 0) is block


class Allocation(Thread):
    """A thread that waits for memory."""

    def __init__(self, pool: BufferPool, size: int, order: list[int] | None = None) -> None:
        super().__init__()
        self.size = size
        self.buffer: bytearray | None = None
        self.error: Exception | None = None
        self._pool = pool
        self._order = order
        waiting = pool.waiting
        self.start()
        until(lambda: pool.waiting > waiting)

    def run(self) -> None:
        try:
            self.buffer = self._pool.allocate(self.size, 20_000)
        except IllegalStateError as error:
            self.error = error
        else:
            if self._order is not None:
                self._order.append(self.size)


def test_memory_goes_to_the_first_waiter() -> None:
    """P5: in the order of the calls, even if a later one needs less."""
    pool = BufferPool(64, 16)
    first, second = take(pool, 32), take(pool, 32)
    order: list[int] = []
    large = Allocation(pool, 48, order)
    small = Allocation(pool, 16, order)
    assert pool.try_allocate(8) is None
    pool.deallocate(first, 32)
    assert pool.available_memory == 32
    assert order == []
    assert pool.try_allocate(8) is None, "waiters come first"
    pool.deallocate(second, 32)
    for thread in (large, small):
        thread.join(20)
        assert thread.buffer is not None
        assert len(thread.buffer) == thread.size
    assert sorted(order) == [16, 48]
    assert pool.available_memory == 0


def test_a_waiter_that_times_out_lets_the_next_continue() -> None:
    """P5."""
    pool = BufferPool(64, 16)
    take(pool, 32)

    def time_out() -> None:
        with pytest.raises(BufferExhaustedError):
            pool.allocate(48, 500)

    large = Thread(target=time_out)
    large.start()
    until(lambda: pool.waiting == 1)
    small = Allocation(pool, 16)
    for thread in (large, small):
        thread.join(20)
    assert small.buffer is not None
    assert pool.waiting == 0
    assert pool.available_memory == 16


def test_closing_ends_every_wait() -> None:
    pool = BufferPool(16, 16)
    block = take(pool, 16)
    waiting = Allocation(pool, 16)
    pool.close()
    waiting.join(20)
    assert "closed while this record waited" in str(waiting.error)
    with pytest.raises(IllegalStateError, match="closed"):
        pool.try_allocate(1)
    pool.deallocate(block, 16)
    assert pool.available_memory == 16


def test_tasks_wait_without_blocking() -> None:
    """P5: the aio producer."""

    async def scenario() -> None:
        pool = BufferPool(32, 16)
        held = [await pool.allocate_async(16, 0) for _ in range(2)]
        with pytest.raises(BufferExhaustedError):
            await pool.allocate_async(16, 1)
        first = asyncio.create_task(pool.allocate_async(16, 10_000))
        second = asyncio.create_task(pool.allocate_async(16, 10_000))
        third = asyncio.create_task(pool.allocate_async(16, 10_000))
        await asyncio.sleep(0)
        assert pool.waiting == 3
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert pool.waiting == 2
        pool.deallocate(held[0], 16)
        assert await first is held[0]
        assert not third.done()
        Thread(target=pool.deallocate, args=(held[1], 16)).start()
        assert await third is held[1]

    asyncio.run(scenario())


def test_memory_of_a_cancelled_task_is_returned() -> None:
    async def scenario() -> None:
        pool = BufferPool(16, 16)
        block = await pool.allocate_async(16, 0)
        task = asyncio.create_task(pool.allocate_async(16, 10_000))
        await asyncio.sleep(0)
        pool.deallocate(block, 16)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pool.available_memory == 16
        assert pool.waiting == 0

    asyncio.run(scenario())


def test_metrics() -> None:
    """P5: Kafka's names."""
    metrics = Metrics(ManualClock())
    pool = BufferPool(32, 16, metrics)
    take(pool, 32)
    with pytest.raises(BufferExhaustedError):
        pool.allocate(16, 1)
    values = {name.name: value for name, value in metrics.snapshot().items()}
    assert values["buffer-total-bytes"] == 32
    assert values["buffer-available-bytes"] == 0
    assert values["waiting-threads"] == 0
    assert values["buffer-exhausted-total"] == 1
    assert values["bufferpool-wait-time-ns-total"] >= 1e6
    assert values["bufferpool-wait-ratio"] > 0


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([16, 16, 16, 1, 40, 100])), max_size=60))
def test_the_total_is_never_exceeded(steps: list[tuple[bool, int]]) -> None:
    """P5: allocated and available memory always add up to the total."""
    pool = BufferPool(100, 16)
    out: list[bytearray] = []
    for allocate, size in steps:
        if allocate or not out:
            available = pool.available_memory
            buffer = pool.try_allocate(size)
            assert (buffer is not None) == (available >= size)
            if buffer is not None:
                assert len(buffer) == size
                out.append(buffer)
        else:
            buffer = out.pop(size % len(out))
            pool.deallocate(buffer, len(buffer))
        assert sum(map(len, out)) + pool.available_memory == 100
