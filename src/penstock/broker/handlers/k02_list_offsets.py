"""ListOffsets (2): versions 0 to 11: offsets by timestamp, and the special ones (Q5).

A search by time may read a segment, so it runs on a thread. Without tiered storage the earliest
local offset is the earliest, and there are no tiered offsets.
"""

from collections import Counter
from dataclasses import dataclass

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
_NOTHING = TimestampAndOffset(-1, -1, -1)
_CONSUMER = -1
_FIRST_WITH_EPOCH = 4


@dataclass(frozen=True, slots=True)
class Context:
    workers: Workers
    replicas: ReplicaManager
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: ListOffsetsRequest) -> Response:
    topics = []
    for topic in body.topics:
        allowed = context.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name
        )
        asked = Counter(wanted.partition_index for wanted in topic.partitions)
        partitions = []
        for wanted in topic.partitions:
            index = wanted.partition_index
            if asked[index] != 1:
                # The answers could not be told apart: one refusal for all of them.
                if asked.pop(index, 0):
                    refused = ErrorCode.INVALID_REQUEST
                    partitions.append(ListOffsetsPartitionResponse(index, refused))
                continue
            try:
                if not allowed:
                    raise context.authorizer.error(
                        request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name
                    )
                partitions.append(await _one(context, request, body, topic.name, wanted))
            except KafkaError as error:
                partitions.append(ListOffsetsPartitionResponse(index, error.code))
        topics.append(ListOffsetsTopicResponse(topic.name, partitions))
    return ListOffsetsResponse(topics=topics)


async def _one(
    context: Context,
    request: Request,
    body: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    replica = context.replicas.find(topic, index)
    log = replica.leader_log(wanted.current_leader_epoch)
    if request.version == 0:
        offsets = _old_style(log, wanted)
        return ListOffsetsPartitionResponse(index, old_style_offsets=offsets)
    if request.version < _FIRST_VERSIONS.get(wanted.timestamp, 0):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"timestamp {wanted.timestamp} needs ListOffsets version "
            f"{_FIRST_VERSIONS[wanted.timestamp]}",
        )
    while True:
        if body.replica_id != _CONSUMER:
            bound = log.log_end_offset
        elif body.isolation_level == 1:
            bound = log.last_stable_offset
        else:
            bound = log.high_watermark
        try:
            found = await _find(context, log, wanted.timestamp, bound)
            break
        except KafkaStorageError:
            searched, log = log, replica.leader_log(wanted.current_leader_epoch)
            if log is searched:
                raise
            # The partition has moved to another folder meanwhile.
    response = ListOffsetsPartitionResponse(index, 0, [], found.timestamp, found.offset)
    if request.version >= _FIRST_WITH_EPOCH:
        is_latest = wanted.timestamp == LATEST
        response.leader_epoch = replica.partition.leader_epoch if is_latest else found.leader_epoch
    return response


async def _find(context: Context, log: Log, timestamp: int, bound: int) -> TimestampAndOffset:
    """The offset that a timestamp stands for, as far as the client may see."""
    match timestamp:
        case -1:
            return TimestampAndOffset(-1, bound, -1)
        case -2 | -4:
            start = log.log_start_offset
            epoch = log.epochs.epoch_for_offset(start)
            return TimestampAndOffset(-1, start, -1 if epoch is None else epoch)
        case -5 | -6:
            return _NOTHING
        case -3:
            found = await _search(context, log, None)
        case _ if timestamp < 0:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {timestamp} means nothing: use -1 (latest), -2 (earliest), -3 (the "
                f"largest timestamp), or milliseconds since 1970",
            )
        case _:
            found = await _search(context, log, timestamp)
    # What is not replicated or not decided yet is not there for a client.
    return found if found is not None and found.offset < bound else _NOTHING


async def _search(context: Context, log: Log, timestamp: int | None) -> TimestampAndOffset | None:
    """The record of a time, or with None of the latest one, found on a thread."""
    search = begin_search(log, timestamp)
    if search is None:
        return None
    await context.workers.run(context.workers.flush, search.run)
    return finish_search(log, search)


def _old_style(log: Log, wanted: ListOffsetsPartition) -> list[int]:
    """Version 0: offsets where segments begin, newest first, of those written before a time."""
    starts = [
        (max(segment.base_offset, log.log_start_offset), segment.largest_timestamp)
        for segment in log.local.segments
    ]
    if wanted.timestamp == LATEST:
        offsets = [log.high_watermark, *(offset for offset, _ in reversed(starts))]
    elif wanted.timestamp == EARLIEST:
        offsets = [log.log_start_offset]
    else:
        offsets = [offset for offset, time in reversed(starts) if time <= wanted.timestamp]
    return offsets[: wanted.max_num_offsets]
