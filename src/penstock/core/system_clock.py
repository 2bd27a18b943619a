"""The machine's clock."""

import time

from penstock.core.ids import TimestampMs


class SystemClock:
    """`penstock.core.clock.Clock` with the real time."""

    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
