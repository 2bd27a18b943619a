"""A clock that tests move."""

from penstock.core.ids import TimestampMs


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
