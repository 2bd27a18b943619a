"""Time as a port: machines and the log are told the time, they never look."""

from typing import Protocol

from penstock.core.ids import TimestampMs


class Clock(Protocol):
    """Where the time comes from. The simulator and the tests bring one they can turn."""

    def now_ms(self) -> TimestampMs:
        """Wall time: goes into records and files, may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Time for intervals and deadlines: never goes back."""
        ...


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self._now_ms)

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
