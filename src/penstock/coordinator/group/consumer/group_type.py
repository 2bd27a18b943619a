"""The consumer group (KIP-848) in the registry of group types."""

from collections.abc import Callable, Iterable, Sequence

from penstock.coordinator.group.classic import requests as classic_requests
from penstock.coordinator.group.classic.group_type import waiting_responses
from penstock.coordinator.group.classic.model import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from penstock.coordinator.group.classic.records import group_tombstone
from penstock.coordinator.group.consumer import classic_members, heartbeat
from penstock.coordinator.group.consumer.describe import describe_group
from penstock.coordinator.group.consumer.migration import upgrade
from penstock.coordinator.group.consumer.model import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroup,
    ConsumerGroupSoftState,
    MemberState,
)
from penstock.coordinator.group.consumer.offset_checks import check_commit, check_fetch
from penstock.coordinator.group.consumer.records import (
    CONSUMER_RECORD_TYPES,
    ConsumerGroupRecord,
    group_tombstones,
)
from penstock.coordinator.group.consumer.regexes import store_resolved
from penstock.coordinator.group.consumer.replay import replay
from penstock.coordinator.group.consumer.update import ConsumerGroupUpdate
from penstock.coordinator.group.events import (
    JoinTimer,
    RegexResolved,
    RejoinTimer,
    Requested,
    Result,
    ResyncTimer,
    RevocationTimer,
    SessionTimer,
    SyncTimer,
    Timer,
    TopicsChanged,
    respond,
)
from penstock.coordinator.group.group import Group, StateUpdate
from penstock.coordinator.group.group_type import (
    CommitRequest,
    DecisionContext,
    DescribeRequest,
    GroupType,
    commit_time,
)
from penstock.coordinator.group.record import Record
from penstock.coordinator.machine import CancelTimer, Response, TimerFired
from penstock.coordinator.write_errors import WRITE_ERROR_MESSAGES
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest
from penstock.protocol.stored.consumer_group import ConsumerGroupMetadataKey
from penstock.protocol.stored.offsets import OffsetCommitValue

_LEAVE_EPOCHS = (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH)


def _update_of(context: DecisionContext, group: ConsumerGroup) -> ConsumerGroupUpdate:
    return ConsumerGroupUpdate(group, context.now, context.config, context.topics)


def _respond(update: ConsumerGroupUpdate, event: Requested, message: Message) -> Result:
    update.responses.append(Response(event.context.waiter, message))
    return update.result(event)


# --- ConsumerGroupHeartbeat


def _heartbeat(
    context: DecisionContext,
    group: Group | None,
    event: Requested,
    request: ConsumerGroupHeartbeatRequest,
) -> Result:
    """Decides about a heartbeat; one that joins may create the group, or convert a classic one."""
    try:
        heartbeat.check_request(request, event.context.version, context.config)
        if isinstance(group, ConsumerGroup):
            update = _update_of(context, group)
        else:
            update = _enter_group(context, group, request)
        if request.member_epoch in _LEAVE_EPOCHS:
            response = heartbeat.leave(update, request)
        else:
            response = heartbeat.heartbeat(update, request, event.context)
    except KafkaError as error:
        return respond(
            event,
            ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message),
        )
    return _respond(update, event, response)


def _enter_group(
    context: DecisionContext, group: Group | None, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupUpdate:
    group_id = request.group_id
    if request.member_epoch != 0 or not (group is None or isinstance(group, ClassicGroup)):
        reason = "not found" if group is None else "is not a consumer group"
        message = f"Group {group_id} {reason}: join it with member epoch 0."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    if group is None:
        return _update_of(context, ConsumerGroup(group_id))
    records: list[Record] = [group_tombstone(group_id)]
    if group.is_empty:
        update = _update_of(context, ConsumerGroup(group_id))
    else:
        upgrade_records, consumer_group = upgrade(group, context.config, context.topics)
        records.extend(upgrade_records)
        update = _update_of(context, consumer_group)
        _upgrade_members(update, group)
    update.records.extend(records)
    return update


def _upgrade_members(update: ConsumerGroupUpdate, group: ClassicGroup) -> None:
    """Has waiting members join again, now in the consumer group, and restarts all sessions."""
    update.responses.extend(waiting_responses(group, ErrorCode.REBALANCE_IN_PROGRESS))
    for member in group.members.values():
        update.timers.append(classic_requests.restart_session(group, member, update.now))
    update.timers.append(CancelTimer(JoinTimer(group.group_id)))
    update.timers.append(CancelTimer(SyncTimer(group.group_id)))


# --- members of the classic protocol


def _join(
    context: DecisionContext, group: ConsumerGroup, event: Requested, request: JoinGroupRequest
) -> Result | ErrorCode:
    if group.is_empty:
        tombstones = list(group_tombstones(group))
        return classic_requests.join_new_group(context, event, request, tombstones)
    if error := classic_requests.check_join(request, context.config):
        return error
    update = _update_of(context, group)
    try:
        response = classic_members.join(update, request, event.context)
    except KafkaError as refused:
        return refused.code
    return _respond(update, event, response)


def _sync(
    context: DecisionContext, group: ConsumerGroup, event: Requested, request: SyncGroupRequest
) -> Result | ErrorCode:
    update = _update_of(context, group)
    try:
        return _respond(update, event, classic_members.sync(update, request))
    except KafkaError as error:
        return error.code


def _classic_heartbeat(
    context: DecisionContext, group: ConsumerGroup, event: Requested, request: HeartbeatRequest
) -> Result | ErrorCode:
    update = _update_of(context, group)
    try:
        code = classic_members.heartbeat(update, request)
    except KafkaError as error:
        return error.code
    return _respond(update, event, HeartbeatResponse(error_code=code))


def _leave(
    context: DecisionContext, group: ConsumerGroup, event: Requested, request: LeaveGroupRequest
) -> Result:
    version = event.context.version
    update = _update_of(context, group)
    leaving = classic_requests.leaving_members(request, version)
    members = classic_members.leave(update, leaving)
    return _respond(update, event, classic_requests.leave_response(members, version))


def _describe_error(
    request: ConsumerGroupDescribeRequest, version: int, error: ErrorCode
) -> Message:
    message = WRITE_ERROR_MESSAGES.get(error)
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeDescribedGroup(error, message, group_id)
            for group_id in request.group_ids
        ]
    )


class ConsumerGroupType(GroupType[ConsumerGroup]):
    """Groups of the protocol of KIP-848."""

    name = "consumer"
    group_class = ConsumerGroup
    record_class = ConsumerGroupRecord
    record_types = CONSUMER_RECORD_TYPES
    requests = {
        ConsumerGroupHeartbeatRequest: _heartbeat,
        JoinGroupRequest: _join,
        SyncGroupRequest: _sync,
        HeartbeatRequest: _classic_heartbeat,
        LeaveGroupRequest: _leave,
    }
    entry_requests = {ConsumerGroupHeartbeatRequest: _heartbeat}
    describe_requests = {
        ConsumerGroupDescribeRequest: DescribeRequest(
            group_ids=lambda request: request.group_ids,
            part=lambda request, group_ids: ConsumerGroupDescribeRequest(
                group_ids, request.include_authorized_operations
            ),
            results=lambda response: response.groups,
            response=lambda groups: ConsumerGroupDescribeResponse(groups=groups),
            describe=describe_group,
        )
    }
    error_responses = {
        ConsumerGroupHeartbeatRequest: lambda request, version, error: (
            ConsumerGroupHeartbeatResponse(
                error_code=error, error_message=WRITE_ERROR_MESSAGES.get(error)
            )
        ),
        ConsumerGroupDescribeRequest: _describe_error,
    }

    def replay(self, groups: dict[str, Group], record: Record) -> None:
        assert isinstance(record, ConsumerGroupRecord)
        group_id = record.key.group_id
        group = groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            # A classic group here was created by an offset before this record.
            group = groups[group_id] = ConsumerGroup(group_id)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del groups[group_id]
        else:
            replay(group, record)

    def tombstones(self, group: ConsumerGroup) -> Iterable[Record]:
        return group_tombstones(group)

    # --- lifecycle

    def start(self, context: DecisionContext, group: ConsumerGroup) -> Result:
        update = _update_of(context, group)
        for member in group.members.values():
            update.expect_heartbeat(member)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                timer = RevocationTimer(group.group_id, member.member_id)
                update.set_timer(timer, member.rebalance_timeout_ms)
        return Result(timers=update.timers)

    def handle(
        self,
        context: DecisionContext,
        group: ConsumerGroup,
        event: TimerFired[Timer] | RegexResolved,
    ) -> Result:
        update = _update_of(context, group)
        match event:
            case RegexResolved():
                store_resolved(update, event)
            case TimerFired(RevocationTimer(_, member_id)):
                member = group.members.get(member_id)
                if (
                    member is None
                    or member.state is not MemberState.UNREVOKED_PARTITIONS
                    or member.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH
                ):
                    return Result(event)
                update.fence([member])
            case TimerFired(SessionTimer() | RejoinTimer() | ResyncTimer() as timer):
                member = group.members.get(timer.member_id)
                if member is None:
                    return Result(event)
                update.fence([member])
            case _:
                # It was meant for the classic group that this group was before.
                return Result(event)
        return update.result(event)

    def topics_changed(
        self, context: DecisionContext, group: ConsumerGroup, event: TopicsChanged
    ) -> Sequence[StateUpdate]:
        updates = []
        if any(group.is_subscribed_to(name) for name in event.names):
            updates.append(ConsumerGroupSoftState(group.group_id, metadata_checked=False))
        if event.created and group.regexes:
            updates.append(ConsumerGroupSoftState(group.group_id, topics_created_ms=context.now))
        return updates

    def write_failed(
        self,
        context: DecisionContext,
        group: ConsumerGroup,
        result: Result,
        error: ErrorCode,
        *,
        applied: bool,
    ) -> Result:
        """Has patterns resolved again if their topics could not be stored."""
        if applied or not isinstance(result.event, RegexResolved):
            return Result()
        return Result(state_updates=(ConsumerGroupSoftState(group.group_id, resolving=False),))

    # --- administration

    def protocol_type(self, group: ConsumerGroup) -> str:
        return CONSUMER_PROTOCOL_TYPE

    # --- offsets

    def check_commit(self, group: ConsumerGroup, commit: CommitRequest) -> ErrorCode:
        return check_commit(group, commit)

    def check_fetch(
        self, group: ConsumerGroup, member_id: str | None, member_epoch: int
    ) -> ErrorCode:
        return check_fetch(group, member_id, member_epoch)

    def retention_start(self, group: ConsumerGroup) -> Callable[[OffsetCommitValue], int] | None:
        return commit_time
