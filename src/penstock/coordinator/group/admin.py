"""DescribeGroups, ConsumerGroupDescribe, ListGroups and DeleteGroups."""

from collections.abc import Iterable, Mapping

from penstock.coordinator.group.classic.model import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ClassicGroupState,
    Member,
)
from penstock.coordinator.group.consumer.model import ConsumerGroup
from penstock.coordinator.group.consumer.records import group_tombstones
from penstock.coordinator.group.events import Group
from penstock.coordinator.group.offsets.commit import Offsets
from penstock.coordinator.group.records import Record, group_tombstone
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_groups import DeletableGroupResult
from penstock.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsDescribedGroup,
)
from penstock.protocol.messages.list_groups import ListedGroup

DEAD = "Dead"
CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"
_NOT_FOUND_VERSION = 6


def describe(group_id: str, group: Group | None, version: int) -> DescribeGroupsDescribedGroup:
    """A group that is no classic one is dead; from version 6 on that is an error too."""
    if not isinstance(group, ClassicGroup):
        known = version >= _NOT_FOUND_VERSION
        why = "not found" if group is None else "is not a classic group"
        return DescribeGroupsDescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.NONE,
            error_message=f"Group {group_id} {why}." if known else None,
            group_id=group_id,
            group_state=DEAD,
        )
    stable = group.state is ClassicGroupState.STABLE
    return DescribeGroupsDescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            _describe_member(member, group.protocol_name if stable else None)
            for member in group.members.values()
        ],
    )


def _describe_member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )


def list_groups(
    groups: Iterable[Group], states: Iterable[str], types: Iterable[str]
) -> list[ListedGroup]:
    """The groups in one of these states and of one of these types; no filter lets all through."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {kind.strip().lower() for kind in types}
    listed = []
    for group in groups:
        if isinstance(group, ConsumerGroup):
            kind, protocol = CONSUMER_TYPE, CONSUMER_PROTOCOL_TYPE
        else:
            kind, protocol = CLASSIC_TYPE, group.protocol_type or ""
        if wanted_types and kind not in wanted_types:
            continue
        state = group.state.value
        if not wanted_states or state.lower() in wanted_states:
            listed.append(ListedGroup(group.group_id, protocol, state, kind))
    return listed


def delete_groups(
    group_ids: Iterable[str], groups: Mapping[str, Group], offsets: Offsets
) -> tuple[list[Record], list[DeletableGroupResult]]:
    """Records that delete the groups that are empty, with their offsets, and what to answer."""
    records: list[Record] = []
    results: list[DeletableGroupResult] = []
    for group_id in group_ids:
        group = groups.get(group_id)
        if group is None:
            error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
            results.append(DeletableGroupResult(group_id, error, message))
        elif not group.is_empty:
            message = f"Group {group_id} still has members: stop them first."
            results.append(DeletableGroupResult(group_id, ErrorCode.NON_EMPTY_GROUP, message))
        else:
            records.extend(offsets.tombstones(group_id))
            records.extend(tombstones(group))
            results.append(DeletableGroupResult(group_id, ErrorCode.NONE, None))
    return records, results


def tombstones(group: Group) -> Iterable[Record]:
    """Records that delete a group without members."""
    if isinstance(group, ConsumerGroup):
        return group_tombstones(group)
    return (group_tombstone(group.group_id),)
