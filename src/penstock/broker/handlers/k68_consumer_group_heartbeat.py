"""ConsumerGroupHeartbeat (68): versions 0 to 1: membership of KIP-848 groups (C3)."""

from typing import TYPE_CHECKING

from penstock.broker.coordinator.topic_patterns import matcher
from penstock.broker.request import HandlerResult, Request
from penstock.core.errors import KafkaError
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(
    broker: "Broker", request: Request, body: ConsumerGroupHeartbeatRequest
) -> HandlerResult:
    try:
        _check(broker, request, body)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    return broker.groups.send(request, body, body.group_id)


def _check(broker: "Broker", request: Request, body: ConsumerGroupHeartbeatRequest) -> None:
    broker.groups.require_consumer_groups()
    authorizer, session = broker.authorizer, request.session
    authorizer.require(session, AclOperation.READ, ResourceType.GROUP, body.group_id)
    for topic in body.subscribed_topic_names or ():
        authorizer.require(session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    if body.subscribed_topic_regex:
        matcher(body.subscribed_topic_regex)
