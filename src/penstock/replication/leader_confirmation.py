"""Whether a leader still leads, as shown by fetches of its followers (R2, C1).

A leader that was paused, or that cannot reach the controller, does not know yet when another
replica was elected. Its log may end before records that are committed, and a consumer that gets
OFFSET_OUT_OF_RANGE for one of them would reset its position and read everything again. So a leader
reports an offset above its log end only after all other members of its ISR have shown that they
still follow it:

    if not confirmation.confirm(offset, leader_epoch, fetches_by_follower, now_ms):
        ...  # the consumer must retry

The first fetch of a follower that arrives after the consumer's request may have been sent long
before. The second one was sent after the response to the first.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

MAX_OFFSETS: Final = 64
"""Offsets of one partition that are checked at the same time."""
EXPIRY_MS: Final = 10_000
"""A consumer that has not retried for so long has given up."""
WAKE_INTERVAL_MS: Final = 20
"""The least time between two wake-ups of the followers, however many requests there are."""
_FETCHES: Final = 2


class _Check(NamedTuple):
    began_ms: int
    leader_epoch: int
    fetches: Mapping[int, int]


class LeaderConfirmation:
    """The offsets above the log end that consumers have requested from one leader."""

    __slots__ = ("_checks", "_next_wake_ms")

    def __init__(self) -> None:
        self._checks: dict[int, _Check] = {}
        self._next_wake_ms = 0

    def confirm(
        self, offset: int, leader_epoch: int, fetches: Mapping[int, int], now_ms: int
    ) -> bool:
        """Returns whether this broker still led after the offset was requested for the first time.

        `fetches` has the number of fetches of each follower in the ISR so far. False begins a check
        or continues one, for which the followers must fetch: see `is_wake_due`.
        """
        check = self._checks.get(offset)
        if (
            check is None
            or check.leader_epoch != leader_epoch
            or now_ms - check.began_ms > EXPIRY_MS
        ):
            self._checks.pop(offset, None)
            self._make_room(now_ms)
            self._checks[offset] = _Check(now_ms, leader_epoch, fetches)
            return False
        if any(
            count < check.fetches.get(broker_id, count) + _FETCHES
            for broker_id, count in fetches.items()
        ):
            return False
        del self._checks[offset]
        return True

    def is_wake_due(self, now_ms: int) -> bool:
        """Returns whether to wake up followers whose fetches wait; the caller does it then."""
        if now_ms < self._next_wake_ms:
            return False
        self._next_wake_ms = now_ms + WAKE_INTERVAL_MS
        return True

    def _make_room(self, now_ms: int) -> None:
        """Removes checks that have expired, and the oldest if there are too many."""
        for offset, check in list(self._checks.items()):
            if now_ms - check.began_ms <= EXPIRY_MS and len(self._checks) < MAX_OFFSETS:
                break
            del self._checks[offset]
