"""One decision about a classic group, and how the group reaches its next generation.

A `ClassicGroupUpdate` changes a copy of the group and collects records, responses and timers. A
step that removes a waiting request from the group also responds to it, so that none is forgotten.
"""

from msgspec.structs import replace

from penstock.coordinator.group.classic.model import (
    ClassicGroup,
    ClassicGroupState,
    Member,
    Waiter,
)
from penstock.coordinator.group.classic.records import group_record
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.events import (
    Event,
    JoinTimer,
    Result,
    SessionTimer,
    SyncTimer,
    Timer,
)
from penstock.coordinator.group.record import Record
from penstock.coordinator.machine import CancelTimer, Response, SetTimer
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.protocol.messages.sync_group import SyncGroupResponse

SKIP_ASSIGNMENT_VERSION = 9
_NULL_PROTOCOL_NAME_VERSION = 7


class ClassicGroupUpdate:
    """A decision about `group`, which must be a copy: it is changed."""

    def __init__(self, group: ClassicGroup, now: int, config: GroupConfig) -> None:
        self.group = group
        self.now = now
        self.config = config
        self.records: list[Record] = []
        self.responses: list[Response] = []
        self.timers: list[SetTimer[Timer] | CancelTimer[Timer]] = []

    def result(self, event: Event | None) -> Result:
        return Result(event, self.records, (self.group,), self.responses, self.timers)

    def store(self) -> None:
        """Adds the record of the group as it is now."""
        self.records.append(group_record(self.group))

    # --- responses

    def respond(self, waiter: Waiter, response: Message) -> None:
        self.responses.append(Response(waiter.token, response))

    def respond_to_join(self, member: Member, response: JoinGroupResponse) -> Member:
        """Responds to the JoinGroup that waits for the member, if any; returns the new member."""
        if member.awaiting_join is None:
            return member
        self.respond(member.awaiting_join, response)
        member = replace(member, awaiting_join=None)
        self.group.put(member)
        return member

    def respond_to_sync(self, member: Member, response: SyncGroupResponse) -> Member:
        """Responds to the SyncGroup that waits for the member, if any; returns the new member."""
        if member.awaiting_sync is None:
            return member
        self.respond(member.awaiting_sync, response)
        member = replace(member, awaiting_sync=None)
        self.group.put(member)
        return member

    def join_response(
        self, member: Member, version: int, *, as_leader: bool, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """Returns the response to a member of the current generation; the leader's lists all
        members."""
        group = self.group
        name = group.protocol_name
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name="" if name is None and version < _NULL_PROTOCOL_NAME_VERSION else name,
            leader=group.leader or "",
            skip_assignment=skip_assignment and version >= SKIP_ASSIGNMENT_VERSION,
            member_id=member.member_id,
            members=[
                JoinGroupResponseMember(
                    listed.member_id, listed.instance_id, listed.metadata(group.protocol_name)
                )
                for listed in group.members.values()
            ]
            if as_leader
            else [],
        )

    def sync_response(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.group.protocol_type,
            protocol_name=self.group.protocol_name,
            assignment=member.assignment,
        )

    # --- members

    def expect_heartbeat(self, member: Member, timeout_ms: int | None = None) -> None:
        """Starts the member's session anew."""
        timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.timers.append(
            SetTimer(SessionTimer(self.group.group_id, member.member_id), self.now + timeout)
        )

    def remove(self, member_id: str) -> None:
        """Removes a member, or an id that has not joined; its waiting requests get an error."""
        member = self.group.members.get(member_id)
        if member is not None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            member = self.respond_to_join(member, JoinGroupResponse(error_code=error))
            self.respond_to_sync(member, SyncGroupResponse(error_code=error))
        self.group.drop(member_id)
        self.timers.append(CancelTimer(SessionTimer(self.group.group_id, member_id)))

    def replace_static(self, old_member_id: str, new_member_id: str) -> Member:
        """Gives a static member a new id; a client that still uses the old one is fenced."""
        old = self.group.members[old_member_id]
        error = ErrorCode.FENCED_INSTANCE_ID
        old = self.respond_to_join(
            old, JoinGroupResponse(member_id=old_member_id, error_code=error)
        )
        old = self.respond_to_sync(old, SyncGroupResponse(error_code=error))
        was_leader = self.group.leader == old_member_id
        self.group.drop(old_member_id)
        new = replace(old, member_id=new_member_id, is_new=False)
        self.group.put(new)
        if was_leader:
            self.group.leader = new_member_id
        self.timers.append(CancelTimer(SessionTimer(self.group.group_id, old_member_id)))
        return new

    # --- the join phase

    def rebalance_or_complete_join(self) -> None:
        if self.group.state is ClassicGroupState.PREPARING_REBALANCE:
            self.maybe_complete_join_phase()
        else:
            self.prepare_rebalance()

    def prepare_rebalance(self) -> None:
        """Has all members join again; the first generation waits for more members."""
        group = self.group
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            for member_id, member in list(group.members.items()):
                group.members[member_id] = replace(member, assignment=b"")
            self.propagate_assignment(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self.timers.append(CancelTimer(SyncTimer(group.group_id)))
        if group.state is ClassicGroupState.EMPTY:
            delay = self.config.group_initial_rebalance_delay_ms
            self._delay_join(delay, max(group.rebalance_timeout_ms - delay, 0))
            self._move_to(ClassicGroupState.PREPARING_REBALANCE)
        else:
            self._move_to(ClassicGroupState.PREPARING_REBALANCE)
            if group.has_all_members_joined:
                self.complete_join()
            else:
                self._set_join_timer(group.rebalance_timeout_ms)

    def maybe_complete_join_phase(self) -> None:
        """Completes the join phase once all members have joined, except in the first generation."""
        group = self.group
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and group.previous_state is not ClassicGroupState.EMPTY
            and group.has_all_members_joined
        ):
            self.complete_join()

    def join_timed_out(self) -> None:
        """Extends the delay of the first generation, or completes the join phase."""
        group = self.group
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        if group.initial_delay is not None and group.new_member_added:
            delay, remaining = group.initial_delay
            if remaining:
                group.new_member_added = False
                longer = min(self.config.group_initial_rebalance_delay_ms, remaining)
                self._delay_join(longer, max(remaining - delay, 0))
                return
        self.complete_join()

    def complete_join(self) -> None:
        """Forms the next generation from the members that joined; static members may join later."""
        group = self.group
        self.timers.append(CancelTimer(JoinTimer(group.group_id)))
        group.initial_delay = None
        group.new_member_added = False
        absent = [m for m in group.members.values() if m.awaiting_join is None]
        for member in absent:
            if member.instance_id is None:
                self.remove(member.member_id)
        if not self._elect_joined_leader() and group.members:
            # Only static members remain and none has joined: wait for them or their sessions.
            self._set_join_timer(group.rebalance_timeout_ms)
            return
        self._next_generation()

    def _elect_joined_leader(self) -> bool:
        group = self.group
        if group.leader is None:
            return False
        if group.members[group.leader].awaiting_join is not None:
            return True
        for member in group.members.values():
            if member.awaiting_join is not None:
                group.leader = member.member_id
                return True
        return False

    def _next_generation(self) -> None:
        group = self.group
        group.generation += 1
        group.pending_syncs.clear()
        group.protocol_name = group.select_protocol() if group.members else None
        group.subscribed_topics = group.compute_subscribed_topics()
        if not group.members:
            self._move_to(ClassicGroupState.EMPTY)
            self.store()
            return
        self._move_to(ClassicGroupState.COMPLETING_REBALANCE)
        for member in list(group.members.values()):
            waiter = member.awaiting_join
            if waiter is not None:
                leads = group.leader == member.member_id
                response = self.join_response(member, waiter.version, as_leader=leads)
                member = self.respond_to_join(member, response)
            group.put(replace(member, is_new=False))
            self.expect_heartbeat(member)
            group.pending_syncs.add(member.member_id)
        self.timers.append(
            SetTimer(SyncTimer(group.group_id), self.now + group.rebalance_timeout_ms)
        )

    def _delay_join(self, delay: int, remaining: int) -> None:
        self.group.initial_delay = (delay, remaining)
        self._set_join_timer(delay)

    def _set_join_timer(self, delay: int) -> None:
        self.timers.append(SetTimer(JoinTimer(self.group.group_id), self.now + delay))

    # --- the sync phase

    def become_stable(self, assignments: dict[str, bytes]) -> None:
        """Stores the leader's assignment and responds to the members that wait for it."""
        group = self.group
        for member_id, member in list(group.members.items()):
            group.members[member_id] = replace(member, assignment=assignments.get(member_id, b""))
        self._move_to(ClassicGroupState.STABLE)
        self.store()
        self.propagate_assignment(ErrorCode.NONE)

    def propagate_assignment(self, error: ErrorCode) -> None:
        for member in list(self.group.members.values()):
            if member.awaiting_sync is not None:
                response = (
                    SyncGroupResponse(error_code=error) if error else self.sync_response(member)
                )
                self.respond_to_sync(member, response)
                # A session that expired while the member waited was ignored: start it anew.
                self.expect_heartbeat(member)

    def sync_received(self, member_id: str) -> None:
        self.group.pending_syncs.discard(member_id)
        if not self.group.pending_syncs:
            self.timers.append(CancelTimer(SyncTimer(self.group.group_id)))

    def sync_timed_out(self) -> None:
        """Removes the members that did not fetch their assignment."""
        group = self.group
        live = (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE)
        if group.state in live and group.pending_syncs:
            for member_id in list(group.pending_syncs):
                self.remove(member_id)
            self.prepare_rebalance()

    def _move_to(self, state: ClassicGroupState) -> None:
        self.group.previous_state = self.group.state
        self.group.state = state
        self.group.state_timestamp = self.now
