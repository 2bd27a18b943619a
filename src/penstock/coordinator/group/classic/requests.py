"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups, and sessions that expire.

The checks come in Kafka's order, because clients depend on which error they see first.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.coordinator.group.classic.model import (
    ClassicGroup,
    ClassicGroupState,
    Member,
    Protocols,
    Waiter,
)
from penstock.coordinator.group.classic.records import group_record
from penstock.coordinator.group.classic.update import SKIP_ASSIGNMENT_VERSION, ClassicGroupUpdate
from penstock.coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from penstock.coordinator.group.events import (
    Context,
    Requested,
    Result,
    SessionTimer,
    Timer,
    respond,
)
from penstock.coordinator.group.group_type import DecisionContext
from penstock.coordinator.group.record import Record
from penstock.coordinator.machine import SetTimer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_MEMBER_ID_REQUIRED_VERSION = 4
_BATCH_LEAVE_VERSION = 3


def update_of(context: DecisionContext, group: ClassicGroup) -> ClassicGroupUpdate:
    return ClassicGroupUpdate(group.copy(), context.now, context.config)


def restart_session(group: ClassicGroup, member: Member, now: int) -> SetTimer[Timer]:
    timer = SessionTimer(group.group_id, member.member_id)
    return SetTimer(timer, now + member.session_timeout_ms)


def unknown_member(
    context: DecisionContext,
    group: object,
    event: Requested,
    request: SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest,
) -> ErrorCode:
    """Returns the error for a member of a group that does not exist or has another type."""
    return ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID


# --- JoinGroup


def check_join(request: JoinGroupRequest, config: GroupConfig) -> ErrorCode:
    """Checks what does not depend on the group."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not low <= request.session_timeout_ms <= high:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def join(
    context: DecisionContext, group: ClassicGroup, event: Requested, request: JoinGroupRequest
) -> Result | ErrorCode:
    if error := check_join(request, context.config):
        return error
    update = update_of(context, group)
    _Join(update, request, event.context).decide()
    return update.result(event)


def join_new_group(
    context: DecisionContext,
    event: Requested,
    request: JoinGroupRequest,
    tombstones: Sequence[Record] = (),
) -> Result | ErrorCode:
    """Creates a group with its first member; `tombstones` delete an empty group of another type."""
    if error := check_join(request, context.config):
        return error
    if request.member_id:
        return ErrorCode.UNKNOWN_MEMBER_ID
    group = ClassicGroup(request.group_id, state_timestamp=context.now)
    update = update_of(context, group)
    _Join(update, request, event.context).decide()
    if not update.group.members and not update.group.pending_joins:
        return Result(event, responses=update.responses)
    update.records.extend(tombstones)
    update.records.append(group_record(group))
    return update.result(event)


class _Join:
    """A JoinGroup to an existing or new group."""

    def __init__(
        self, update: ClassicGroupUpdate, request: JoinGroupRequest, context: Context
    ) -> None:
        self.update = update
        self.group = update.group
        self.request = request
        self.context = context
        self.waiter = Waiter(context.waiter, context.version)
        metadata_by_name = {protocol.name: protocol.metadata for protocol in request.protocols}
        self.protocols: Protocols = tuple(metadata_by_name.items())
        # Version 0 has one timeout for both.
        self.rebalance_timeout_ms = (
            request.rebalance_timeout_ms if context.version > 0 else request.session_timeout_ms
        )

    def decide(self) -> None:
        member_id = self.request.member_id
        if not self._has_room():
            self.update.remove(member_id)
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
            self.update.maybe_complete_join_phase()
        elif not self.group.supports(
            self.request.protocol_type, [name for name, _ in self.protocols]
        ):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif not member_id:
            self._join_new_member()
        elif member_id in self.group.pending_joins:
            if self.request.group_instance_id is None:
                self._add(member_id)
            else:
                self._refuse(ErrorCode.INVALID_REQUEST, member_id)
        else:
            self._rejoin(member_id)

    def _refuse(self, error: ErrorCode, member_id: str) -> None:
        self.update.respond(self.waiter, JoinGroupResponse(error_code=error, member_id=member_id))

    def _has_room(self) -> bool:
        group, limit = self.group, self.update.config.group_max_size
        member = group.members.get(self.request.member_id)
        match group.state:
            case ClassicGroupState.EMPTY:
                return True
            case ClassicGroupState.PREPARING_REBALANCE:
                # The members that wait are counted, not all members: if the limit was lowered, the
                # last ones to join again are left out.
                waits = member is not None and member.awaiting_join is not None
                return waits or group.awaiting_joins < limit
            case _:
                return member is not None or len(group.members) < limit

    def _join_new_member(self) -> None:
        instance_id = self.request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{self.context.uuid}"
            old_member_id = self.group.static_members.get(instance_id)
            if old_member_id is None:
                self._add(member_id)
            else:
                self._replace_static(old_member_id, member_id)
            return
        member_id = f"{self.context.client_id}-{self.context.uuid}"
        if self.context.version < _MEMBER_ID_REQUIRED_VERSION:
            self._add(member_id)
            return
        self.group.pending_joins.add(member_id)
        timer = SessionTimer(self.group.group_id, member_id)
        deadline = self.update.now + self.request.session_timeout_ms
        self.update.timers.append(SetTimer(timer, deadline))
        self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _add(self, member_id: str) -> None:
        group = self.group
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is ClassicGroupState.EMPTY
        ):
            group.new_member_added = True
        if not group.members:
            group.protocol_type = self.request.protocol_type
        member = Member(
            member_id=member_id,
            instance_id=self.request.group_instance_id,
            client_id=self.context.client_id,
            client_host=self.context.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            protocols=self.protocols,
            is_new=True,
            awaiting_join=self.waiter,
        )
        group.put(member)
        # A member sends no heartbeats while its JoinGroup waits. Without a limit, a client that
        # gave up and joined again under another id would stay a member forever.
        self.update.expect_heartbeat(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.update.rebalance_or_complete_join()

    def _update_member(self, member: Member) -> Member:
        """Applies the request to the member; an older JoinGroup of the member gets an error."""
        member = self.update.respond_to_join(
            member,
            JoinGroupResponse(
                error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id
            ),
        )
        member = replace(
            member,
            protocols=self.protocols,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            awaiting_join=self.waiter,
        )
        self.group.put(member)
        return member

    def _rejoin(self, member_id: str) -> None:
        group = self.group
        error = group.validate_member(member_id, self.request.group_instance_id)
        if error:
            self._refuse(error, member_id)
            return
        member = group.members[member_id]
        is_leader = group.leader == member_id
        unchanged = member.protocols == self.protocols
        match group.state:
            case ClassicGroupState.COMPLETING_REBALANCE if unchanged:
                # It may have missed the response: send it again.
                self._respond_with_generation(member, as_leader=is_leader)
            case ClassicGroupState.STABLE if unchanged and not is_leader:
                self._respond_with_generation(member, as_leader=False)
            case ClassicGroupState.EMPTY:
                self._refuse(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
            case _:
                self._update_member(member)
                self.update.rebalance_or_complete_join()

    def _respond_with_generation(self, member: Member, *, as_leader: bool) -> None:
        response = self.update.join_response(member, self.context.version, as_leader=as_leader)
        self.update.respond(self.waiter, response)

    def _replace_static(self, old_member_id: str, new_member_id: str) -> None:
        """Gives a restarted static member its new id, without a rebalance if nothing changed."""
        group, update = self.group, self.update
        old_leader = group.leader or ""
        member = self._update_member(update.replace_static(old_member_id, new_member_id))
        update.expect_heartbeat(member)
        if group.state is not ClassicGroupState.STABLE:
            if group.state is ClassicGroupState.COMPLETING_REBALANCE:
                # The leader may be assigning partitions to the old id.
                update.prepare_rebalance()
            else:
                update.maybe_complete_join_phase()
            return
        if group.select_protocol() != group.protocol_name:
            update.rebalance_or_complete_join()
            return
        is_leader = group.leader == new_member_id
        can_skip = self.context.version >= SKIP_ASSIGNMENT_VERSION
        response = update.join_response(
            member,
            self.context.version,
            as_leader=is_leader and can_skip,
            skip_assignment=is_leader,
        )
        if not can_skip:
            # An older client that sees itself as the leader would assign again: send the old id.
            response.leader = old_leader
        update.respond_to_join(member, response)
        update.store()


# --- SyncGroup


def sync(
    context: DecisionContext, group: ClassicGroup, event: Requested, request: SyncGroupRequest
) -> Result:
    update = update_of(context, group)
    group = update.group
    waiter = Waiter(event.context.waiter, event.context.version)
    error = _check_sync(group, request)
    if error:
        update.respond(waiter, SyncGroupResponse(error_code=error))
        return update.result(event)
    member = group.members[request.member_id]
    update.sync_received(member.member_id)
    if group.state is ClassicGroupState.STABLE:
        update.respond(waiter, update.sync_response(member))
        return update.result(event)
    member = update.respond_to_sync(
        member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    )
    group.put(replace(member, awaiting_sync=waiter))
    if group.leader == member.member_id:
        update.become_stable({a.member_id: a.assignment for a in request.assignments})
    return update.result(event)


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.state is ClassicGroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(requested: str | None, current: str | None) -> bool:
    return requested is not None and current is not None and requested != current


# --- Heartbeat


def heartbeat(
    context: DecisionContext, group: ClassicGroup, event: Requested, request: HeartbeatRequest
) -> Result | ErrorCode:
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    session = restart_session(group, group.members[request.member_id], context.now)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    return respond(event, HeartbeatResponse(error_code=error), timers=(session,))


# --- LeaveGroup, sessions


def leaving_members(request: LeaveGroupRequest, version: int) -> list[MemberIdentity]:
    """Returns the members that leave; requests below version 3 name one."""
    if version < _BATCH_LEAVE_VERSION:
        return [MemberIdentity(member_id=request.member_id)]
    return request.members


def leave_response(members: list[MemberResponse], version: int) -> LeaveGroupResponse:
    if version < _BATCH_LEAVE_VERSION:
        return LeaveGroupResponse(error_code=members[0].error_code)
    return LeaveGroupResponse(members=members)


def leave(
    context: DecisionContext, group: ClassicGroup, event: Requested, request: LeaveGroupRequest
) -> Result:
    update, version = update_of(context, group), event.context.version
    results = [
        MemberResponse(member.member_id, member.group_instance_id, _remove(update, member))
        for member in leaving_members(request, version)
    ]
    if any(not result.error_code for result in results):
        match update.group.state:
            case ClassicGroupState.STABLE | ClassicGroupState.COMPLETING_REBALANCE:
                update.prepare_rebalance()
            case ClassicGroupState.PREPARING_REBALANCE:
                update.maybe_complete_join_phase()
            case ClassicGroupState.EMPTY:
                pass
    update.respond(Waiter(event.context.waiter, version), leave_response(results, version))
    return update.result(event)


def _remove(update: ClassicGroupUpdate, leaving: MemberIdentity) -> ErrorCode:
    group = update.group
    member_id = leaving.member_id
    if not member_id:
        # An administrator removes a static member by its instance id alone.
        static_id = group.static_members.get(leaving.group_instance_id or "")
        if leaving.group_instance_id is None or static_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = static_id
    elif member_id not in group.pending_joins:
        error = group.validate_member(member_id, leaving.group_instance_id)
        if error:
            return error
    update.remove(member_id)
    return ErrorCode.NONE


def session_expired(update: ClassicGroupUpdate, member_id: str) -> None:
    """Removes a member that sent nothing, or a generated id that was never used."""
    group = update.group
    member = group.members.get(member_id)
    if member_id in group.pending_joins:
        update.remove(member_id)
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            update.complete_join()
    elif member is not None and not member.has_satisfied_heartbeat:
        update.remove(member_id)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            if group.has_all_members_joined:
                update.complete_join()
        elif group.state is not ClassicGroupState.EMPTY:
            update.prepare_rebalance()
