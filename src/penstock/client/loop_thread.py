"""A thread with an event loop: where the blocking clients do what their asynchronous twins do."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from penstock.client.errors import IllegalStateError, KafkaTimeoutError

P = ParamSpec("P")
R = TypeVar("R")


class LoopThread:
    """One daemon thread that runs one event loop until `close`."""

    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R], timeout_s: float | None = None) -> R:
        """Do it on the loop and wait for it. An interrupt, or the end of the time, cancels it."""
        if self.is_current():
            work.close()
            raise IllegalStateError(
                "a blocking call from the client's own thread would wait for itself: hand the "
                "work over to another thread, callbacks must not block"
            )
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise IllegalStateError("this client is closed: make a new one") from None
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            if future.done():
                raise
            future.cancel()
            raise KafkaTimeoutError(f"not done within {timeout_s} s") from None
        except CancelledError:
            raise IllegalStateError("the client was closed while this call waited") from None
        except BaseException:
            future.cancel()
            raise

    def post(self, call: Callable[..., object], *args: object) -> None:
        """Have `call` called on the loop, soon. Does nothing once the thread is closed."""
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def is_current(self) -> bool:
        """Whether the caller is on this thread."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Cancel what is still running, stop the loop and end the thread. May be called twice."""
        if self.loop.is_closed():
            return
        self.post(self.loop.stop)
        if not self.is_current():
            self._thread.join()

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
    """A client whose calls are done by its asynchronous twin on a thread."""

    @property
    def _loop_thread(self) -> LoopThread: ...

    @property
    def _calls(self) -> Any: ...


def blocking(
    call: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[Concatenate[Any, P], R]:
    """The blocking twin of an asynchronous method, with the same arguments and documentation."""

    @wraps(call)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        twin: Blocking = self

        async def work() -> R:
            return await call(twin._calls, *args, **kwargs)

        return twin._loop_thread.run(work())

    return run
