"""How a replica fetcher compares offsets with its leader: ListOffsets and OffsetForLeaderEpoch.

A follower whose fetch offset is out of the leader's range requests the end of the leader's log,
then its start, and truncates its own log if it has records that the leader does not have, or lacks
some that the leader has deleted.
"""

import logging
from collections.abc import Iterable
from typing import Final

from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.replication.follower_effects import Truncate
from penstock.replication.follower_fetch_state import PartitionFetchState

logger = logging.getLogger(__name__)

LATEST: Final = -1
EARLIEST: Final = -2


def list_offsets_request(
    broker_id: int, states: Iterable[PartitionFetchState], timestamp: int
) -> ListOffsetsRequest:
    """Returns the request for the leader's log end (`LATEST`) or log start offsets (`EARLIEST`)."""
    topics: dict[str, ListOffsetsTopic] = {}
    for state in states:
        topic, index = state.key
        if topic not in topics:
            topics[topic] = ListOffsetsTopic(name=topic, partitions=[])
        topics[topic].partitions.append(
            ListOffsetsPartition(
                partition_index=index,
                current_leader_epoch=state.leader_epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))


def end_offsets_request(
    broker_id: int, states: Iterable[PartitionFetchState]
) -> OffsetForLeaderEpochRequest:
    """Returns the request for the ends of these logs' last epochs in the leader's logs."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for state in states:
        topic, index = state.key
        if topic not in topics:
            topics[topic] = OffsetForLeaderTopic(topic=topic, partitions=[])
        topics[topic].partitions.append(
            OffsetForLeaderPartition(
                partition=index,
                current_leader_epoch=state.leader_epoch,
                leader_epoch=state.last_fetched_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=broker_id, topics=list(topics.values()))


def compare_log_end(state: PartitionFetchState, leader_end_offset: int) -> Truncate | None:
    """Drops what a leader does not have that was elected without this replica's last records."""
    log_end_offset = state.log.log_end_offset
    if leader_end_offset >= log_end_offset:
        return None
    logger.warning(
        "%s is truncated from %d to %d, the end of the leader's log",
        state.key,
        log_end_offset,
        leader_end_offset,
    )
    state.lag = 0
    return Truncate(state, leader_end_offset)


def compare_log_start(state: PartitionFetchState, leader_start_offset: int) -> Truncate | None:
    """Starts at the leader's first record if the leader has deleted those that are missing here."""
    log_end_offset = state.log.log_end_offset
    state.lag = state.leader_end_offset - max(leader_start_offset, log_end_offset)
    if leader_start_offset <= log_end_offset:
        return None
    logger.warning(
        "%s ends at %d, before the leader's log start offset %d; it starts again there",
        state.key,
        log_end_offset,
        leader_start_offset,
    )
    return Truncate(state, leader_start_offset, fully=True)
