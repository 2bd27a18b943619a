"""What a replica fetcher has its host do: append the leader's records, truncate a log.

`follower.py` decides on them and says how the host reports their outcome.
"""

from typing import NamedTuple, TypeAlias

from penstock.core.buffers import Buffer
from penstock.core.ids import TopicId
from penstock.protocol.messages.fetch import FetchPartitionData
from penstock.replication.follower_fetch_state import PartitionFetchState, ReplicaLog


class InitialFetch(NamedTuple):
    """A partition that is to follow a leader from the end of its local log on."""

    topic_id: TopicId
    leader_epoch: int
    log: ReplicaLog


class Restart(NamedTuple):
    """Drop everything; the next record gets `offset`, and the log starts at `log_start_offset`."""

    offset: int
    log_start_offset: int


class Append(NamedTuple):
    """Append the leader's batches, which may be none; then call `FollowerMachine.appended`.

    With `restart`, first do that, then call `FollowerMachine.resume`; the partition is not fetched
    until then. This log has nothing, or only records that the leader has deleted. Either the
    leader's log starts within the first batch, because its first records were deleted up to the
    middle of a batch, or the leader does not know any more what this log ends with.
    """

    state: PartitionFetchState
    records: Buffer
    leader_high_watermark: int
    leader_log_start_offset: int
    restart: Restart | None = None


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


_FIRST_EPOCH = slice(12, 16)
"""The leader epoch of the first batch in fetched records."""


def append_of(state: PartitionFetchState, data: FetchPartitionData) -> Append:
    """Returns what is to be appended of a response without error; see `Append.restart`."""
    records = data.records
    if not isinstance(records, (bytes, memoryview)):
        records = b""
    restart = None
    fetch_offset = state.fetch_offset
    if len(records) > _FIRST_EPOCH.stop:
        base_offset = int.from_bytes(records[:8], "big")
        if base_offset < fetch_offset:
            log_start_offset = state.log.log_start_offset
            if log_start_offset == fetch_offset or base_offset < data.log_start_offset:
                restart = Restart(base_offset, max(log_start_offset, data.log_start_offset))
    if restart is None and data.log_start_offset == fetch_offset and _is_unverified(state, records):
        restart = Restart(fetch_offset, fetch_offset)
    return Append(state, records, data.high_watermark, data.log_start_offset, restart)


def _is_unverified(state: PartitionFetchState, records: bytes | memoryview) -> bool:
    """Returns whether the local log may differ from what the leader has deleted.

    The leader's log starts where this one ends. Unless this log ends with an epoch that the leader
    still has, nothing shows whether they have been the same.
    """
    epoch = state.last_fetched_epoch
    if epoch == state.leader_epoch or int.from_bytes(records[_FIRST_EPOCH], "big") == epoch:
        return False
    return state.log.log_start_offset < state.fetch_offset
