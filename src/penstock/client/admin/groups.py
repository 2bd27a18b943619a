"""Admin calls for groups of both protocols: list, describe, delete."""

from collections.abc import Iterable, Sequence

from penstock.client.admin.advice import BrokerTooOldError, response_error
from penstock.client.admin.api_driver import AdminApiDriver, AdminCall, Results
from penstock.client.admin.api_lookup import broker_ids, coordinators
from penstock.client.admin.group_members import classic_group, consumer_group
from penstock.client.admin.model_groups import (
    GroupDescription,
    GroupListing,
    GroupState,
    GroupType,
)
from penstock.client.coordinators import CoordinatorKind
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.net.client.cluster import Node
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

_NOT_CONSUMER_PROTOCOL = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


async def list_groups(
    admin: AdminApiDriver,
    *,
    states: Iterable[GroupState] = (),
    types: Iterable[GroupType] = (),
    protocol_types: Iterable[str] = (),
    timeout_ms: int | None = None,
) -> list[GroupListing]:
    """Returns the groups of all brokers that match all filters, sorted by id.

    The protocol type is `consumer` for consumers, and empty for groups without members.
    """
    call = AdminCall(admin, "list_groups", timeout_ms)
    wanted_states, wanted_types = list(states), list(types)
    protocols = set(protocol_types)
    cluster = await call.refresh_brokers()

    def build(version: int) -> ListGroupsRequest:
        request = ListGroupsRequest()
        if wanted_states and version < 4:
            raise BrokerTooOldError(
                "the broker is older than Kafka 2.6 and cannot list by state",
                subject="`list_groups`",
            )
        if version >= 4:
            request.states_filter = [str(state) for state in wanted_states]
        if version >= 5:
            request.types_filter = [str(kind) for kind in wanted_types]
        elif wanted_types not in ([], [GroupType.CLASSIC]):
            raise BrokerTooOldError(
                "the broker is older than Kafka 3.8 and has classic groups only",
                subject="`list_groups`",
            )
        return request

    async def send(node_id: int, ids: Sequence[int]) -> Results[int, list[GroupListing]]:
        response = await call.request(node_id, build, ListGroupsResponse)
        error = response_error(response, f"groups of broker {node_id}")
        return {node_id: error or [_listing(group) for group in response.groups]}

    results = await call.request_each(sorted(cluster.nodes), broker_ids(call), send)
    groups = {group.group_id: group for listings in results.values() for group in listings}
    return [
        groups[group_id]
        for group_id in sorted(groups)
        if not protocols or groups[group_id].protocol_type in protocols
    ]


async def describe_groups(
    admin: AdminApiDriver,
    group_ids: Iterable[str],
    *,
    include_authorized_operations: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, GroupDescription]:
    """Returns groups of both protocols with their members.

    A group that does not exist is GROUP_ID_NOT_FOUND.
    """
    call = AdminCall(admin, "describe_groups", timeout_ms)

    async def send(node_id: int, ids: Sequence[str]) -> Results[str, GroupDescription]:
        coordinator = call.network.node_of(node_id)
        results = await _describe_consumer_groups(
            call, coordinator, ids, include_authorized_operations
        )
        remaining = [
            key
            for key in ids
            if isinstance(error := results.get(key), KafkaError)
            and error.code in _NOT_CONSUMER_PROTOCOL
        ]
        if remaining:
            results |= await _describe_classic_groups(
                call, coordinator, remaining, include_authorized_operations
            )
        return results

    return await call.request_each(group_ids, coordinators(call, CoordinatorKind.GROUP), send)


async def _describe_consumer_groups(
    call: AdminCall, coordinator: Node, ids: Sequence[str], operations: bool
) -> dict[str, GroupDescription | KafkaError]:
    request = ConsumerGroupDescribeRequest(list(ids), operations)
    try:
        response = await call.request(coordinator.id, request, ConsumerGroupDescribeResponse)
    except UnsupportedVersionError as unsupported:
        return dict.fromkeys(ids, unsupported)
    return {
        group.group_id: (
            response_error(group, f"group {group.group_id}") or consumer_group(group, coordinator)
        )
        for group in response.groups
    }


async def _describe_classic_groups(
    call: AdminCall, coordinator: Node, ids: Sequence[str], operations: bool
) -> dict[str, GroupDescription | KafkaError]:
    response = await call.request(
        coordinator.id,
        DescribeGroupsRequest(list(ids), operations),
        DescribeGroupsResponse,
        required=(3, "2.3") if operations else None,
    )
    for group in response.groups:
        state = GroupState.parse(group.group_state)
        if group.error_code == ErrorCode.NONE and state is GroupState.DEAD:
            # Brokers before Kafka 4.0 describe a missing group so.
            group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
    return {
        group.group_id: (
            response_error(group, f"group {group.group_id}") or classic_group(group, coordinator)
        )
        for group in response.groups
    }


async def delete_groups(
    admin: AdminApiDriver, group_ids: Iterable[str], *, timeout_ms: int | None = None
) -> None:
    """Deletes groups without members, with their offsets."""
    call = AdminCall(admin, "delete_groups", timeout_ms)

    async def send(node_id: int, ids: Sequence[str]) -> Results[str, None]:
        response = await call.request(node_id, DeleteGroupsRequest(list(ids)), DeleteGroupsResponse)
        return {
            result.group_id: response_error(result, f"group {result.group_id}")
            for result in response.results
        }

    await call.request_each(group_ids, coordinators(call, CoordinatorKind.GROUP), send)


def _listing(group: ListedGroup) -> GroupListing:
    return GroupListing(
        group.group_id,
        group.protocol_type,
        GroupState.parse(group.group_state) if group.group_state else None,
        GroupType.parse(group.group_type) if group.group_type else None,
    )
