"""OffsetForLeaderEpoch (23), versions 0 to 4: returns the end offsets of leader epochs (R4)."""

from dataclasses import dataclass

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import CLUSTER_NAME, RequestAuthorizer
from penstock.core.errors import KafkaError
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    replicas: ReplicaManager
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: OffsetForLeaderEpochRequest) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


def _steps(
    context: Context, request: Request, body: OffsetForLeaderEpochRequest
) -> Steps[Response]:
    topics = []
    # A follower may ask for all topics, a consumer for those that it may describe.
    is_broker = context.authorizer.would_allow(
        request.session, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
    for topic in body.topics:
        yield
        allowed = is_broker or context.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
        )
        partitions = []
        for partition in topic.partitions:
            yield
            try:
                if not allowed:
                    raise context.authorizer.error(
                        request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
                    )
                partitions.append(_end_offset(context, topic.topic, partition))
            except KafkaError as error:
                partitions.append(OffsetForLeaderEpochEndOffset(error.code, partition.partition))
        topics.append(OffsetForLeaderTopicResult(topic.topic, partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end_offset(
    context: Context, topic: str, partition: OffsetForLeaderPartition
) -> OffsetForLeaderEpochEndOffset:
    log = context.replicas.find(topic, partition.partition).leader_log(
        partition.current_leader_epoch
    )
    end = log.end_offset_for_epoch(partition.leader_epoch)
    if end is None:
        return OffsetForLeaderEpochEndOffset(0, partition.partition)
    return OffsetForLeaderEpochEndOffset(0, partition.partition, end.leader_epoch, end.offset)
