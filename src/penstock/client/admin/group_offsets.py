"""Admin calls for the offsets and members of groups."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.client.admin.advice import broker_error, error_or_none
from penstock.client.admin.api_driver import (
    COORDINATOR_CODES,
    LookupStrategy,
    group_by_topic,
    unique_keys,
)
from penstock.client.admin.groups import GroupCalls
from penstock.client.admin.model_groups import MemberToRemove
from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.coordinators import CoordinatorKind
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import RequestBuilder
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
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

_LAST_WITH_NAMES = 9
"""The last OffsetCommit and OffsetFetch with names of topics; later ones have ids."""

GroupOffsets = dict[TopicPartition, OffsetAndMetadata | None]


class GroupOffsetCalls(GroupCalls):
    """The calls for offsets and members of groups."""

    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, GroupOffsets]:
        """Returns the committed offsets of groups, sorted: of all partitions, or of those given.

        Given partitions without an offset are None. With `require_stable` the call waits for open
        transactions with offsets of the group. A group that does not exist has no offsets.
        """
        deadline_ms = self._deadline(timeout_ms)
        requested: dict[str, list[TopicPartition] | None]
        if isinstance(groups, Mapping):
            requested = {
                group: None if keys is None else list(keys) for group, keys in groups.items()
            }
        else:
            requested = dict.fromkeys(unique_keys("list_group_offsets", groups))

        async def send(node_id: int, ids: Sequence[str]) -> Mapping[str, GroupOffsets | KafkaError]:
            results: dict[str, GroupOffsets | KafkaError] = {}
            while len(results) < len(ids):
                remaining = {key: requested[key] for key in ids if key not in results}
                results.update(
                    await self._fetch_offsets(node_id, remaining, require_stable, deadline_ms)
                )
            return results

        return await self._request_each(
            "list_group_offsets",
            requested,
            self._coordinators("list_group_offsets", CoordinatorKind.GROUP, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES | {ErrorCode.UNSTABLE_OFFSET_COMMIT},
        )

    async def _fetch_offsets(
        self,
        node_id: int,
        requested: Mapping[str, Sequence[TopicPartition] | None],
        require_stable: bool,
        deadline_ms: int,
    ) -> dict[str, GroupOffsets | KafkaError]:
        """Returns the offsets of all groups; of the first one from brokers before Kafka 3.0."""
        first = next(iter(requested))

        def make(version: int) -> OffsetFetchRequest:
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

        response = await self._request(
            "list_group_offsets",
            node_id,
            RequestBuilder(OffsetFetchRequest, make),
            OffsetFetchResponse,
            deadline_ms,
            required=(7, "2.5") if require_stable else (2, "0.10.2"),
            max_version=_LAST_WITH_NAMES,
        )
        if response.groups:
            return {
                group.group_id: _offsets(group, requested[group.group_id])
                for group in response.groups
            }
        topics = [
            OffsetFetchResponseTopics(
                topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.metadata,
                        partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in response.topics
        ]
        result = OffsetFetchResponseGroup(first, topics, response.error_code)
        return {first: _offsets(result, requested[first])}

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Sets offsets of a group without members; creates the group if it does not exist."""
        deadline_ms = self._deadline(timeout_ms)

        def commit(partition: TopicPartition) -> OffsetCommitRequestPartition:
            value = offsets[partition]
            offset = OffsetAndMetadata(value) if isinstance(value, int) else value
            return OffsetCommitRequestPartition(
                partition.partition,
                offset.offset,
                offset.leader_epoch,
                committed_metadata=offset.metadata,
            )

        async def send(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, KafkaError | None]:
            topics = [
                OffsetCommitRequestTopic(
                    topic, partitions=[commit(TopicPartition(topic, index)) for index in indexes]
                )
                for topic, indexes in group_by_topic(keys).items()
            ]
            response = await self._request(
                "alter_group_offsets",
                node_id,
                OffsetCommitRequest(group_id, topics=topics),
                OffsetCommitResponse,
                deadline_ms,
                required=(2, "0.9"),
                max_version=_LAST_WITH_NAMES,
            )
            return {
                (
                    partition := TopicPartition(topic.name, partition_data.partition_index)
                ): _offset_error_or_none(partition_data.error_code, group_id, partition)
                for topic in response.topics
                for partition_data in topic.partitions
            }

        await self._request_each(
            "alter_group_offsets",
            offsets,
            self._group_coordinator("alter_group_offsets", group_id, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES | {ErrorCode.REBALANCE_IN_PROGRESS},
        )

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Deletes offsets of a group, for topics that no member is subscribed to."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, KafkaError | None]:
            topics = [
                OffsetDeleteRequestTopic(
                    topic, [OffsetDeleteRequestPartition(index) for index in indexes]
                )
                for topic, indexes in group_by_topic(keys).items()
            ]
            response = await self._request(
                "delete_group_offsets",
                node_id,
                OffsetDeleteRequest(group_id, topics),
                OffsetDeleteResponse,
                deadline_ms,
            )
            if response.error_code != ErrorCode.NONE:
                return dict.fromkeys(keys, broker_error(response.error_code, f"group {group_id}"))
            return {
                (
                    partition := TopicPartition(topic.name, partition_data.partition_index)
                ): _offset_error_or_none(partition_data.error_code, group_id, partition)
                for topic in response.topics
                for partition_data in topic.partitions
            }

        await self._request_each(
            "delete_group_offsets",
            partitions,
            self._group_coordinator("delete_group_offsets", group_id, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES,
        )

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Removes members from a group, by default all, so that it rebalances at once.

        A member that is still running joins again.
        """
        deadline_ms = self._deadline(timeout_ms)
        if members is None:
            described = await self.describe_groups([group_id], timeout_ms=timeout_ms)
            members = [
                MemberToRemove(member.group_instance_id, member.member_id)
                for member in described[group_id].members
            ]

        async def send(
            node_id: int, keys: Sequence[MemberToRemove]
        ) -> Mapping[MemberToRemove, KafkaError | None]:
            identities = [
                MemberIdentity(
                    member.member_id,
                    member.group_instance_id,
                    reason or "removed by an administrator",
                )
                for member in keys
            ]
            response = await self._request(
                "remove_members",
                node_id,
                LeaveGroupRequest(group_id, members=identities),
                LeaveGroupResponse,
                deadline_ms,
                required=(3, "2.4"),
            )
            if response.error_code != ErrorCode.NONE:
                return dict.fromkeys(keys, broker_error(response.error_code, f"group {group_id}"))
            return {
                (key := MemberToRemove(result.group_instance_id, result.member_id)): error_or_none(
                    result.error_code, f"{_name(key)} of group {group_id}"
                )
                for result in response.members
            }

        await self._request_each(
            "remove_members",
            members,
            self._group_coordinator("remove_members", group_id, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES,
        )

    def _group_coordinator(self, call: str, group_id: str, deadline_ms: int) -> LookupStrategy[Any]:
        """Returns the strategy for keys of one group, which go to its coordinator."""
        find = self._coordinators(call, CoordinatorKind.GROUP, deadline_ms)

        async def look_up(keys: Sequence[Any]) -> Mapping[Any, int | KafkaError]:
            return dict.fromkeys(keys, (await find([group_id]))[group_id])

        return look_up


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
    group: OffsetFetchResponseGroup, requested: Sequence[TopicPartition] | None
) -> GroupOffsets | KafkaError:
    if group.error_code != ErrorCode.NONE:
        return broker_error(group.error_code, f"group {group.group_id}")
    results: GroupOffsets = dict.fromkeys(requested or ())
    for topic in group.topics:
        for partition_data in topic.partitions:
            partition = TopicPartition(topic.name, partition_data.partition_index)
            if partition_data.error_code != ErrorCode.NONE:
                return broker_error(
                    partition_data.error_code, f"group {group.group_id}, partition {partition}"
                )
            if partition_data.committed_offset >= 0:
                results[partition] = OffsetAndMetadata(
                    partition_data.committed_offset,
                    partition_data.metadata or "",
                    partition_data.committed_leader_epoch,
                )
    return dict(sorted(results.items()))


def _offset_error_or_none(code: int, group_id: str, partition: TopicPartition) -> KafkaError | None:
    return error_or_none(code, f"group {group_id}, partition {partition}")
