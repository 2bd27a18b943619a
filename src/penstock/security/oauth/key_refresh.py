"""When the keys of an issuer are fetched again: a schedule, and unknown keys within limits (X2)."""

from typing import NamedTuple


class RefreshSettings(NamedTuple):
    """The `sasl.oauthbearer.jwks.endpoint.…` settings."""

    interval_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000


class KeyRefresh:
    """Decides when to fetch. Times are those of a monotonic clock.

    Whoever connects can name a key that does not exist. So fetches for unknown keys back off like
    failed ones, until one brings other keys: a stream of such tokens costs one fetch in
    `backoff_max_ms`, and a new key is known after that time at the latest.
    """

    def __init__(self, settings: RefreshSettings, now_ms: int) -> None:
        self._settings = settings
        self._fruitless = 0
        """Fetches in a row that failed, or were made for an unknown key and brought nothing new."""
        self.next_ms = now_ms
        """When to fetch in any case."""
        self._not_before_ms = now_ms

    def allows_fetch(self, now_ms: int) -> bool:
        """Returns whether an unknown key is a reason to fetch now."""
        return now_ms >= self._not_before_ms

    def succeeded(self, now_ms: int, *, has_changed: bool, was_scheduled: bool) -> None:
        self._fruitless = 0 if has_changed or was_scheduled else self._fruitless + 1
        self._not_before_ms = now_ms + self._backoff_ms()
        self.next_ms = now_ms + self._settings.interval_ms

    def failed(self, now_ms: int) -> None:
        self._fruitless += 1
        self._not_before_ms = self.next_ms = now_ms + self._backoff_ms()

    def _backoff_ms(self) -> int:
        settings = self._settings
        backoff_ms = settings.backoff_ms << min(max(self._fruitless - 1, 0), 30)
        return max(1, min(backoff_ms, settings.backoff_max_ms))
