"""Measures how long single callbacks occupy the event loop of a broker in the test's process.

    with loop_time(broker) as longest:
        client.request(...)
    assert longest.seconds < 0.2, longest.callback

The measure is the processor time of the loop's thread, which other programs of the machine do not
change much; garbage collection counts.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.broker.in_process import RunningBroker


class LongestCallback:
    """The callback that took the most processor time so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.callback = ""

    def take(self) -> tuple[float, str]:
        """Returns the time and the name of the longest callback, and begins again."""
        result = self.seconds, self.callback
        self.seconds = 0.0
        return result


@contextmanager
def loop_time(broker: RunningBroker) -> Iterator[LongestCallback]:
    """Watches the event loop of the broker, which must be one of asyncio's own."""
    thread = broker.call(lambda _: threading.get_ident())
    longest = LongestCallback()
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        if threading.get_ident() != thread:
            run(handle)
            return
        start = time.thread_time()
        run(handle)
        seconds = time.thread_time() - start
        if seconds > longest.seconds:
            longest.seconds, longest.callback = seconds, repr(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", measured)
        yield longest
