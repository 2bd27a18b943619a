"""LeaderAndIsr (4), versions 0 to 7: the controller creates and updates replicas (R4, R7)."""

from dataclasses import dataclass

from penstock.broker.metadata.controller_requests import ControllerRequests
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import KafkaError
from penstock.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from penstock.security.acl import AclOperation

_FIRST_WITH_TOPIC_IDS = 5


@dataclass(frozen=True, slots=True)
class Context:
    controller_requests: ControllerRequests
    authorizer: RequestAuthorizer


async def handle(context: Context, request: Request, body: LeaderAndIsrRequest) -> Response:
    context.authorizer.require(request.session, AclOperation.CLUSTER_ACTION)
    try:
        result = await context.controller_requests.leader_and_isr(body, request.session)
    except KafkaError as error:
        return LeaderAndIsrResponse(error_code=error.code)
    errors = [
        (key.topic, LeaderAndIsrPartitionError(key.topic, key.partition, code))
        for key, code in result.partitions.items()
    ]
    if request.version < _FIRST_WITH_TOPIC_IDS:
        return LeaderAndIsrResponse(partition_errors=[part for _, part in errors])
    topics = {
        topic.topic_name: LeaderAndIsrTopicError(topic.topic_id) for topic in body.topic_states
    }
    for topic, part in errors:
        topics[topic].partition_errors.append(part)
    return LeaderAndIsrResponse(topics=list(topics.values()))
