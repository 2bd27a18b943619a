"""OffsetForLeaderEpoch (23): versions 0 to 4: where an epoch ends in the leader's log (R4)."""

from dataclasses import dataclass

from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
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
    replicas: ReplicaManager
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: OffsetForLeaderEpochRequest) -> HandlerResult:
    topics = []
    for topic in body.topics:
        allowed = context.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
        )
        partitions = []
        for wanted in topic.partitions:
            try:
                if not allowed:
                    raise context.authorizer.error(
                        request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
                    )
                partitions.append(_end(context, topic.topic, wanted))
            except KafkaError as error:
                partitions.append(OffsetForLeaderEpochEndOffset(error.code, wanted.partition))
        topics.append(OffsetForLeaderTopicResult(topic.topic, partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end(
    context: Context, topic: str, wanted: OffsetForLeaderPartition
) -> OffsetForLeaderEpochEndOffset:
    log = context.replicas.find(topic, wanted.partition).leader_log(wanted.current_leader_epoch)
    end = log.end_offset_for_epoch(wanted.leader_epoch)
    if end is None:
        return OffsetForLeaderEpochEndOffset(0, wanted.partition)
    return OffsetForLeaderEpochEndOffset(0, wanted.partition, end.leader_epoch, end.offset)
