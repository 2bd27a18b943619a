"""The clock of the machine, which implements the port in `clock.py`."""

import time

from penstock.core.ids import TimestampMs


class SystemClock:
    """A `Clock` that returns the real time."""

    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
