"""FindCoordinator (10): versions 0 to 6: the coordinator of a group or transactional id (C3, P4).

The first request of each kind creates `__consumer_offsets` or `__transaction_state`. Coordinators
of share groups are not supported yet.
"""

from dataclasses import dataclass

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.coordinator.required_topic import require_topic
from penstock.broker.coordinator.transaction_coordinator import TransactionCoordinator
from penstock.broker.pacer import Pacer
from penstock.broker.request import Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.controller.image import ClusterImage
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.security.acl import AclOperation, ResourceType

_GROUP = 0
_TRANSACTION = 1
_SEVERAL_KEYS_VERSION = 4


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    image: ClusterImage
    authorizer: RequestAuthorizer
    groups: GroupCoordinator
    transactions: TransactionCoordinator


async def handle(context: Context, request: Request, body: FindCoordinatorRequest) -> Response:
    if request.version >= _SEVERAL_KEYS_VERSION:
        coordinators = [
            await _find(context, request, body.key_type, key)
            async for key in context.pacer.each(body.coordinator_keys)
        ]
        return FindCoordinatorResponse(coordinators=coordinators)
    coordinator = await _find(context, request, body.key_type, body.key)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


async def _find(context: Context, request: Request, key_type: int, key: str) -> Coordinator:
    try:
        leader = await _leader(context, request, key_type, key)
        for node, endpoint in context.image.broker_endpoints(request.session.listener):
            if node.broker_id == leader:
                return Coordinator(key, leader, endpoint.host, endpoint.port, error_message=None)
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"the coordinator of {key!r} is not available",
            remedy="retry",
        )
    except KafkaError as error:
        return Coordinator(key, -1, "", -1, error.code, error.message)


async def _leader(context: Context, request: Request, key_type: int, key: str) -> int:
    if key_type == _GROUP:
        context.authorizer.require(request.session, AclOperation.DESCRIBE, ResourceType.GROUP, key)
        await require_topic(context.groups)
        return context.groups.coordinator_of(key)
    if key_type == _TRANSACTION:
        context.authorizer.require(
            request.session, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key
        )
        await require_topic(context.transactions)
        return context.transactions.coordinator_of(key)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"coordinators of type {key_type} are not supported",
        remedy=f"use type {_GROUP} (a group) or {_TRANSACTION} (a transactional id)",
    )
