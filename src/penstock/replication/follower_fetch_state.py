"""The state of one partition in a replica fetcher, and how far its log must be truncated.

`follower.py` drives these states. The offsets of the local log are read through `ReplicaLog`, so
that a fetcher never keeps a copy that could be stale.
"""

from enum import Enum, auto
from typing import Protocol

from penstock.core.ids import NO_LEADER_EPOCH, TopicId, TopicPartition

UNDEFINED_OFFSET = -1


class ReplicaLog(Protocol):
    """The local log of a follower. Everything may raise KafkaStorageError if it is offline."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int | None:
        """The epoch of the last record, or a later one; None if the log has no epochs."""

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """Returns the end offset of the largest epoch up to `leader_epoch`, and that epoch."""


class FetchPhase(Enum):
    """What a partition needs next."""

    FETCHING = auto()
    """Records from its fetch offset on."""
    TRUNCATING = auto()
    """The end offset of its last epoch, from a leader that does not detect divergence itself."""
    OUT_OF_RANGE = auto()
    """The offsets of the leader: its fetch offset is not in the leader's log."""
    BUSY = auto()
    """Its log is being truncated."""


class PartitionFetchState:
    """A partition that follows the leader of one epoch; a new epoch has a new state."""

    __slots__ = (
        "delay_ms",
        "delayed_until_ms",
        "fetch_offset",
        "is_removed",
        "key",
        "lag",
        "last_fetched_epoch",
        "leader_end_offset",
        "leader_epoch",
        "log",
        "phase",
        "sent_log_start_offset",
        "sent_offset",
        "topic_id",
    )

    def __init__(
        self, key: TopicPartition, topic_id: TopicId, leader_epoch: int, log: ReplicaLog
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.log = log
        self.phase = FetchPhase.FETCHING
        self.fetch_offset = UNDEFINED_OFFSET
        self.last_fetched_epoch: int = NO_LEADER_EPOCH
        self.lag: int | None = None
        """Offsets between this log's end and the leader's high watermark; None if unknown."""
        self.delayed_until_ms: int | None = None
        """When the partition is fetched again after an error."""
        self.delay_ms = 0
        """The last delay; 0 if the last fetch has succeeded."""
        self.is_removed = False
        """Whether another state, or none, is in its place: nothing may be appended for it."""
        self.sent_offset = UNDEFINED_OFFSET
        self.sent_log_start_offset = UNDEFINED_OFFSET
        self.leader_end_offset = UNDEFINED_OFFSET
        """While `OUT_OF_RANGE`: the leader's log end offset, once it is known."""

    def __repr__(self) -> str:
        return (
            f"PartitionFetchState({self.key}, offset {self.fetch_offset}, "
            f"epoch {self.leader_epoch}, {self.phase.name})"
        )

    @property
    def is_ready_to_fetch(self) -> bool:
        return self.phase is FetchPhase.FETCHING and self.delayed_until_ms is None

    @property
    def is_in_sync(self) -> bool:
        """Whether it had everything below the leader's high watermark when it last fetched."""
        return self.lag is not None and self.lag <= 0

    def read_offsets(self) -> None:
        """Continues at the end of the local log, after it was opened, appended to or truncated."""
        self.fetch_offset = self.log.log_end_offset
        epoch = self.log.latest_epoch
        self.last_fetched_epoch = NO_LEADER_EPOCH if epoch is None else epoch


def truncation_offset(
    log: ReplicaLog, leader_epoch: int, leader_end_offset: int
) -> tuple[int, bool]:
    """Returns where to truncate a log that differs from its leader's, and whether that is final.

    `leader_epoch` is the largest epoch of the leader up to the follower's last one, and
    `leader_end_offset` its end in the leader's log. If the follower does not have that epoch, the
    offset is not final: it drops the epochs that the leader does not have and compares again. A
    leader that does not know the follower's epochs at all leaves the log as it is: then the offsets
    decide, as in `OUT_OF_RANGE`.
    """
    log_end_offset = log.log_end_offset
    if leader_end_offset == UNDEFINED_OFFSET:
        return log_end_offset, True
    if leader_epoch == NO_LEADER_EPOCH:
        return min(leader_end_offset, log_end_offset), True
    own = log.end_offset_for_epoch(leader_epoch)
    if own is None:
        # The local epochs all begin later than the leader's.
        return min(leader_end_offset, log_end_offset), True
    own_end_offset, own_epoch = own
    if own_epoch != leader_epoch:
        return min(own_end_offset, log_end_offset), False
    return min(own_end_offset, leader_end_offset, log_end_offset), True
