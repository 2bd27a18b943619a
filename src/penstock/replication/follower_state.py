"""What a leader knows about one follower, from the follower's Fetch requests (R2).

Times are milliseconds of a monotonic clock. A follower is in sync as long as it had, at some time
within `replica.lag.time.max.ms`, all records that the leader had at that time.
"""

from typing import Final

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(2**62)
"""The time of something that has not happened: longer ago than any lag."""


class FollowerState:
    """The progress of one follower of a partition that this broker leads."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "fetches",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.fetches = 0
        """Counted while this broker leads."""
        self.log_end_offset = UNKNOWN_OFFSET
        """The follower has all records below this offset."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = 0
        """The leader's log end offset when the last fetch arrived."""
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = NEVER_MS
        """The latest time at which the follower is known to have had all records."""
        self.broker_epoch = -1
        """The epoch that the follower sent; -1 if it sent none."""

    def __repr__(self) -> str:
        return (
            f"FollowerState({self.broker_id}, {self.log_start_offset}..{self.log_end_offset}, "
            f"caught up at {self.last_caught_up_ms})"
        )

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= max_lag_ms
        )

    def record_fetch(
        self,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
        broker_epoch: int = -1,
    ) -> None:
        """Records a Fetch that arrived at `now_ms`, when the leader's log had this end.

        A follower that fetches from the end of the leader's log has caught up now. One that fetches
        from where the log ended at its previous fetch had caught up at that time: it may never
        reach the end while records are appended all the time.
        """
        previous_leader_end_offset = self.last_fetch_leader_end_offset
        caught_up_ms = NEVER_MS
        if fetch_offset >= leader_end_offset:
            caught_up_ms = now_ms
        elif fetch_offset >= previous_leader_end_offset:
            caught_up_ms = self.last_fetch_ms
        if caught_up_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = caught_up_ms
        self.fetches += 1
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        if leader_end_offset > previous_leader_end_offset:
            self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def record_caught_up(self, time_ms: int) -> None:
        """Records that the follower had all records when it fetched at this time."""
        self.last_caught_up_ms = max(self.last_caught_up_ms, time_ms)

    def reset(
        self, leader_end_offset: int, now_ms: int, *, is_new_leader: bool, is_in_sync: bool
    ) -> None:
        """Starts a new leader epoch.

        A member of the ISR gets the full lag time to fetch. Another follower counts as never caught
        up, so that it neither holds back the high watermark nor joins the ISR before it fetches.
        """
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS
        if is_new_leader:
            self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
            self.last_fetch_ms = NEVER_MS
            self.broker_epoch = -1
        else:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch_ms = now_ms if is_in_sync else NEVER_MS
