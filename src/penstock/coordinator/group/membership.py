"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, ConsumerGroupHeartbeat, and members' timers.

A group is classic, of the new protocol, or not there yet; a request of one protocol may meet a
group of the other. Who comes here is told apart by both.
"""

from collections.abc import Mapping

from penstock.coordinator.group import admin
from penstock.coordinator.group.classic import requests as members
from penstock.coordinator.group.classic.model import ClassicGroup, Member, group_value
from penstock.coordinator.group.classic.update import ClassicGroupUpdate
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.consumer import classic_members, heartbeat
from penstock.coordinator.group.consumer.migration import upgraded
from penstock.coordinator.group.consumer.model import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroup,
    MemberState,
)
from penstock.coordinator.group.consumer.update import ConsumerGroupUpdate
from penstock.coordinator.group.events import (
    Group,
    JoinTimer,
    RejoinTimer,
    Requested,
    Result,
    ResyncTimer,
    RevocationTimer,
    SessionTimer,
    SyncTimer,
    Timer,
)
from penstock.coordinator.group.records import ClassicGroupRecord, Record, group_tombstone
from penstock.coordinator.group.responses import answer, refuse
from penstock.coordinator.group.topics import Topics
from penstock.coordinator.machine import CancelTimer, Response, SetTimer, TimerFired
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.protocol.stored.classic_group import GroupMetadataKey

MemberTimer = SessionTimer | JoinTimer | SyncTimer | RevocationTimer | RejoinTimer | ResyncTimer
_LEAVING = (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH)


class Membership:
    """Decides about members of `groups`, which it does not change."""

    def __init__(
        self, groups: Mapping[str, Group], now: int, config: GroupConfig, topics: Topics
    ) -> None:
        self.groups = groups
        self.now = now
        self.config = config
        self.topics = topics

    def _turn(self, group: ClassicGroup) -> ClassicGroupUpdate:
        return ClassicGroupUpdate(group.copy(), self.now, self.config)

    def _consumer_turn(self, group: ConsumerGroup) -> ConsumerGroupUpdate:
        return ConsumerGroupUpdate(group, self.now, self.config, self.topics)

    # --- requests of the classic protocol

    def join(self, event: Requested, request: JoinGroupRequest) -> Result:
        error = members.join_refused(request, self.config)
        if error:
            return refuse(event, error)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._join_consumer_group(event, request, group)
        if isinstance(group, ClassicGroup):
            turn = self._turn(group)
            members.Join(turn, request, event.context).decide()
            return turn.result(event)
        if request.member_id:
            return refuse(event, ErrorCode.UNKNOWN_MEMBER_ID)
        fresh = ClassicGroup(request.group_id, state_timestamp=self.now)
        turn = self._turn(fresh)
        members.Join(turn, request, event.context).decide()
        if not turn.group.members and not turn.group.pending_joins:
            return Result(event, responses=turn.responses)
        if group is not None:
            turn.records.extend(admin.tombstones(group))
        turn.records.append(
            ClassicGroupRecord(GroupMetadataKey(request.group_id), group_value(fresh))
        )
        return turn.result(event)

    def _join_consumer_group(
        self, event: Requested, request: JoinGroupRequest, group: ConsumerGroup
    ) -> Result:
        turn = self._consumer_turn(group)
        try:
            response = classic_members.join(turn, request, event.context)
        except KafkaError as error:
            return refuse(event, error.code)
        return _answered(turn, event, response)

    def sync(self, event: Requested, request: SyncGroupRequest) -> Result:
        group = self.groups.get(request.group_id)
        if group is None:
            return refuse(event, _unknown(request.group_id))
        if isinstance(group, ClassicGroup):
            turn = self._turn(group)
            members.sync(turn, request, event.context)
            return turn.result(event)
        consumer_turn = self._consumer_turn(group)
        try:
            return _answered(consumer_turn, event, classic_members.sync(consumer_turn, request))
        except KafkaError as error:
            return refuse(event, error.code)

    def heartbeat(self, event: Requested, request: HeartbeatRequest) -> Result:
        group = self.groups.get(request.group_id)
        if group is None:
            return refuse(event, _unknown(request.group_id))
        if isinstance(group, ClassicGroup):
            error, member = members.heartbeat(group, request)
            timers = [] if member is None else [session(group, member, self.now)]
            return answer(event, HeartbeatResponse(error_code=error), timers=timers)
        turn = self._consumer_turn(group)
        try:
            told = classic_members.heartbeat(turn, request)
        except KafkaError as refused:
            return refuse(event, refused.code)
        return _answered(turn, event, HeartbeatResponse(error_code=told))

    def leave(self, event: Requested, request: LeaveGroupRequest) -> Result:
        group = self.groups.get(request.group_id)
        if group is None:
            return refuse(event, _unknown(request.group_id))
        if isinstance(group, ClassicGroup):
            turn = self._turn(group)
            members.leave(turn, request, event.context)
            return turn.result(event)
        version = event.context.version
        consumer_turn = self._consumer_turn(group)
        gone = classic_members.leave(consumer_turn, members.leaving_members(request, version))
        return _answered(consumer_turn, event, members.left(gone, version))

    # --- ConsumerGroupHeartbeat

    def consumer_heartbeat(
        self, event: Requested, request: ConsumerGroupHeartbeatRequest
    ) -> Result:
        try:
            heartbeat.check_request(request, event.context.version, self.config)
            turn = self._joined_turn(request)
            if request.member_epoch in _LEAVING:
                response = heartbeat.leave(turn, request)
            else:
                response = heartbeat.heartbeat(turn, request, event.context)
        except KafkaError as error:
            error_response = ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message
            )
            return answer(event, error_response)
        return _answered(turn, event, response)

    def _joined_turn(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupUpdate:
        """A turn about the group as it is; who joins may make it, or convert a classic one."""
        group_id = request.group_id
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumer_turn(group)
        if request.member_epoch != 0:
            why = "not found" if group is None else "is not a consumer group"
            message = f"Group {group_id} {why}: join it with member epoch 0."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if group is None:
            return self._consumer_turn(ConsumerGroup(group_id))
        records: list[Record] = [group_tombstone(group_id)]
        if group.is_empty:
            turn = self._consumer_turn(ConsumerGroup(group_id))
        else:
            made_of, made = upgraded(group, self.config, self.topics)
            records.extend(made_of)
            turn = self._consumer_turn(made)
            _upgrade_members(turn, group)
        turn.records.extend(records)
        return turn

    # --- timers

    def timer_fired(self, event: TimerFired[Timer], timer: MemberTimer) -> Result:
        group = self.groups.get(timer.group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumer_timer_fired(event, timer, group)
        if group is None or isinstance(timer, RevocationTimer | RejoinTimer | ResyncTimer):
            return Result(event)
        turn = self._turn(group)
        match timer:
            case SessionTimer():
                members.session_expired(turn, timer.member_id)
            case JoinTimer():
                turn.join_time_is_over()
            case SyncTimer():
                turn.sync_time_is_over()
        return turn.result(event)

    def _consumer_timer_fired(
        self, event: TimerFired[Timer], timer: MemberTimer, group: ConsumerGroup
    ) -> Result:
        turn = self._consumer_turn(group)
        if isinstance(timer, JoinTimer | SyncTimer):
            return Result(event)
        member = group.members.get(timer.member_id)
        if member is None:
            return Result(event)
        if isinstance(timer, RevocationTimer) and (
            member.state is not MemberState.UNREVOKED_PARTITIONS
            or member.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH
        ):
            return Result(event)
        turn.fence([member])
        return turn.result(event)


def _upgrade_members(turn: ConsumerGroupUpdate, group: ClassicGroup) -> None:
    """Those who wait join again, now in a consumer group; every session starts anew."""
    error = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        if member.awaiting_join is not None:
            join = JoinGroupResponse(error_code=error, member_id=member.member_id)
            turn.responses.append(Response(member.awaiting_join.token, join))
        if member.awaiting_sync is not None:
            sync = SyncGroupResponse(error_code=error)
            turn.responses.append(Response(member.awaiting_sync.token, sync))
        turn.timers.append(session(group, member, turn.now))
    turn.timers.append(CancelTimer(JoinTimer(group.group_id)))
    turn.timers.append(CancelTimer(SyncTimer(group.group_id)))


def _answered(turn: ConsumerGroupUpdate, event: Requested, response: Message) -> Result:
    turn.responses.append(Response(event.context.waiter, response))
    return turn.result(event)


def _unknown(group_id: str) -> ErrorCode:
    """Why a member of a group that is not there is refused."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


def session(group: ClassicGroup, member: Member, now: int) -> SetTimer[Timer]:
    timer = SessionTimer(group.group_id, member.member_id)
    return SetTimer(timer, now + member.session_timeout_ms)
