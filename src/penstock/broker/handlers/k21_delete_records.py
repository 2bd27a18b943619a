"""DeleteRecords (21), versions 0 to 2: raises the log start offset of partitions (S4).

The next retention check deletes the segments below it. Offset -1 is the high watermark. The
response waits until all replicas on brokers that are up have raised theirs: the low watermark.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import DelayedResponse, HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.protocol.fields import Message
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from penstock.replication.purgatory import DelayedOperation
from penstock.security.acl import AclOperation, ResourceType

_HIGH_WATERMARK = -1
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    replicas: ReplicaManager
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: DeleteRecordsRequest) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


class _Deletion(NamedTuple):
    """Records that are deleted here, but not by all followers."""

    replica: Replica
    offset: int
    result: DeleteRecordsPartitionResult


def _steps(context: Context, request: Request, body: DeleteRecordsRequest) -> Steps[HandlerResult]:
    topics = []
    unfinished: list[_Deletion] = []
    for topic in body.topics:
        yield
        partitions = []
        for partition in topic.partitions:
            yield
            index = partition.partition_index
            try:
                context.authorizer.require(
                    request.session, AclOperation.DELETE, ResourceType.TOPIC, topic.name
                )
                replica = context.replicas.find(topic.name, index)
                offset = _delete(replica, partition)
                result = DeleteRecordsPartitionResult(index, replica.low_watermark)
                partitions.append(result)
                if result.low_watermark < offset:
                    unfinished.append(_Deletion(replica, offset, result))
            except KafkaError as error:
                partitions.append(DeleteRecordsPartitionResult(index, _UNKNOWN, error.code))
        topics.append(DeleteRecordsTopicResult(topic.name, partitions))
    response = DeleteRecordsResponse(topics=topics)
    return _delay(request, body, response, unfinished) if unfinished else response


def _delay(
    request: Request,
    body: DeleteRecordsRequest,
    response: DeleteRecordsResponse,
    unfinished: list[_Deletion],
) -> DelayedResponse:
    """Completes when the low watermarks have reached the offsets, or after the timeout."""
    loop = asyncio.get_running_loop()
    delayed: asyncio.Future[Message] = loop.create_future()
    close_callbacks = request.session.close_callbacks

    def complete() -> None:
        timer.cancel()
        close_callbacks.discard(operation.cancel)
        if not delayed.done():
            delayed.set_result(response)

    operation = DelayedOperation(complete)
    for deletion in unfinished:
        operation.add(
            deletion.replica.low_watermark_watchers,
            deletion.offset,
            partial(_set_result, deletion),
        )
    timer = loop.call_later(max(body.timeout_ms, 0) / 1000, operation.expire)
    close_callbacks.add(operation.cancel)
    operation.start()
    return delayed


def _set_result(deletion: _Deletion, code: ErrorCode) -> None:
    result = deletion.result
    result.error_code = code
    if code is ErrorCode.NONE:
        result.low_watermark = deletion.replica.low_watermark
    elif code is not ErrorCode.REQUEST_TIMED_OUT:
        result.low_watermark = _UNKNOWN


def _delete(replica: Replica, partition: DeleteRecordsPartition) -> int:
    """Deletes the records below an offset, and returns it."""
    topic = replica.partition.key.topic
    if topic in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic} is an internal topic: clients cannot delete its records",
        )
    log = replica.leader_log()
    if not log.config.delete:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"records of {log.partition} cannot be deleted: its cleanup.policy is compact only",
        )
    offset = log.high_watermark if partition.offset == _HIGH_WATERMARK else partition.offset
    if offset < 0:
        raise OffsetOutOfRangeError(f"{log.partition} cannot start at {offset}")
    if log.increment_log_start_offset(offset):
        replica.complete_delayed_fetches()
    return offset
