"""Admin calls for the offsets and members of groups."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin.advice import response_error
from penstock.client.admin.api_driver import AdminApiDriver, AdminCall, Results, unique_keys
from penstock.client.admin.api_lookup import coordinators, group_coordinator
from penstock.client.admin.groups import describe_groups
from penstock.client.admin.model_groups import MemberToRemove
from penstock.client.admin.results import group_by_topic, no_value, partition_results
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.coordinators import CoordinatorKind
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_LAST_WITH_NAMES = 9
"""The last OffsetCommit and OffsetFetch with names of topics; later ones have ids."""

GroupOffsets = dict[TopicPartition, OffsetAndMetadata | None]


async def list_group_offsets(
    admin: AdminApiDriver,
    groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, GroupOffsets]:
    """Returns the committed offsets of groups, sorted: of all partitions, or of those given.

    Given partitions without an offset are None. With `require_stable` the call waits for open
    transactions with offsets of the group. A group that does not exist has no offsets.
    """
    call = AdminCall(admin, "list_group_offsets", timeout_ms)
    requested: dict[str, list[TopicPartition] | None]
    if isinstance(groups, Mapping):
        requested = {group: None if keys is None else list(keys) for group, keys in groups.items()}
    else:
        requested = dict.fromkeys(unique_keys(call.name, groups))

    async def send(node_id: int, ids: Sequence[str]) -> Results[str, GroupOffsets]:
        results: dict[str, GroupOffsets | KafkaError] = {}
        while len(results) < len(ids):
            remaining = {key: requested[key] for key in ids if key not in results}
            results |= await _fetch_offsets(call, node_id, remaining, require_stable)
        return results

    return await call.request_each(
        requested,
        coordinators(call, CoordinatorKind.GROUP),
        send,
        retriable=(ErrorCode.UNSTABLE_OFFSET_COMMIT,),
    )


async def _fetch_offsets(
    call: AdminCall,
    node_id: int,
    requested: Mapping[str, Sequence[TopicPartition] | None],
    require_stable: bool,
) -> dict[str, GroupOffsets | KafkaError]:
    """Returns the offsets of all groups; of the first one from brokers before Kafka 3.0."""
    first = next(iter(requested))

    def build(version: int) -> OffsetFetchRequest:
        request = OffsetFetchRequest()
        if version >= 7:
            request.require_stable = require_stable
        if version >= 8:
            request.groups = [_request_group(group, keys) for group, keys in requested.items()]
        else:
            request.group_id = first
            keys = requested[first]
            request.topics = None
            if keys is not None:
                request.topics = [
                    OffsetFetchRequestTopic(*entry) for entry in group_by_topic(keys).items()
                ]
        return request

    response = await call.request(
        node_id,
        build,
        OffsetFetchResponse,
        required=(7, "2.5") if require_stable else (2, "0.10.2"),
        max_version=_LAST_WITH_NAMES,
    )
    if response.groups:
        return {
            group.group_id: response_error(group, f"group {group.group_id}")
            or _offsets(group.group_id, group.topics, requested[group.group_id])
            for group in response.groups
        }
    offsets = _offsets(first, response.topics, requested[first])
    return {first: response_error(response, f"group {first}") or offsets}


async def alter_group_offsets(
    admin: AdminApiDriver,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    *,
    timeout_ms: int | None = None,
) -> None:
    """Sets offsets of a group without members; creates the group if it does not exist."""
    call = AdminCall(admin, "alter_group_offsets", timeout_ms)

    def commit(partition: TopicPartition) -> OffsetCommitRequestPartition:
        value = offsets[partition]
        offset = OffsetAndMetadata(value) if isinstance(value, int) else value
        return OffsetCommitRequestPartition(
            partition.partition,
            offset.offset,
            offset.leader_epoch,
            committed_metadata=offset.metadata,
        )

    async def send(node_id: int, keys: Sequence[TopicPartition]) -> Results[TopicPartition, None]:
        topics = [
            OffsetCommitRequestTopic(
                topic, partitions=[commit(TopicPartition(topic, index)) for index in indexes]
            )
            for topic, indexes in group_by_topic(keys).items()
        ]
        response = await call.request(
            node_id,
            OffsetCommitRequest(group_id, topics=topics),
            OffsetCommitResponse,
            required=(2, "0.9"),
            max_version=_LAST_WITH_NAMES,
        )
        return partition_results(response.topics, no_value, subject=f"group {group_id}, partition")

    await call.request_each(
        offsets,
        group_coordinator(call, group_id),
        send,
        retriable=(ErrorCode.REBALANCE_IN_PROGRESS,),
    )


async def delete_group_offsets(
    admin: AdminApiDriver,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    timeout_ms: int | None = None,
) -> None:
    """Deletes offsets of a group, for topics that no member is subscribed to."""
    call = AdminCall(admin, "delete_group_offsets", timeout_ms)

    async def send(node_id: int, keys: Sequence[TopicPartition]) -> Results[TopicPartition, None]:
        topics = [
            OffsetDeleteRequestTopic(
                topic, [OffsetDeleteRequestPartition(index) for index in indexes]
            )
            for topic, indexes in group_by_topic(keys).items()
        ]
        response = await call.request(
            node_id, OffsetDeleteRequest(group_id, topics), OffsetDeleteResponse
        )
        error = response_error(response, f"group {group_id}")
        if error is not None:
            return dict.fromkeys(keys, error)
        return partition_results(response.topics, no_value, subject=f"group {group_id}, partition")

    await call.request_each(partitions, group_coordinator(call, group_id), send)


async def remove_members(
    admin: AdminApiDriver,
    group_id: str,
    members: Iterable[MemberToRemove] | None = None,
    *,
    reason: str | None = None,
    timeout_ms: int | None = None,
) -> None:
    """Removes members from a group, by default all, so that it rebalances at once.

    A member that is still running joins again.
    """
    call = AdminCall(admin, "remove_members", timeout_ms)
    if members is None:
        described = await describe_groups(admin, [group_id], timeout_ms=timeout_ms)
        members = [
            MemberToRemove(member.group_instance_id, member.member_id)
            for member in described[group_id].members
        ]

    async def send(node_id: int, keys: Sequence[MemberToRemove]) -> Results[MemberToRemove, None]:
        identities = [
            MemberIdentity(
                member.member_id,
                member.group_instance_id,
                reason or "removed by an administrator",
            )
            for member in keys
        ]
        response = await call.request(
            node_id,
            LeaveGroupRequest(group_id, members=identities),
            LeaveGroupResponse,
            required=(3, "2.4"),
        )
        error = response_error(response, f"group {group_id}")
        if error is not None:
            return dict.fromkeys(keys, error)
        return {
            (key := MemberToRemove(result.group_instance_id, result.member_id)): response_error(
                result, f"{_name(key)} of group {group_id}"
            )
            for result in response.members
        }

    await call.request_each(members, group_coordinator(call, group_id), send)


def _name(member: MemberToRemove) -> str:
    if member.group_instance_id is None:
        return f"member {member.member_id}"
    return f"member with instance id {member.group_instance_id}"


def _request_group(group: str, keys: Sequence[TopicPartition] | None) -> OffsetFetchRequestGroup:
    if keys is None:
        return OffsetFetchRequestGroup(group, topics=None)
    topics = [
        OffsetFetchRequestTopics(topic, partition_indexes=indexes)
        for topic, indexes in group_by_topic(keys).items()
    ]
    return OffsetFetchRequestGroup(group, topics=topics)


def _offsets(
    group_id: str,
    topics: Iterable[OffsetFetchResponseTopics | OffsetFetchResponseTopic],
    requested: Sequence[TopicPartition] | None,
) -> GroupOffsets | KafkaError:
    results: GroupOffsets = dict.fromkeys(requested or ())
    for topic in topics:
        for partition_data in topic.partitions:
            partition = TopicPartition(topic.name, partition_data.partition_index)
            error = response_error(partition_data, f"group {group_id}, partition {partition}")
            if error is not None:
                return error
            if partition_data.committed_offset >= 0:
                results[partition] = OffsetAndMetadata(
                    partition_data.committed_offset,
                    partition_data.metadata or "",
                    partition_data.committed_leader_epoch,
                )
    return dict(sorted(results.items()))
