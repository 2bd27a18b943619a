"""Admin calls for groups of both protocols: list, describe, delete."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import BrokerTooOldError, broker_error, error_or_none
from penstock.client.admin.api_driver import COORDINATOR_CODES
from penstock.client.admin.api_lookup import AdminApiLookup
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
from penstock.net.client.network_client import RequestBuilder
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


class GroupCalls(AdminApiLookup):
    """The calls for groups."""

    async def list_groups(
        self,
        *,
        states: Iterable[GroupState] = (),
        types: Iterable[GroupType] = (),
        protocol_types: Iterable[str] = (),
        timeout_ms: int | None = None,
    ) -> list[GroupListing]:
        """Returns the groups of all brokers that match all filters, sorted by id.

        The protocol type is `consumer` for consumers, and empty for groups without members.
        """
        deadline_ms = self._deadline(timeout_ms)
        wanted_states, wanted_types = list(states), list(types)
        protocols = set(protocol_types)
        cluster = await self._refresh_brokers("list_groups", deadline_ms)

        def make(version: int) -> ListGroupsRequest:
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

        async def send(
            node_id: int, ids: Sequence[int]
        ) -> Mapping[int, list[GroupListing] | KafkaError]:
            response = await self._request(
                "list_groups",
                node_id,
                RequestBuilder(ListGroupsRequest, make),
                ListGroupsResponse,
                deadline_ms,
            )
            if response.error_code != ErrorCode.NONE:
                return {node_id: broker_error(response.error_code, f"groups of broker {node_id}")}
            return {node_id: [_listing(group) for group in response.groups]}

        results = await self._request_each(
            "list_groups",
            sorted(cluster.nodes),
            self._broker_ids(deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES,
        )
        groups = {group.group_id: group for listings in results.values() for group in listings}
        return [
            groups[group_id]
            for group_id in sorted(groups)
            if not protocols or groups[group_id].protocol_type in protocols
        ]

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, GroupDescription]:
        """Returns groups of both protocols with their members.

        A group that does not exist is GROUP_ID_NOT_FOUND.
        """
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, ids: Sequence[str]
        ) -> Mapping[str, GroupDescription | KafkaError]:
            coordinator = self._network.node_of(node_id)
            results = await self._describe_consumer_groups(
                coordinator, ids, deadline_ms, include_authorized_operations
            )
            remaining = [
                key
                for key in ids
                if isinstance(error := results.get(key), KafkaError)
                and error.code in _NOT_CONSUMER_PROTOCOL
            ]
            if remaining:
                results.update(
                    await self._describe_classic_groups(
                        coordinator, remaining, deadline_ms, include_authorized_operations
                    )
                )
            return results

        return await self._request_each(
            "describe_groups",
            group_ids,
            self._coordinators("describe_groups", CoordinatorKind.GROUP, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES,
        )

    async def _describe_consumer_groups(
        self, coordinator: Node, ids: Sequence[str], deadline_ms: int, operations: bool
    ) -> dict[str, GroupDescription | KafkaError]:
        try:
            response = await self._request(
                "describe_groups",
                coordinator.id,
                ConsumerGroupDescribeRequest(list(ids), operations),
                ConsumerGroupDescribeResponse,
                deadline_ms,
            )
        except UnsupportedVersionError as unsupported:
            return dict.fromkeys(ids, unsupported)
        return {
            group.group_id: (
                consumer_group(group, coordinator)
                if group.error_code == ErrorCode.NONE
                else broker_error(group.error_code, f"group {group.group_id}", group.error_message)
            )
            for group in response.groups
        }

    async def _describe_classic_groups(
        self, coordinator: Node, ids: Sequence[str], deadline_ms: int, operations: bool
    ) -> dict[str, GroupDescription | KafkaError]:
        response = await self._request(
            "describe_groups",
            coordinator.id,
            DescribeGroupsRequest(list(ids), operations),
            DescribeGroupsResponse,
            deadline_ms,
            required=(3, "2.3") if operations else None,
        )
        results: dict[str, GroupDescription | KafkaError] = {}
        for group in response.groups:
            code = group.error_code
            if code == ErrorCode.NONE and GroupState.parse(group.group_state) is GroupState.DEAD:
                # Brokers before Kafka 4.0 describe a missing group so.
                code = ErrorCode.GROUP_ID_NOT_FOUND
            if code == ErrorCode.NONE:
                results[group.group_id] = classic_group(group, coordinator)
            else:
                results[group.group_id] = broker_error(
                    code, f"group {group.group_id}", group.error_message
                )
        return results

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> None:
        """Deletes groups without members, with their offsets."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(node_id: int, ids: Sequence[str]) -> Mapping[str, KafkaError | None]:
            response = await self._request(
                "delete_groups",
                node_id,
                DeleteGroupsRequest(list(ids)),
                DeleteGroupsResponse,
                deadline_ms,
            )
            return {
                result.group_id: error_or_none(
                    result.error_code, f"group {result.group_id}", result.error_message
                )
                for result in response.results
            }

        await self._request_each(
            "delete_groups",
            group_ids,
            self._coordinators("delete_groups", CoordinatorKind.GROUP, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES,
        )


def _listing(group: ListedGroup) -> GroupListing:
    return GroupListing(
        group.group_id,
        group.protocol_type,
        GroupState.parse(group.group_state) if group.group_state else None,
        GroupType.parse(group.group_type) if group.group_type else None,
    )
