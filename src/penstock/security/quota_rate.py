"""Measured rates and token buckets, and the throttle times that follow from them (X4).

The arithmetic is Kafka's, sample by sample, so that clients are throttled for the same time.
"""

from math import floor

MAX_THROTTLE_MS = 2**31 - 1


def round_half_up(value: float) -> int:
    """Rounds like Java's Math.round."""
    return floor(value + 0.5)


class SampledRate:
    """The rate per second over the last windows, including the current one.

    A window starts with the first amount after the previous one has ended. There is one window more
    than `window_num`, because the oldest may overlap the measured time.
    """

    __slots__ = ("_current", "_last", "_num", "_size_ms", "_start", "_value")

    def __init__(self, window_num: int, window_size_ms: int) -> None:
        self._num = window_num
        self._size_ms = window_size_ms
        self._current = 0
        # Of each sample: its start, the time of its last amount, and its sum.
        self._start: list[int] = []
        self._last: list[int] = []
        self._value: list[float] = []

    def record(self, amount: float, now_ms: int) -> None:
        """Adds an amount; a negative one takes an earlier amount back."""
        current = self._current
        if not self._start:
            self._append(now_ms)
        elif now_ms - self._start[current] >= self._size_ms:
            current = self._current = (current + 1) % (self._num + 1)
            if current >= len(self._start):
                self._append(now_ms)
            else:
                self._reset(current, now_ms)
        self._value[current] += amount
        self._last[current] = now_ms

    def _append(self, now_ms: int) -> None:
        self._start.append(now_ms)
        self._last.append(now_ms)
        self._value.append(0.0)

    def _reset(self, sample: int, now_ms: int) -> None:
        self._start[sample] = self._last[sample] = now_ms
        self._value[sample] = 0.0

    def window_ms(self, now_ms: int) -> int:
        """Returns the measured time: never less than all windows but one."""
        if not self._start:
            self._append(now_ms)
        expired = now_ms - self._num * self._size_ms
        for sample, last in enumerate(self._last):
            if last <= expired:
                self._reset(sample, now_ms)
        elapsed = now_ms - min(self._start)
        missing = self._num - 1 - elapsed // self._size_ms
        if missing > 0:
            elapsed += missing * self._size_ms
        return max(elapsed, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Returns how long to pause until the rate is within the limit; 0 if it is now."""
        window_ms = self.window_ms(now_ms)
        rate = sum(self._value) / (window_ms / 1000)
        if rate <= limit:
            return 0
        return min(round_half_up((rate - limit) / limit * window_ms), MAX_THROTTLE_MS)


class TokenBucket:
    """Tokens that are refilled at a constant rate, up to the sum of all windows.

    The balance may become negative; the throttle time lasts until it is zero again.
    """

    __slots__ = ("_seconds", "_tokens", "_updated_ms", "rate")

    def __init__(self, rate: float, window_num: int, window_size_ms: int, now_ms: int) -> None:
        self.rate = rate
        """Tokens per second. A change keeps the balance."""
        self._seconds = window_num * window_size_ms / 1000
        self._tokens = self.burst
        self._updated_ms = now_ms

    @property
    def burst(self) -> float:
        """The capacity."""
        return self._seconds * self.rate

    def tokens(self, now_ms: int) -> float:
        gained = self.rate * ((now_ms - self._updated_ms) / 1000)
        self._tokens = min(self.burst, self._tokens + gained)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, amount: float, now_ms: int) -> None:
        self._tokens = min(self.burst, self.tokens(now_ms) - amount)

    def throttle_ms(self, now_ms: int) -> int:
        """Returns how long until the balance is zero again; 0 if it is not negative."""
        tokens = self.tokens(now_ms)
        if tokens >= 0:
            return 0
        return min(round_half_up(-tokens / self.rate * 1000), MAX_THROTTLE_MS)
