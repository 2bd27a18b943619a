"""ListOffsets (2), versions 0 to 11: looks up offsets by timestamp, earliest and latest (Q5).

A new leader does not know the high watermark of its predecessor. Until its own has reached the
start of its leader epoch, clients that need it get OFFSET_NOT_AVAILABLE, and retry (KIP-207).
A search by timestamp may read a segment, so it runs on a thread. Without tiered storage the
earliest local offset is the earliest offset, and tiered offsets do not exist.
"""

from collections import Counter
from dataclasses import dataclass

from penstock.broker.pacer import Pacer
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.broker.workers import Workers
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.security.acl import AclOperation, ResourceType
from penstock.storage.log.log import Log
from penstock.storage.log.timestamp_search import begin_search, finish_search
from penstock.storage.segment.timestamp_scan import TimestampAndOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_VERSIONS = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_WITHOUT_BOUND = frozenset({EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD})
"""Timestamps whose offset does not depend on the high watermark."""
_NOTHING = TimestampAndOffset(-1, -1, -1)
_CONSUMER = -1
_DEBUGGING_CONSUMER = -2
_FIRST_WITH_EPOCH = 4
_FIRST_WITH_NOT_AVAILABLE = 5


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    workers: Workers
    replicas: ReplicaManager
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: ListOffsetsRequest) -> Response:
    topics = []
    async for topic in context.pacer.each(body.topics):
        allowed = context.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name
        )
        counts = Counter(partition.partition_index for partition in topic.partitions)
        partitions = []
        async for partition in context.pacer.each(topic.partitions):
            index = partition.partition_index
            if counts[index] != 1:
                # The client could not match several results: one error for all of them.
                if counts.pop(index, 0):
                    error_code = ErrorCode.INVALID_REQUEST
                    partitions.append(ListOffsetsPartitionResponse(index, error_code))
                continue
            try:
                if not allowed:
                    raise context.authorizer.error(
                        request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name
                    )
                partitions.append(await _partition(context, request, body, topic.name, partition))
            except KafkaError as error:
                partitions.append(ListOffsetsPartitionResponse(index, error.code))
        topics.append(ListOffsetsTopicResponse(topic.name, partitions))
    return ListOffsetsResponse(topics=topics)


async def _partition(
    context: Context,
    request: Request,
    body: ListOffsetsRequest,
    topic: str,
    partition: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    index = partition.partition_index
    replica = context.replicas.find(topic, index)
    if body.replica_id == _DEBUGGING_CONSUMER:
        log = replica.readable_log(partition.current_leader_epoch)
    else:
        log = replica.leader_log(partition.current_leader_epoch, to_read=True)
    if request.version == 0:
        offsets = _segment_offsets(log, partition)
        return ListOffsetsPartitionResponse(index, old_style_offsets=offsets)
    if request.version < _FIRST_VERSIONS.get(partition.timestamp, 0):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"timestamp {partition.timestamp} needs ListOffsets version "
            f"{_FIRST_VERSIONS[partition.timestamp]}",
        )
    while True:
        if body.replica_id != _CONSUMER:
            bound = log.log_end_offset
        elif body.isolation_level == 1:
            bound = log.last_stable_offset
        else:
            bound = log.high_watermark
        is_known = (
            body.replica_id != _CONSUMER
            or replica.partition.epoch_start_offset <= log.high_watermark
        )
        if partition.timestamp == LATEST and not is_known:
            raise _not_available(request, replica, log)
        try:
            match = await _find(context, log, partition.timestamp, bound)
            if match is None and not is_known and partition.timestamp not in _WITHOUT_BOUND:
                raise _not_available(request, replica, log)
            break
        except KafkaStorageError:
            searched_log, log = (
                log,
                replica.leader_log(partition.current_leader_epoch, to_read=True),
            )
            if log is searched_log:
                raise
            # The partition has moved to another directory during the search.
    match = match or _NOTHING
    response = ListOffsetsPartitionResponse(index, 0, [], match.timestamp, match.offset)
    if request.version >= _FIRST_WITH_EPOCH:
        is_latest = partition.timestamp == LATEST
        response.leader_epoch = replica.partition.leader_epoch if is_latest else match.leader_epoch
    return response


def _not_available(request: Request, replica: Replica, log: Log) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE
        if request.version >= _FIRST_WITH_NOT_AVAILABLE
        else ErrorCode.LEADER_NOT_AVAILABLE,
        f"the high watermark of {log.partition}, {log.high_watermark}, has not reached the start "
        f"of the leader epoch, {replica.partition.epoch_start_offset}",
        remedy="retry",
    )


async def _find(
    context: Context, log: Log, timestamp: int, bound: int
) -> TimestampAndOffset | None:
    """Returns the offset for a timestamp or a special value; None for none below `bound`."""
    match timestamp:
        case -1:
            return TimestampAndOffset(-1, bound, -1)
        case -2 | -4:
            start = log.log_start_offset
            epoch = log.epochs.epoch_for_offset(start)
            return TimestampAndOffset(-1, start, -1 if epoch is None else epoch)
        case -5 | -6:
            return None
        case -3:
            match = await _search(context, log, None)
        case _ if timestamp < 0:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {timestamp} is not valid",
                remedy=(
                    "use -1 (latest), -2 (earliest), -3 (the largest timestamp), or milliseconds "
                    "since 1970"
                ),
            )
        case _:
            match = await _search(context, log, timestamp)
    # Records that are not replicated, or whose transaction is open, are invisible to clients.
    return match if match is not None and match.offset < bound else None


async def _search(context: Context, log: Log, timestamp: int | None) -> TimestampAndOffset | None:
    """Searches on a thread for a timestamp, or for the largest timestamp if None."""
    search = begin_search(log, timestamp)
    if search is None:
        return None
    await context.workers.run(context.workers.search, search.run)
    return finish_search(log, search)


def _segment_offsets(log: Log, partition: ListOffsetsPartition) -> list[int]:
    """Returns the offsets of version 0: segment starts before a time, newest first."""
    starts = [
        (max(segment.base_offset, log.log_start_offset), segment.largest_timestamp)
        for segment in log.local.segments
    ]
    if partition.timestamp == LATEST:
        offsets = [log.high_watermark, *(offset for offset, _ in reversed(starts))]
    elif partition.timestamp == EARLIEST:
        offsets = [log.log_start_offset]
    else:
        offsets = [offset for offset, time in reversed(starts) if time <= partition.timestamp]
    return offsets[: partition.max_num_offsets]
