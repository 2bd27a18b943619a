"""The limit of the log cleaner's I/O rate (`log.cleaner.io.max.bytes.per.second`)."""

from threading import Lock

from penstock.core.clock import Clock

BURST_MS = 300
"""How far the cleaner may be ahead of the rate, so that it does not sleep after every block."""


class CleanerThrottle:
    """One rate for the reads and writes of all cleanings; usable from any thread.

    It only computes delays. The caller sleeps, so that it can be cancelled.
    """

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        if not bytes_per_second > 0:
            raise ValueError(
                f"log.cleaner.io.max.bytes.per.second is {bytes_per_second}; it must be above 0"
            )
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._lock = Lock()
        self._paid_until_ms = float(clock.monotonic_ms())

    def spend(self, size: int) -> float:
        """Counts `size` bytes; returns for how many milliseconds to wait after them."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            # Idle time does not accumulate.
            start = max(self._paid_until_ms, now_ms - BURST_MS)
            self._paid_until_ms = start + size * 1000 / self.bytes_per_second
            return max(self._paid_until_ms - now_ms, 0.0)
