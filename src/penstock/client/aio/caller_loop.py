"""The event loop of an asyncio client's caller, with the same calls as `LoopThread`."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from penstock.client.producer.future import BatchResult

A = TypeVar("A")
R = TypeVar("R")


class CallerLoop:
    """The event loop that a client is first used on; before that, posted calls wait."""

    is_threaded: Final = False

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._posted: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    @property
    def is_running(self) -> bool:
        """Whether the client has been started."""
        return self._loop is not None

    def open(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Keeps `start` for the first `ensure_started`."""
        self._start = start

    async def ensure_started(self) -> None:
        """Starts the client on the running loop; does nothing when it has been started."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            await self._start()
            for function, args in self._posted:
                function(*args)
            self._posted.clear()

    async def run(self, work: Coroutine[Any, Any, R]) -> R:
        return await work

    async def call(self, function: Callable[[A], None], argument: A) -> None:
        function(argument)

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Calls `function` now, or once the client has been started."""
        if self._loop is None:
            self._posted.append((function, args))
        else:
            function(*args)

    def post_threadsafe(self, function: Callable[[], object]) -> None:
        """Schedules a call from any thread. Does nothing before the client is started."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(function)

    async def finish(
        self, close: Callable[[int | None], Coroutine[Any, Any, None]], timeout_ms: int | None
    ) -> None:
        """Runs `close`, if the client has been started."""
        if self._loop is not None:
            await close(timeout_ms)


class TimedEvent:
    """An event for one event loop, with the interface of `threading.Event`."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.set = self._event.set
        self.clear = self._event.clear

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits until the event is set; returns False after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                return await self._event.wait()
        except TimeoutError:
            return False


async def await_result(result: Awaitable[object] | None) -> None:
    """Waits for the result of a user's callback if that is a coroutine function."""
    if result is not None:
        await result


async def wait_for_batch(result: BatchResult, timeout: float | None) -> bool:
    """Waits until a batch has been acknowledged or has failed; returns False after `timeout`."""
    done = TimedEvent()
    result.add_done_callback(done.set)
    return await done.wait(timeout)
