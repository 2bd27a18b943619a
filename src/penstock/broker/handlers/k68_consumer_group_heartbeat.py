"""ConsumerGroupHeartbeat (68): versions 0 to 1: membership of KIP-848 groups (C3)."""

from dataclasses import dataclass

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.topic_patterns import matcher
from penstock.broker.pacer import Pacer, Steps
from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import KafkaError
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    authorizer: RequestAuthorizer
    groups: GroupCoordinator


def handle(
    context: Context, request: Request, body: ConsumerGroupHeartbeatRequest
) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


def _steps(
    context: Context, request: Request, body: ConsumerGroupHeartbeatRequest
) -> Steps[HandlerResult]:
    try:
        yield from _check(context, request, body)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    return context.groups.send(request, body, body.group_id)


def _check(context: Context, request: Request, body: ConsumerGroupHeartbeatRequest) -> Steps[None]:
    context.groups.require_consumer_groups()
    authorizer, session = context.authorizer, request.session
    authorizer.require(session, AclOperation.READ, ResourceType.GROUP, body.group_id)
    for topic in body.subscribed_topic_names or ():
        yield
        authorizer.require(session, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    if body.subscribed_topic_regex:
        matcher(body.subscribed_topic_regex)
