"""Measures how late the event loop is, and adapts how many requests are measured."""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final

from penstock.core.histogram import Histogram

_INTERVAL_S: Final = 0.25


class LoopMonitor:
    """Runs a timer four times per second from `start` to `stop`."""

    def __init__(self, on_tick: Callable[[float], None]) -> None:
        """`on_tick` receives the seconds since its last call."""
        self.lags = Histogram()
        """By how much each timer was late."""
        self._on_tick = on_tick
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        self._due = perf_counter() + _INTERVAL_S
        self._handle = asyncio.get_running_loop().call_later(_INTERVAL_S, self._tick)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _tick(self) -> None:
        lag = max(0.0, perf_counter() - self._due)
        self.lags.record(lag)
        self._on_tick(_INTERVAL_S + lag)
        self.start()
