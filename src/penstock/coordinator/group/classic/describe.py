"""DescribeGroups: a classic group as administrators see it."""

from penstock.coordinator.group.classic.model import ClassicGroup, ClassicGroupState, Member
from penstock.coordinator.group.group_type import DecisionContext
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsDescribedGroup,
)

DEAD = "Dead"
_NOT_FOUND_VERSION = 6


def describe_group(
    context: DecisionContext, group_id: str, version: int
) -> DescribeGroupsDescribedGroup:
    """Describes a group. One that is not classic is dead, from version 6 on with an error too."""
    group = context.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        has_error = version >= _NOT_FOUND_VERSION
        reason = "not found" if group is None else "is not a classic group"
        return DescribeGroupsDescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if has_error else ErrorCode.NONE,
            error_message=f"Group {group_id} {reason}." if has_error else None,
            group_id=group_id,
            group_state=DEAD,
        )
    is_stable = group.state is ClassicGroupState.STABLE
    return DescribeGroupsDescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            _describe_member(member, group.protocol_name if is_stable else None)
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
