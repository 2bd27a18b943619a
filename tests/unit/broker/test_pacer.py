"""The pacer: work between two pauses is counted on a clock that the test moves."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.broker.pacer import SLICE_S, UNPACED_STEPS, Pacer, Steps

PER_SLICE = 10
"""Elements that fit into one slice: each takes a tenth of it."""


class Work:
    """Elements that take time on a clock of the test; `spans` counts them between iterations."""

    def __init__(self) -> None:
        self.now = 1.0
        self.pacer = Pacer(lambda: self.now, unpaced_steps=0)
        self.handled = 0
        self.spans: list[int] = []

    def element(self) -> None:
        self.now += SLICE_S / PER_SLICE + 1e-9
        self.handled += 1

    async def watch(self) -> None:
        """Notes in each iteration of the loop how many elements the previous one handled."""
        while True:
            before = self.handled
            await asyncio.sleep(0)
            self.spans.append(self.handled - before)


@pytest.fixture
def work() -> Work:
    return Work()


def steps(work: Work, count: int) -> Steps[str]:
    for _ in range(count):
        yield
        work.element()
    return "done"


async def loop_over(work: Work, count: int) -> str:
    async for _ in work.pacer.each(range(count)):
        work.element()
    return "done"


def test_short_work_needs_no_pause(work: Work) -> None:
    async def main() -> None:
        assert work.pacer.run(steps(work, 0)) == "done"
        assert work.pacer.run(steps(work, PER_SLICE)) == "done"
        work.pacer = Pacer(lambda: work.now, unpaced_steps=0)
        assert await loop_over(work, PER_SLICE) == "done"

    asyncio.run(main())


@pytest.mark.parametrize("form", ["steps", "coroutine"])
def test_long_work_runs_in_slices(work: Work, form: str) -> None:
    async def main() -> None:
        watch = asyncio.create_task(work.watch())
        if form == "steps":
            rest = work.pacer.run(steps(work, 1000))
            assert work.handled == PER_SLICE
            assert not isinstance(rest, str)
            assert await rest == "done"
        else:
            assert await loop_over(work, 1000) == "done"
        watch.cancel()

    asyncio.run(main())
    assert work.handled == 1000
    assert max(work.spans) <= PER_SLICE


def test_all_requests_share_one_slice_of_an_iteration(work: Work) -> None:
    async def main() -> None:
        watch = asyncio.create_task(work.watch())
        results = await asyncio.gather(*(loop_over(work, 100) for _ in range(20)))
        assert results == ["done"] * 20
        watch.cancel()

    asyncio.run(main())
    assert work.handled == 2000
    assert max(work.spans) <= PER_SLICE


def test_a_short_request_overtakes_long_ones(work: Work) -> None:
    async def main() -> None:
        long = [asyncio.create_task(loop_over(work, 10_000)) for _ in range(10)]
        for _ in range(100):
            await asyncio.sleep(0)
        before = work.handled
        await loop_over(work, 3 * PER_SLICE)
        assert work.handled - before <= 12 * PER_SLICE
        for task in long:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)

    asyncio.run(main())


def test_a_cancelled_request_does_not_stop_the_others(work: Work) -> None:
    async def main() -> None:
        cancelled = asyncio.create_task(loop_over(work, 10_000))
        other = asyncio.create_task(loop_over(work, 500))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await asyncio.wait_for(other, 10) == "done"

    asyncio.run(main())


def test_a_result_that_is_a_coroutine_is_awaited(work: Work) -> None:
    async def later() -> str:
        return "later"

    def with_coroutine() -> Steps[Coroutine[Any, Any, str]]:
        yield from steps(work, 100)
        return later()

    async def main() -> None:
        result: object = await work.pacer.run(with_coroutine())
        assert result == "later"

    asyncio.run(main())


def test_an_error_of_a_step_is_raised(work: Work) -> None:
    def failing() -> Steps[str]:
        yield from steps(work, 100)
        raise ValueError("at the end")

    async def main() -> None:
        rest = work.pacer.run(failing())
        assert not isinstance(rest, str)
        with pytest.raises(ValueError, match="at the end"):
            await rest

    asyncio.run(main())


def test_the_first_steps_are_not_measured(work: Work) -> None:
    async def main() -> None:
        pacer = Pacer(lambda: work.now, unpaced_steps=UNPACED_STEPS)
        for _ in range(100):
            assert pacer.run(steps(work, UNPACED_STEPS - 1)) == "done"
            async for _ in pacer.each(range(UNPACED_STEPS)):
                work.element()
        rest = pacer.run(steps(work, 1000))
        assert not isinstance(rest, str)
        assert await rest == "done"

    asyncio.run(main())
