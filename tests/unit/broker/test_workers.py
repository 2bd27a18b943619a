"""Staged operations on the broker's threads complete even if the caller stops waiting."""

import asyncio
import errno
import threading
from collections.abc import Iterator

import pytest

from penstock.broker.workers import Workers
from penstock.storage.staged_operation import StagedOperation, Steps


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


def test_the_first_turn_is_at_once_and_the_work_on_a_thread(workers: Workers) -> None:
    threads: list[int] = []

    def note() -> None:
        threads.append(threading.get_ident())

    def steps() -> Steps[str]:
        note()
        yield note
        note()
        return "done"

    async def work() -> str:
        job = workers.start(workers.flush, StagedOperation(steps()))
        assert len(threads) == 1
        return await job

    assert asyncio.run(work()) == "done"
    first, second, third = threads
    assert first == third == threading.get_ident() != second


def test_it_goes_on_when_nobody_waits_any_more(workers: Workers) -> None:
    gate = threading.Event()
    ended: list[bool] = []

    def steps() -> Steps[None]:
        yield lambda: ended.append(not gate.wait(10))
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


def test_an_error_reaches_who_waits(workers: Workers) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "broken")

    def steps() -> Steps[None]:
        yield fail

    async def work() -> None:
        await workers.start(workers.flush, StagedOperation(steps()))

    with pytest.raises(OSError, match="broken"):
        asyncio.run(work())
