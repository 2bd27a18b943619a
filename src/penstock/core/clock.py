"""The clock port. Machines and the log receive the time; they never read it themselves."""

from typing import Protocol

from penstock.core.ids import TimestampMs


class Clock(Protocol):
    """A source of time. Simulations and tests use a `ManualClock`."""

    def now_ms(self) -> TimestampMs:
        """Returns the wall-clock time for records and files; it may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Returns the time for intervals and deadlines; it never goes back."""
        ...


class ManualClock:
    """A clock that only moves when `advance` or `step` is called."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = now_ms
        self._step_ms = 0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self._monotonic_ms + self._step_ms)

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        self._monotonic_ms += ms

    def step(self, ms: int) -> None:
        """Sets the wall clock forward or back, as an administrator or NTP does."""
        self._step_ms += ms
