"""The pacer: bounds how long requests with many elements occupy the event loop.

A request that loops over elements runs in slices: after `SLICE_S` it pauses until the event loop
has served everything else. All paced requests together take one slice in an iteration of the loop,
however many there are. There are two forms, with the same effect:

    async for topic in pacer.each(body.topics):     # in a coroutine
        ...

    def steps() -> Steps[Response]:                 # in a handler that usually needs no pause
        for topic in body.topics:
            yield
            ...
        return response

    return pacer.run(steps())

The state of the broker may change during a pause: a loop with pauses must not iterate over
a dictionary of the broker, only over a copy of its keys.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from heapq import heappop, heappush
from time import perf_counter
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Steps: TypeAlias = Generator[None, None, R]
"""A computation that yields between its elements, and returns its result."""

SLICE_S: Final = 0.005
UNPACED_STEPS: Final = 4
"""The first steps of a request are not measured: most requests have few, and pay nothing."""
CHUNK: Final = 200
"""Elements that a component handles at once which cannot pause between them."""


def run_to_end(steps: Steps[R]) -> R:
    """Runs steps without pauses, because there are few of them."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: R = done.value
        return result


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Yields parts of a sequence that are small enough to be handled without a pause."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


class Pacer:
    """Shares the time of one event loop between its long requests; see the module.

    The request that has had the fewest slices goes first, so that a request of a few slices does
    not wait for all of those that need hundreds.
    """

    def __init__(
        self, now: Callable[[], float] = perf_counter, unpaced_steps: int = UNPACED_STEPS
    ) -> None:
        self._now = now
        self._unpaced_steps = unpaced_steps
        self._deadline = 0.0
        """When the slice of this iteration of the loop ends; 0 if it has not begun."""
        self._is_scheduled = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap: slices used, a number that keeps the order of arrival, the waiting request."""
        self._arrivals = 0

    @property
    def must_pause(self) -> bool:
        """Whether the slice of this iteration of the loop is used up; begins it if necessary."""
        now = self._now()
        if now < self._deadline:
            return False
        if self._deadline:
            return True
        self._deadline = now + SLICE_S
        self._schedule()
        return False

    async def pause(self, slices: int = 1) -> None:
        """Waits for another slice; `slices` is how many the request has had."""
        future = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heappush(self._waiting, (slices, self._arrivals, future))
        self._schedule()
        await future

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yields the items, with pauses between them when they take long."""
        slices = 0
        unpaced = self._unpaced_steps
        for item in items:
            if unpaced:
                unpaced -= 1
            else:
                while self.must_pause:
                    slices += 1
                    await self.pause(slices)
            yield item

    def run(self, steps: Steps[R | Coroutine[Any, Any, R]]) -> R | Coroutine[Any, Any, R]:
        """Returns the result of `steps` if they need no pause, otherwise a coroutine for the rest.

        If the result is a coroutine itself, the returned coroutine awaits it.
        """
        try:
            for _ in range(self._unpaced_steps):
                next(steps)
            while True:
                next(steps)
                if self.must_pause:
                    return self._continue(steps)
        except StopIteration as done:
            result: R | Coroutine[Any, Any, R] = done.value
            return result

    async def _continue(self, steps: Steps[R | Coroutine[Any, Any, R]]) -> R:
        result = await self.complete(steps)
        if isinstance(result, Coroutine):
            return await result
        return result

    async def complete(self, steps: Steps[R]) -> R:
        """Returns the result of `steps`, which run to their end with pauses."""
        slices = 0
        try:
            while True:
                while self.must_pause:
                    slices += 1
                    await self.pause(slices)
                next(steps)
        except StopIteration as done:
            result: R = done.value
            return result

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        """Allows another slice, and resumes one waiting request."""
        self._deadline = 0.0
        self._is_scheduled = False
        while self._waiting:
            _, _, future = heappop(self._waiting)
            if not future.done():  # it is done if its request was cancelled
                self._schedule()
                future.set_result(None)
                return
