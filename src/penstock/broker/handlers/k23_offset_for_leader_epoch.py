"""OffsetForLeaderEpoch (23): versions 0 to 4: where an epoch ends in the leader's log (R4)."""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.core.errors import KafkaError
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: OffsetForLeaderEpochRequest) -> HandlerResult:
    topics = []
    for topic in body.topics:
        allowed = broker.authorizer.allows(
            request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
        )
        partitions = []
        for wanted in topic.partitions:
            try:
                if not allowed:
                    raise broker.authorizer.refusal(
                        request.session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
                    )
                partitions.append(_end(broker, topic.topic, wanted))
            except KafkaError as error:
                partitions.append(OffsetForLeaderEpochEndOffset(error.code, wanted.partition))
        topics.append(OffsetForLeaderTopicResult(topic.topic, partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end(
    broker: "Broker", topic: str, wanted: OffsetForLeaderPartition
) -> OffsetForLeaderEpochEndOffset:
    log = broker.replicas.find(topic, wanted.partition).leading(wanted.current_leader_epoch)
    end = log.end_offset_for_epoch(wanted.leader_epoch)
    if end is None:
        return OffsetForLeaderEpochEndOffset(0, wanted.partition)
    return OffsetForLeaderEpochEndOffset(0, wanted.partition, end.leader_epoch, end.offset)
