"""What a replica fetcher has its host do: append the leader's records, truncate a log.

`follower.py` decides on them and says how the host reports their outcome.
"""

from typing import NamedTuple, TypeAlias

from penstock.core.buffers import Buffer
from penstock.core.ids import TopicId
from penstock.replication.follower_fetch_state import PartitionFetchState, ReplicaLog


class InitialFetch(NamedTuple):
    """A partition that is to follow a leader from the end of its local log on."""

    topic_id: TopicId
    leader_epoch: int
    log: ReplicaLog


class Append(NamedTuple):
    """Append the leader's batches, which may be none; then call `FollowerMachine.appended`.

    With `restart_at`, first drop everything and start at that offset with the current log start
    offset: the log is empty, and its start is within the first batch, because the leader's first
    records were deleted up to the middle of a batch. The partition is not fetched until
    `FollowerMachine.resume` is called, before the append.
    """

    state: PartitionFetchState
    records: Buffer
    leader_high_watermark: int
    leader_log_start_offset: int
    restart_at: int | None = None


class Truncate(NamedTuple):
    """Drop the records from `offset` on; with `fully` all records, and start at `offset`."""

    state: PartitionFetchState
    offset: int
    fully: bool = False
    is_final: bool = True
    """Whether the log then agrees with the leader's, as far as their epochs tell."""


Effect: TypeAlias = Append | Truncate


class OffsetUpdate(NamedTuple):
    """The offsets that a log gets after an append."""

    high_watermark: int
    log_start_offset: int | None
    """A higher log start offset; None if it stays as it is."""
