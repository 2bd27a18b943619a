"""Staged operations on the broker's threads complete even if the caller stops waiting."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator

import pytest

from penstock.broker.workers import Workers
from penstock.storage.staged_operation import StagedOperation, Steps


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.close()


def test_the_first_step_runs_immediately_and_blocking_work_on_a_thread(workers: Workers) -> None:
    threads: list[int] = []

    def record_thread() -> None:
        threads.append(threading.get_ident())

    def steps() -> Steps[str]:
        record_thread()
        yield record_thread
        record_thread()
        return "done"

    async def work() -> str:
        job = workers.start(workers.flush, StagedOperation(steps()))
        assert len(threads) == 1
        return await job

    assert asyncio.run(work()) == "done"
    first, second, third = threads
    assert first == third == threading.get_ident() != second


def test_an_operation_completes_after_its_waiter_is_cancelled(workers: Workers) -> None:
    gate = threading.Event()
    ended: list[bool] = []

    def steps() -> Steps[None]:
        yield lambda: ended.append(not gate.wait(60))
        ended.append(True)

    async def work() -> None:
        job = workers.start(workers.flush, StagedOperation(steps()))
        waiting = asyncio.ensure_future(asyncio.wait([job]))
        await asyncio.sleep(0)
        waiting.cancel()
        gate.set()
        await workers.wait_for_operations()
        assert job.done()

    asyncio.run(work())
    assert ended == [False, True]


def test_an_error_is_raised_to_the_waiter(workers: Workers) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "broken")

    def steps() -> Steps[None]:
        yield fail

    async def work() -> None:
        await workers.start(workers.flush, StagedOperation(steps()))

    with pytest.raises(OSError, match="broken"):
        asyncio.run(work())


def test_threads_that_compute_for_long_have_a_lower_priority_than_the_event_loop(
    workers: Workers,
) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    own = niceness()
    assert workers.compute.submit(niceness).result() == min(own + 10, 19)
    assert workers.codec.submit(niceness).result() == min(own + 10, 19)
    assert workers.flush.submit(niceness).result() == own
