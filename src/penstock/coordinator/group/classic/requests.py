"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups, and sessions that run out.

The checks come in Kafka's order, because clients depend on which error they see first.
"""

from msgspec.structs import replace

from penstock.coordinator.group.classic.model import (
    ClassicGroup,
    ClassicGroupState,
    Member,
    Protocols,
    Waiter,
)
from penstock.coordinator.group.classic.update import SKIP_ASSIGNMENT_VERSION, ClassicGroupUpdate
from penstock.coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from penstock.coordinator.group.events import Context, SessionTimer
from penstock.coordinator.machine import SetTimer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest
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


# --- JoinGroup


def join_refused(request: JoinGroupRequest, config: GroupConfig) -> ErrorCode:
    """What can be said without looking at the group."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not low <= request.session_timeout_ms <= high:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


class Join:
    """A JoinGroup that meets its group."""

    def __init__(
        self, turn: ClassicGroupUpdate, request: JoinGroupRequest, context: Context
    ) -> None:
        self.turn = turn
        self.group = turn.group
        self.request = request
        self.context = context
        self.waiter = Waiter(context.waiter, context.version)
        named = {protocol.name: protocol.metadata for protocol in request.protocols}
        self.protocols: Protocols = tuple(named.items())
        # Version 0 has one timeout for both.
        self.rebalance_timeout_ms = (
            request.rebalance_timeout_ms if context.version > 0 else request.session_timeout_ms
        )

    def decide(self) -> None:
        member_id = self.request.member_id
        if not self._has_room():
            self.turn.remove(member_id)
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
            self.turn.maybe_complete_join_phase()
        elif not self.group.supports(
            self.request.protocol_type, [name for name, _ in self.protocols]
        ):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif not member_id:
            self._new_member()
        elif member_id in self.group.pending_joins:
            if self.request.group_instance_id is None:
                self._add(member_id)
            else:
                self._refuse(ErrorCode.INVALID_REQUEST, member_id)
        else:
            self._known_member(member_id)

    def _refuse(self, error: ErrorCode, member_id: str) -> None:
        self.turn.respond(self.waiter, JoinGroupResponse(error_code=error, member_id=member_id))

    def _has_room(self) -> bool:
        group, limit = self.group, self.turn.config.group_max_size
        member = group.members.get(self.request.member_id)
        match group.state:
            case ClassicGroupState.EMPTY:
                return True
            case ClassicGroupState.PREPARING_REBALANCE:
                # Those who wait are counted, not the members: the limit may have been lowered,
                # and so the last to join again are the ones left out.
                waits = member is not None and member.awaiting_join is not None
                return waits or group.awaiting_joins < limit
            case _:
                return member is not None or len(group.members) < limit

    def _new_member(self) -> None:
        instance_id = self.request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{self.context.uuid}"
            old = self.group.static_members.get(instance_id)
            if old is None:
                self._add(member_id)
            else:
                self._replace_static(old, member_id)
            return
        member_id = f"{self.context.client_id}-{self.context.uuid}"
        if self.context.version < _MEMBER_ID_REQUIRED_VERSION:
            self._add(member_id)
            return
        self.group.pending_joins.add(member_id)
        timer = SessionTimer(self.group.group_id, member_id)
        self.turn.timers.append(SetTimer(timer, self.turn.now + self.request.session_timeout_ms))
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
        # It does not send heartbeats while its JoinGroup waits, and a client that gave up and
        # came again under another id would stay for ever.
        self.turn.expect_heartbeat(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.turn.rebalance_or_complete_join()

    def _update(self, member: Member) -> Member:
        """Take over what the request says; an older JoinGroup of the member ends here."""
        member = self.turn.respond_to_join(
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

    def _known_member(self, member_id: str) -> None:
        group = self.group
        error = group.validate_member(member_id, self.request.group_instance_id)
        if error:
            self._refuse(error, member_id)
            return
        member = group.members[member_id]
        leads = group.leader == member_id
        unchanged = member.protocols == self.protocols
        match group.state:
            case ClassicGroupState.COMPLETING_REBALANCE if unchanged:
                # It may have missed its answer: give it once more.
                self._answer_current(member, as_leader=leads)
            case ClassicGroupState.STABLE if unchanged and not leads:
                self._answer_current(member, as_leader=False)
            case ClassicGroupState.EMPTY:
                self._refuse(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
            case _:
                self._update(member)
                self.turn.rebalance_or_complete_join()

    def _answer_current(self, member: Member, *, as_leader: bool) -> None:
        version = self.context.version
        self.turn.respond(self.waiter, self.turn.joined(member, version, as_leader=as_leader))

    def _replace_static(self, old_member_id: str, new_member_id: str) -> None:
        """A static member has restarted. Where nothing else changes, nobody else notices."""
        group, turn = self.group, self.turn
        old_leader = group.leader or ""
        member = self._update(turn.replace_static(old_member_id, new_member_id))
        turn.expect_heartbeat(member)
        if group.state is not ClassicGroupState.STABLE:
            if group.state is ClassicGroupState.COMPLETING_REBALANCE:
                # The leader may be assigning to the old id.
                turn.prepare_rebalance()
            else:
                turn.maybe_complete_join_phase()
            return
        if group.select_protocol() != group.protocol_name:
            turn.rebalance_or_complete_join()
            return
        leads = group.leader == new_member_id
        skips = self.context.version >= SKIP_ASSIGNMENT_VERSION
        response = turn.joined(
            member, self.context.version, as_leader=leads and skips, skip_assignment=leads
        )
        if not skips:
            # An older client that saw itself as leader would assign again: it is told the old id.
            response.leader = old_leader
        turn.respond_to_join(member, response)
        turn.store()


# --- SyncGroup


def sync(turn: ClassicGroupUpdate, request: SyncGroupRequest, context: Context) -> None:
    group = turn.group
    waiter = Waiter(context.waiter, context.version)
    error = _sync_refused(group, request)
    if error:
        turn.respond(waiter, SyncGroupResponse(error_code=error))
        return
    member = group.members[request.member_id]
    turn.sync_received(member.member_id)
    if group.state is ClassicGroupState.STABLE:
        turn.respond(waiter, turn.assigned(member))
        return
    member = turn.respond_to_sync(
        member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    )
    group.put(replace(member, awaiting_sync=waiter))
    if group.leader == member.member_id:
        turn.become_stable({a.member_id: a.assignment for a in request.assignments})


def _sync_refused(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
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


def _differs(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known


# --- Heartbeat


def heartbeat(group: ClassicGroup, request: HeartbeatRequest) -> tuple[ErrorCode, Member | None]:
    """What a heartbeat is told, and the member whose session goes on, if it does."""
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error:
        return error, None
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION, None
    member = group.members[request.member_id]
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS, member
    return ErrorCode.NONE, member


# --- LeaveGroup, sessions


def leaving_members(request: LeaveGroupRequest, version: int) -> list[MemberIdentity]:
    """Who leaves; versions below 3 name one member."""
    if version < _BATCH_LEAVE_VERSION:
        return [MemberIdentity(member_id=request.member_id)]
    return request.members


def left(members: list[MemberResponse], version: int) -> LeaveGroupResponse:
    """The answer in the form of the version."""
    if version < _BATCH_LEAVE_VERSION:
        return LeaveGroupResponse(error_code=members[0].error_code)
    return LeaveGroupResponse(members=members)


def leave(turn: ClassicGroupUpdate, request: LeaveGroupRequest, context: Context) -> None:
    results = [
        MemberResponse(who.member_id, who.group_instance_id, _leave_one(turn, who))
        for who in leaving_members(request, context.version)
    ]
    if any(not result.error_code for result in results):
        _go_on(turn)
    turn.respond(Waiter(context.waiter, context.version), left(results, context.version))


def _leave_one(turn: ClassicGroupUpdate, who: MemberIdentity) -> ErrorCode:
    group = turn.group
    member_id = who.member_id
    if not member_id:
        # An administrator removes a static member by its instance id alone.
        known = group.static_members.get(who.group_instance_id or "")
        if who.group_instance_id is None or known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    elif member_id not in group.pending_joins:
        error = group.validate_member(member_id, who.group_instance_id)
        if error:
            return error
    turn.remove(member_id)
    return ErrorCode.NONE


def session_expired(turn: ClassicGroupUpdate, member_id: str) -> None:
    """Nothing was heard of a member, or an id that was handed out was never used."""
    group = turn.group
    member = group.members.get(member_id)
    if member_id in group.pending_joins:
        turn.remove(member_id)
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            turn.complete_join()
    elif member is not None and not member.has_satisfied_heartbeat:
        turn.remove(member_id)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            if group.has_all_members_joined:
                turn.complete_join()
        elif group.state is not ClassicGroupState.EMPTY:
            turn.prepare_rebalance()


def _go_on(turn: ClassicGroupUpdate) -> None:
    """The group goes on without those who left."""
    match turn.group.state:
        case ClassicGroupState.STABLE | ClassicGroupState.COMPLETING_REBALANCE:
            turn.prepare_rebalance()
        case ClassicGroupState.PREPARING_REBALANCE:
            turn.maybe_complete_join_phase()
        case ClassicGroupState.EMPTY:
            pass
