"""Offsets and members of groups: read, changed and removed from outside."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.client.admin.advice import explain
from penstock.client.admin.groups import GroupCalls
from penstock.client.admin.model_groups import MemberToRemove
from penstock.client.admin.routing import COORDINATOR_CODES, Locate, by_topic, several
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
"""The last OffsetCommit and OffsetFetch that name topics; later ones have ids."""

GroupOffsets = dict[TopicPartition, OffsetAndMetadata | None]


class GroupOffsetCalls(GroupCalls):
    """Calls about what is in a group."""

    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, GroupOffsets]:
        """The committed offsets of groups, sorted: of all partitions, or of those given.

        A partition that was asked for and has none is None. With `require_stable` offsets of
        transactions that are still open are waited for. A group that does not exist has none.
        """
        deadline_ms = self._deadline(timeout_ms)
        wanted: dict[str, list[TopicPartition] | None]
        if isinstance(groups, Mapping):
            wanted = {group: None if some is None else list(some) for group, some in groups.items()}
        else:
            wanted = dict.fromkeys(several("list_group_offsets", groups))

        async def send(node_id: int, ids: Sequence[str]) -> Mapping[str, GroupOffsets | KafkaError]:
            answers: dict[str, GroupOffsets | KafkaError] = {}
            while len(answers) < len(ids):
                rest = {each: wanted[each] for each in ids if each not in answers}
                answers.update(
                    await self._fetch_offsets(node_id, rest, require_stable, deadline_ms)
                )
            return answers

        return await self._each(
            "list_group_offsets",
            wanted,
            self._coordinators("list_group_offsets", CoordinatorKind.GROUP, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES | {ErrorCode.UNSTABLE_OFFSET_COMMIT},
        )

    async def _fetch_offsets(
        self,
        node_id: int,
        wanted: Mapping[str, Sequence[TopicPartition] | None],
        require_stable: bool,
        deadline_ms: int,
    ) -> dict[str, GroupOffsets | KafkaError]:
        """Of all groups where the broker can tell them together (Kafka 3.0), else of the first."""
        first = next(iter(wanted))

        def make(version: int) -> OffsetFetchRequest:
            request = OffsetFetchRequest()
            if version >= 7:
                request.require_stable = require_stable
            if version >= 8:
                request.groups = [_grouped(group, some) for group, some in wanted.items()]
            else:
                request.group_id = first
                some = wanted[first]
                request.topics = None
                if some is not None:
                    request.topics = [
                        OffsetFetchRequestTopic(*each) for each in by_topic(some).items()
                    ]
            return request

        response = await self._request(
            "list_group_offsets",
            node_id,
            RequestBuilder(OffsetFetchRequest, make),
            OffsetFetchResponse,
            deadline_ms,
            needs=(7, "2.5") if require_stable else (2, "0.10.2"),
            max_version=_LAST_WITH_NAMES,
        )
        if response.groups:
            return {
                each.group_id: _offsets(each, wanted[each.group_id]) for each in response.groups
            }
        topics = [
            OffsetFetchResponseTopics(
                topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.metadata,
                        each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in response.topics
        ]
        answer = OffsetFetchResponseGroup(first, topics, response.error_code)
        return {first: _offsets(answer, wanted[first])}

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Set offsets of a group that has no members; one that does not exist is made by it."""
        deadline_ms = self._deadline(timeout_ms)

        def commit(partition: TopicPartition) -> OffsetCommitRequestPartition:
            given = offsets[partition]
            offset = OffsetAndMetadata(given) if isinstance(given, int) else given
            return OffsetCommitRequestPartition(
                partition.partition,
                offset.offset,
                offset.leader_epoch,
                committed_metadata=offset.metadata,
            )

        async def send(
            node_id: int, some: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, KafkaError | None]:
            topics = [
                OffsetCommitRequestTopic(
                    topic, partitions=[commit(TopicPartition(topic, index)) for index in indexes]
                )
                for topic, indexes in by_topic(some).items()
            ]
            response = await self._request(
                "alter_group_offsets",
                node_id,
                OffsetCommitRequest(group_id, topics=topics),
                OffsetCommitResponse,
                deadline_ms,
                needs=(2, "0.9"),
                max_version=_LAST_WITH_NAMES,
            )
            return {
                (partition := TopicPartition(topic.name, each.partition_index)): _outcome(
                    each.error_code, group_id, partition
                )
                for topic in response.topics
                for each in topic.partitions
            }

        await self._each(
            "alter_group_offsets",
            offsets,
            self._at_group("alter_group_offsets", group_id, deadline_ms),
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
        """Delete offsets of a group, of topics that none of its members is subscribed to."""
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, some: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, KafkaError | None]:
            topics = [
                OffsetDeleteRequestTopic(
                    topic, [OffsetDeleteRequestPartition(index) for index in indexes]
                )
                for topic, indexes in by_topic(some).items()
            ]
            response = await self._request(
                "delete_group_offsets",
                node_id,
                OffsetDeleteRequest(group_id, topics),
                OffsetDeleteResponse,
                deadline_ms,
            )
            if response.error_code != ErrorCode.NONE:
                return dict.fromkeys(some, explain(response.error_code, f"group {group_id}"))
            return {
                (partition := TopicPartition(topic.name, each.partition_index)): _outcome(
                    each.error_code, group_id, partition
                )
                for topic in response.topics
                for each in topic.partitions
            }

        await self._each(
            "delete_group_offsets",
            partitions,
            self._at_group("delete_group_offsets", group_id, deadline_ms),
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
        """Put members out of a group (None: all of them), so that it is rebalanced at once.

        A member that is still running joins again.
        """
        deadline_ms = self._deadline(timeout_ms)
        if members is None:
            described = await self.describe_groups([group_id], timeout_ms=timeout_ms)
            members = [
                MemberToRemove(each.group_instance_id, each.member_id)
                for each in described[group_id].members
            ]

        async def send(
            node_id: int, some: Sequence[MemberToRemove]
        ) -> Mapping[MemberToRemove, KafkaError | None]:
            identities = [
                MemberIdentity(
                    each.member_id,
                    each.group_instance_id,
                    reason or "removed by an administrator",
                )
                for each in some
            ]
            response = await self._request(
                "remove_members",
                node_id,
                LeaveGroupRequest(group_id, members=identities),
                LeaveGroupResponse,
                deadline_ms,
                needs=(3, "2.4"),
            )
            if response.error_code != ErrorCode.NONE:
                return dict.fromkeys(some, explain(response.error_code, f"group {group_id}"))
            return {
                (key := MemberToRemove(each.group_instance_id, each.member_id)): (
                    None
                    if each.error_code == ErrorCode.NONE
                    else explain(each.error_code, f"{_name(key)} of group {group_id}")
                )
                for each in response.members
            }

        await self._each(
            "remove_members",
            members,
            self._at_group("remove_members", group_id, deadline_ms),
            send,
            deadline_ms,
            retriable=COORDINATOR_CODES,
        )

    def _at_group(self, call: str, group_id: str, deadline_ms: int) -> Locate[Any]:
        """Everything is at the coordinator of one group."""
        find = self._coordinators(call, CoordinatorKind.GROUP, deadline_ms)

        async def locate(keys: Sequence[Any]) -> Mapping[Any, int | KafkaError]:
            return dict.fromkeys(keys, (await find([group_id]))[group_id])

        return locate


def _name(member: MemberToRemove) -> str:
    if member.group_instance_id is None:
        return f"member {member.member_id}"
    return f"member with instance id {member.group_instance_id}"


def _grouped(group: str, some: Sequence[TopicPartition] | None) -> OffsetFetchRequestGroup:
    if some is None:
        return OffsetFetchRequestGroup(group, topics=None)
    topics = [
        OffsetFetchRequestTopics(topic, partition_indexes=indexes)
        for topic, indexes in by_topic(some).items()
    ]
    return OffsetFetchRequestGroup(group, topics=topics)


def _offsets(
    group: OffsetFetchResponseGroup, wanted: Sequence[TopicPartition] | None
) -> GroupOffsets | KafkaError:
    if group.error_code != ErrorCode.NONE:
        return explain(group.error_code, f"group {group.group_id}")
    found: GroupOffsets = dict.fromkeys(wanted or ())
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code != ErrorCode.NONE:
                return explain(each.error_code, f"group {group.group_id}, partition {partition}")
            if each.committed_offset >= 0:
                found[partition] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", each.committed_leader_epoch
                )
    return dict(sorted(found.items()))


def _outcome(code: int, group_id: str, partition: TopicPartition) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    return explain(code, f"group {group_id}, partition {partition}")
