"""The position of an assigned partition, its reset policy and its states.

A partition starts without a position. It gets one from a commit, a reset or a seek. After a change
of leader the position is validated: the new leader may have lost records that were read (KIP-320).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.core.errors import OffsetOutOfRangeError
from penstock.core.ids import TopicPartition

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1

_DURATION = re.compile(
    r"(?P<sign>[-+])?P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


class OffsetReset(NamedTuple):
    """The policy for a partition without a valid position."""

    kind: str
    """`earliest`, `latest`, `by_duration` or `none`."""

    duration_ms: int = 0

    @property
    def is_none(self) -> bool:
        return self.kind == "none"

    def timestamp(self, now_ms: int) -> int:
        """Returns the timestamp for ListOffsets; `now_ms` is wall time."""
        if self.kind == "earliest":
            return EARLIEST_TIMESTAMP
        if self.kind == "latest":
            return LATEST_TIMESTAMP
        # Negative times have special meanings, and no record is as old.
        return max(0, now_ms - self.duration_ms)

    def __str__(self) -> str:
        return f"by_duration:{self.duration_ms}ms" if self.kind == "by_duration" else self.kind


EARLIEST = OffsetReset("earliest")
LATEST = OffsetReset("latest")
NO_RESET = OffsetReset("none")


def parse_offset_reset(text: str) -> OffsetReset:
    """Parses `earliest`, `latest`, `none` or `by_duration:P1DT2H`; raises ValueError."""
    kind, colon, duration = text.partition(":")
    kind = kind.strip().lower()
    if kind in ("earliest", "latest", "none") and not colon:
        return OffsetReset(kind)
    if kind != "by_duration":
        raise ValueError(
            f"{text!r} is not one of earliest, latest, none, by_duration:<ISO 8601 duration>"
        )
    return OffsetReset(kind, parse_duration_ms(duration))


def parse_duration_ms(text: str) -> int:
    """Returns the milliseconds of an ISO 8601 duration such as `P3D` or `PT1H30M`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match[part] for part in ("days", "hours", "minutes", "seconds")):
        raise ValueError(f"{text!r} is not an ISO 8601 duration such as P3D, PT1H30M or PT0.5S")
    if match["sign"] == "-":
        raise ValueError(f"{text!r} is negative; give the time to go back, such as PT1H")
    minutes = (int(match["days"] or 0) * 24 + int(match["hours"] or 0)) * 60
    seconds = (minutes + int(match["minutes"] or 0)) * 60
    return seconds * 1000 + int(float(match["seconds"] or 0) * 1000)


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition and its epoch; -1: unknown."""

    leader: int = -1
    epoch: int = -1


NO_LEADER = LeaderAndEpoch()


class FetchPosition(NamedTuple):
    """The next offset to read, the epoch of the record before it, and the current leader."""

    offset: int
    offset_epoch: int = -1
    leader: LeaderAndEpoch = NO_LEADER


class FetchState(Enum):
    """Whether a partition can be fetched, and what it waits for."""

    INITIALIZING = "has no position yet"
    FETCHING = "has a valid position"
    AWAIT_RESET = "waits for the offset of its reset"
    AWAIT_VALIDATION = "waits until the new leader confirms the position"


class LogTruncation(NamedTuple):
    """A log that ends before the position of a consumer without a reset policy."""

    partition: TopicPartition
    position: FetchPosition
    divergent_offset: int
    """The first offset that may differ, -1 if the leader does not know it."""

    divergent_epoch: int


class LogTruncationError(OffsetOutOfRangeError):
    """Records that this consumer has read are lost: a new leader does not have them."""

    def __init__(self, truncations: Sequence[LogTruncation]) -> None:
        descriptions = ", ".join(
            f"{truncation.partition} at {truncation.position.offset}"
            + (
                f" (diverges at {truncation.divergent_offset})"
                if truncation.divergent_offset >= 0
                else ""
            )
            for truncation in truncations
        )
        super().__init__(
            f"the log was truncated below the position of {descriptions}, and auto_offset_reset is "
            "none; undo the effects of the records from there on, and seek() to continue"
        )
        self.truncations = tuple(truncations)


@dataclass(slots=True)
class PartitionState:
    """The state of one assigned partition. Only `SubscriptionState` uses it, under its lock."""

    state: FetchState = FetchState.INITIALIZING
    position: FetchPosition | None = None
    reset: OffsetReset | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    paused: bool = False
    pending_revocation: bool = False
    pending_assigned_callback: bool = False
    next_retry_ms: int = -1
    preferred_replica: int = -1
    preferred_replica_until_ms: int = 0

    @property
    def has_valid_position(self) -> bool:
        return self.state is FetchState.FETCHING

    @property
    def is_fetchable(self) -> bool:
        return (
            self.state is FetchState.FETCHING
            and not self.paused
            and not self.pending_revocation
            and not self.pending_assigned_callback
        )

    def may_retry(self, now_ms: int) -> bool:
        return now_ms >= self.next_retry_ms

    def seek_validated(self, position: FetchPosition) -> None:
        self.state = FetchState.FETCHING
        self.position = position
        self.reset = None
        self.next_retry_ms = -1

    def seek_unvalidated(self, position: FetchPosition) -> None:
        """Sets a position from a commit or the user, whose epoch must be validated."""
        self.seek_validated(position)
        self.validate(position)

    def validate(self, position: FetchPosition) -> None:
        if self.state is FetchState.AWAIT_RESET:
            return
        can_validate = position.offset_epoch >= 0 and position.leader.epoch >= 0
        self.state = FetchState.AWAIT_VALIDATION if can_validate else FetchState.FETCHING
        self.position = position
        self.next_retry_ms = -1

    def leader_changed(self, leader: LeaderAndEpoch, *, can_validate: bool) -> bool:
        """Notes the leader; returns whether the position must be validated with it."""
        position = self.position
        if self.state is FetchState.AWAIT_RESET or leader.leader < 0:
            return False
        if position is not None and not can_validate:
            self.seek_validated(position._replace(leader=leader))
        elif position is not None and position.leader != leader:
            self.validate(position._replace(leader=leader))
            self.preferred_replica = -1
        return self.state is FetchState.AWAIT_VALIDATION

    def request_reset(self, reset: OffsetReset) -> None:
        self.state = FetchState.AWAIT_RESET
        self.position = None
        self.reset = reset
        self.next_retry_ms = -1
