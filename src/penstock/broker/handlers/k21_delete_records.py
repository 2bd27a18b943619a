"""DeleteRecords (21), versions 0 to 2: raises the log start offset of partitions (S4).

The next retention check deletes the segments below it. Offset -1 is the high watermark.
"""

from dataclasses import dataclass

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
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


def _steps(context: Context, request: Request, body: DeleteRecordsRequest) -> Steps[Response]:
    topics = []
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
                start = _delete(context, topic.name, partition)
                partitions.append(DeleteRecordsPartitionResult(index, start))
            except KafkaError as error:
                partitions.append(DeleteRecordsPartitionResult(index, _UNKNOWN, error.code))
        topics.append(DeleteRecordsTopicResult(topic.name, partitions))
    return DeleteRecordsResponse(topics=topics)


def _delete(context: Context, topic: str, partition: DeleteRecordsPartition) -> int:
    """Returns the new log start offset."""
    if topic in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic} is an internal topic: clients cannot delete its records",
        )
    replica = context.replicas.find(topic, partition.partition_index)
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
    return log.log_start_offset
