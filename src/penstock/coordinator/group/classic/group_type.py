"""The classic group in the registry of group types."""

from collections.abc import Callable, Iterable, Iterator

from penstock.coordinator.group.classic import requests as member_requests
from penstock.coordinator.group.classic.describe import describe_group
from penstock.coordinator.group.classic.model import (
    ClassicGroup,
    ClassicGroupState,
    group_of_value,
)
from penstock.coordinator.group.classic.records import (
    CLASSIC_RECORD_TYPES,
    ClassicGroupRecord,
    group_tombstone,
)
from penstock.coordinator.group.events import (
    JoinTimer,
    RegexResolved,
    Requested,
    Result,
    SessionTimer,
    SyncTimer,
    Timer,
    Timers,
)
from penstock.coordinator.group.group import Group
from penstock.coordinator.group.group_type import (
    CommitRequest,
    DecisionContext,
    DescribeRequest,
    GroupType,
    commit_time,
)
from penstock.coordinator.group.record import Record
from penstock.coordinator.machine import Response, TimerFired
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.protocol.stored.offsets import OffsetCommitValue


def waiting_responses(group: ClassicGroup, error: ErrorCode) -> Iterator[Response]:
    """Yields error responses to the JoinGroup and SyncGroup requests that wait in the group."""
    for member in group.members.values():
        if member.awaiting_join is not None:
            join = JoinGroupResponse(error_code=error, member_id=member.member_id)
            yield Response(member.awaiting_join.token, join)
        if member.awaiting_sync is not None:
            yield Response(member.awaiting_sync.token, SyncGroupResponse(error_code=error))


def _join_absent_group(
    context: DecisionContext, group: Group | None, event: Requested, request: JoinGroupRequest
) -> Result | ErrorCode:
    if group is not None:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return member_requests.join_new_group(context, event, request)


def _heartbeat_error(request: HeartbeatRequest, version: int, error: ErrorCode) -> Message:
    # While the group is being loaded its state is unknown: the member continues.
    loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error)


def _leave_error(request: LeaveGroupRequest, version: int, error: ErrorCode) -> Message:
    if error is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=error)
    members = [
        MemberResponse(member.member_id, member.group_instance_id, error)
        for member in member_requests.leaving_members(request, version)
    ]
    return member_requests.leave_response(members, version)


def _describe_error(request: DescribeGroupsRequest, version: int, error: ErrorCode) -> Message:
    return DescribeGroupsResponse(
        groups=[
            DescribeGroupsDescribedGroup(error_code=error, group_id=group_id)
            for group_id in request.groups
        ]
    )


class ClassicGroupType(GroupType[ClassicGroup]):
    """Groups of the protocol that Kafka has had since 0.9."""

    name = "classic"
    group_class = ClassicGroup
    record_class = ClassicGroupRecord
    record_types = CLASSIC_RECORD_TYPES
    requests = {
        JoinGroupRequest: member_requests.join,
        SyncGroupRequest: member_requests.sync,
        HeartbeatRequest: member_requests.heartbeat,
        LeaveGroupRequest: member_requests.leave,
    }
    entry_requests = {
        JoinGroupRequest: _join_absent_group,
        SyncGroupRequest: member_requests.unknown_member,
        HeartbeatRequest: member_requests.unknown_member,
        LeaveGroupRequest: member_requests.unknown_member,
    }
    describe_requests = {
        DescribeGroupsRequest: DescribeRequest(
            group_ids=lambda request: request.groups,
            part=lambda request, group_ids: DescribeGroupsRequest(
                group_ids, request.include_authorized_operations
            ),
            results=lambda response: response.groups,
            response=lambda groups: DescribeGroupsResponse(groups=groups),
            describe=describe_group,
        )
    }
    error_responses = {
        JoinGroupRequest: lambda request, version, error: JoinGroupResponse(
            error_code=error, member_id=request.member_id
        ),
        SyncGroupRequest: lambda request, version, error: SyncGroupResponse(error_code=error),
        HeartbeatRequest: _heartbeat_error,
        LeaveGroupRequest: _leave_error,
        DescribeGroupsRequest: _describe_error,
    }

    def replay(self, groups: dict[str, Group], record: Record) -> None:
        assert isinstance(record, ClassicGroupRecord)
        if record.value is None:
            groups.pop(record.key.group, None)
        else:
            groups[record.key.group] = group_of_value(record.key, record.value)

    def tombstones(self, group: ClassicGroup) -> Iterable[Record]:
        return (group_tombstone(group.group_id),)

    # --- lifecycle

    def start(self, context: DecisionContext, group: ClassicGroup) -> Result:
        if not group.members:
            return Result()
        update = member_requests.update_of(context, group)
        for member in group.members.values():
            update.expect_heartbeat(member)
        if len(group.members) > context.config.group_max_size:
            update.prepare_rebalance()
        return Result(state_updates=(update.group,), timers=update.timers)

    def unload(self, group: ClassicGroup, error: ErrorCode) -> Iterable[Response]:
        return waiting_responses(group, error)

    def handle(
        self,
        context: DecisionContext,
        group: ClassicGroup,
        event: TimerFired[Timer] | RegexResolved,
    ) -> Result:
        update = member_requests.update_of(context, group)
        match event:
            case TimerFired(SessionTimer(_, member_id)):
                member_requests.session_expired(update, member_id)
            case TimerFired(JoinTimer()):
                update.join_timed_out()
            case TimerFired(SyncTimer()):
                update.sync_timed_out()
            case _:
                # It was meant for the consumer group that this group was before.
                return Result(event)
        return update.result(event)

    def write_failed(
        self,
        context: DecisionContext,
        group: ClassicGroup,
        result: Result,
        error: ErrorCode,
        *,
        applied: bool,
    ) -> Result:
        """Starts a rebalance if the result should have stored the assignment of the leader.

        It needs no record: the group has members, and none of them has joined yet.
        """
        event = result.event
        if not (
            isinstance(event, Requested)
            and isinstance(event.request, SyncGroupRequest)
            and result.records
            and group.generation == event.request.generation_id
            and group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE)
        ):
            return Result()
        update = member_requests.update_of(context, group)
        update.propagate_assignment(error)
        update.prepare_rebalance()
        return Result(
            state_updates=(update.group,), responses=update.responses, timers=update.timers
        )

    # --- administration

    def protocol_type(self, group: ClassicGroup) -> str:
        return group.protocol_type or ""

    # --- offsets

    def check_commit(self, group: ClassicGroup, commit: CommitRequest) -> ErrorCode:
        if error := group.validate_member(commit.member_id, commit.instance_id):
            return error
        if commit.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is ClassicGroupState.COMPLETING_REBALANCE and not commit.is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def committed(self, group: ClassicGroup, member_id: str, now: int) -> Timers:
        # A commit shows that the member is alive, as a heartbeat does.
        if group.is_empty:
            return ()
        return (member_requests.restart_session(group, group.members[member_id], now),)

    def check_delete_offsets(self, group: ClassicGroup) -> ErrorCode:
        if not group.is_empty and not group.uses_consumer_protocol:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def retention_start(self, group: ClassicGroup) -> Callable[[OffsetCommitValue], int] | None:
        if group.protocol_type is None:
            return commit_time
        if group.is_empty:
            empty_since = group.state_timestamp
            return commit_time if empty_since == -1 else lambda value: empty_since
        is_stable = group.uses_consumer_protocol and group.state is ClassicGroupState.STABLE
        return commit_time if is_stable and group.subscribed_topics is not None else None
