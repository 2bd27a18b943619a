"""The event loop of a blocking client, on a thread of its own.

`LoopThread` and `CallerLoop` (in `penstock.client.aio`) have the same methods: a client that is
written once, for asyncio, runs on either of them (see `tools/unasync.py`).
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from penstock.client.errors import IllegalStateError, KafkaTimeoutError

logger = logging.getLogger(__name__)

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


class LoopThread:
    """A daemon thread that runs an event loop until `close`."""

    is_threaded: Final = True

    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self.is_running = False
        """Whether `open` has succeeded and `close` has not been called."""
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def open(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `start` on the loop and waits for it. Ends the thread if it raises."""
        try:
            self.run(start())
        except BaseException:
            self.close()
            raise
        self.is_running = True

    def run(self, work: Coroutine[Any, Any, R], timeout_s: float | None = None) -> R:
        """Runs `work` on the loop and waits for its result.

        Cancels it when the caller is interrupted, or after `timeout_s` (KafkaTimeoutError). Raises
        IllegalStateError on the loop's own thread, and once the client is closed.
        """
        try:
            self.refuse_current()
        except IllegalStateError:
            work.close()
            raise
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise IllegalStateError("this client is closed", remedy="create a new one") from None
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            if future.done():
                raise
            future.cancel()
            raise KafkaTimeoutError(f"the call did not complete within {timeout_s} s") from None
        except CancelledError:
            raise IllegalStateError("the client was closed while this call waited") from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[A], None], argument: A) -> None:
        """Calls `function` on the loop and waits for it; from a callback, calls it directly."""
        if self.is_current():
            function(argument)
            return

        async def work() -> None:
            function(argument)

        self.run(work())

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Schedules a call on the loop. Does nothing once the thread is closed."""
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def is_current(self) -> bool:
        """Returns whether the caller is on this thread."""
        return threading.current_thread() is self._thread

    def refuse_current(self) -> None:
        """Raises IllegalStateError on this thread: a callback must not make a blocking call."""
        if self.is_current():
            raise IllegalStateError(
                "a blocking call from a callback, on the client's own thread, would wait for "
                "itself; hand the work to another thread"
            )

    def finish(
        self, close: Callable[[int | None], Coroutine[Any, Any, None]], timeout_ms: int | None
    ) -> None:
        """Runs `close` on the loop, then ends the thread.

        From a callback it returns at once, and `close` runs with a timeout of 0.
        """
        if self.is_current():
            logger.warning("close was called in a callback; it does not wait for pending records")
            self._close_later(close, 0)
            return
        try:
            self.run(close(timeout_ms))
        except BaseException:
            self.run(close(0))
            raise
        finally:
            self.close()

    def abandon(self, close: Callable[[int | None], Coroutine[Any, Any, None]]) -> None:
        """Runs `close` without a timeout, then ends the thread; returns at once."""
        self.post(self._close_later, close, None)

    def close(self) -> None:
        """Cancels all tasks, stops the loop and ends the thread. May be called twice."""
        self.is_running = False
        if self.loop.is_closed():
            return
        self.post(self.loop.stop)
        if not self.is_current():
            self._thread.join()

    def _close_later(
        self, close: Callable[[int | None], Coroutine[Any, Any, None]], timeout_ms: int | None
    ) -> None:
        async def work() -> None:
            await close(timeout_ms)
            self.close()

        self._closing = self.loop.create_task(work())

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Blocking(Protocol):
    """A client whose methods run on the loop of a `LoopThread`."""

    @property
    def _loop_thread(self) -> LoopThread: ...

    @property
    def _calls(self) -> Any: ...


def blocking(
    call: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[Concatenate[Any, P], R]:
    """Returns the blocking twin of an asynchronous method, with the same signature and docstring.

    The whole method runs on the loop. Methods with parts that must run on the caller's thread are
    derived with `tools/unasync.py` instead.
    """

    @wraps(call)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        twin: Blocking = self

        async def work() -> R:
            return await call(twin._calls, *args, **kwargs)

        return twin._loop_thread.run(work())

    return run
