"""FindCoordinator (10): versions 0 to 6: which broker keeps a group or a transactional id (C3, P4).

The first of each makes `__consumer_offsets` and `__transaction_state`. Coordinators of share groups
are not served yet.
"""

from typing import TYPE_CHECKING

from penstock.broker.request import Request, Response
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_GROUP = 0
_TRANSACTION = 1
_FIRST_WITH_SEVERAL = 4


async def handle(broker: "Broker", request: Request, body: FindCoordinatorRequest) -> Response:
    if request.version >= _FIRST_WITH_SEVERAL:
        found = [await _find(broker, request, body.key_type, key) for key in body.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = await _find(broker, request, body.key_type, body.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(broker: "Broker", request: Request, key_type: int, key: str) -> Coordinator:
    try:
        leader = await _leader(broker, request, key_type, key)
        for node, endpoint in broker.nodes(request.session.listener):
            if node.broker_id == leader:
                return Coordinator(key, leader, endpoint.host, endpoint.port, error_message=None)
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator of {key!r} is not up: retry"
        )
    except KafkaError as error:
        return Coordinator(key, -1, "", -1, error.code, error.message)


async def _leader(broker: "Broker", request: Request, key_type: int, key: str) -> int:
    if key_type == _GROUP:
        broker.authorizer.require(request.session, AclOperation.DESCRIBE, ResourceType.GROUP, key)
        await broker.groups.ensure_topic()
        return broker.groups.coordinator_of(key)
    if key_type == _TRANSACTION:
        broker.authorizer.require(
            request.session, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key
        )
        await broker.transactions.ensure_topic()
        return broker.transactions.coordinator_of(key)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"coordinators of type {key_type} are not served: ask for type {_GROUP} (a group) or "
        f"{_TRANSACTION} (a transactional id)",
    )
