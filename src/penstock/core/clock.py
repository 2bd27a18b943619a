"""The clock port. Machines and the log receive the time; they never read it themselves."""

from typing import Protocol

from penstock.core.ids import TimestampMs


class Clock(Protocol):
    """A source of time. Simulations and tests have clocks of their own."""

    def now_ms(self) -> TimestampMs:
        """Returns the wall-clock time for records and files; it may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Returns the time for intervals and deadlines; it never goes back."""
        ...
