"""The coordinator of the groups of one partition of `__consumer_offsets`, as a pure machine (C3).

`handle` decides and changes nothing; `apply` alone changes state. A host, which leads the
partition, drives a shard so:

Load. Read the partition from its start to its end. For each record: `decode_record(key, value,
seen)`; what is `Skipped` is logged, everything else goes to `apply`. Then deal with `loaded(now)`
as with any other result. Until then answer requests with `refusal(…,
COORDINATOR_LOAD_IN_PROGRESS)`, without leadership with `refusal(…, NOT_COORDINATOR)`.

Events. Requests, timers that are due and deleted partitions go to `handle(event, now)`, one at a
time. Before the next event of this shard, the result is dealt with:

1. `records` are appended to the partition, in one batch where `atomic` is set. If that fails,
   `failed(result, error, now, applied=False)` takes the place of the result.
2. each of `changes` goes to `apply`.
3. `timers` are set and cancelled. A timer that is due comes back as `TimerFired`, once, and only
   if it was neither set again nor cancelled meanwhile: `penstock.coordinator.timers` does that.
4. `replies` leave as soon as everything appended so far is committed, which is when the high
   watermark reaches the log end offset of now. That holds for results without records too: what
   they say may rest on records that are not committed yet. If it takes longer than
   `offsets.commit.timeout.ms`, `failed(result, REQUEST_TIMED_OUT, now, applied=True)` follows, and
   the replies are dropped.

A result of `failed` has no records, and its replies leave at once.

A JoinGroup or SyncGroup may have no reply in its own result; it comes in that of a later event.
Every request is answered exactly once, by its number.

Unload. When leadership is lost, send `unload()`, answer the replies that were held back with
`refusal(…, NOT_COORDINATOR)`, forget the timers and drop the shard.

Committed state is rebuilt by `apply` from the records alone. What no record keeps, who waits and
who is about to join, is lost with the coordinator: members then see an error and join again.
"""

from collections.abc import Sequence

from penstock.coordinator.group import admin, members
from penstock.coordinator.group import offsets as offset
from penstock.coordinator.group.classic import (
    ClassicGroup,
    GroupState,
    Member,
    group_of_value,
    group_value,
)
from penstock.coordinator.group.config import WRITE_RETRY_MS, GroupConfig
from penstock.coordinator.group.events import (
    Event,
    ExpiryTimer,
    JoinTimer,
    PartitionsDeleted,
    Requested,
    Result,
    SessionTimer,
    SyncTimer,
    Timer,
)
from penstock.coordinator.group.offsets import Offsets
from penstock.coordinator.group.rebalance import Turn
from penstock.coordinator.group.records import GroupRecord, OffsetRecord, Record, group_tombstone
from penstock.coordinator.group.replies import error_of_write, refusal
from penstock.coordinator.machine import CancelTimer, Reply, SetTimer, TimerFired
from penstock.core.errors import ErrorCode
from penstock.protocol.fields import Message
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.protocol.stored.classic_group import GroupMetadataKey


class GroupShard:
    """The groups and offsets of one partition. `config` may be replaced at any time."""

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()

    # --- state

    def apply(self, change: Record | ClassicGroup) -> None:
        """Take over a record of the partition, or the live state of a group."""
        if isinstance(change, OffsetRecord):
            group_id = change.key.group
            if group_id not in self.groups and change.value is not None:
                self.groups[group_id] = ClassicGroup(group_id)
            self.offsets.apply(change.key, change.value)
        elif isinstance(change, GroupRecord):
            if change.value is None:
                self.groups.pop(change.key.group, None)
            else:
                self.groups[change.key.group] = group_of_value(change.key, change.value)
        else:
            self.groups[change.group_id] = change

    def loaded(self, now: int) -> Result:
        """All records have been applied: sessions start, and the search for expired offsets."""
        expiry = [SetTimer(ExpiryTimer(), now + self.config.offsets_retention_check_interval_ms)]
        turns = []
        for group in self.groups.values():
            if not group.members:
                continue
            turn = Turn(group.copy(), now, self.config)
            for member in group.members.values():
                turn.expect_heartbeat(member)
            if len(group.members) > self.config.group_max_size:
                turn.prepare_rebalance()
            turns.append(turn)
        return Result(
            groups=[turn.group for turn in turns],
            timers=[*expiry, *(timer for turn in turns for timer in turn.timers)],
        )

    def unload(self) -> list[Reply]:
        """This broker no longer leads the partition: everybody who waits is sent away."""
        error = ErrorCode.NOT_COORDINATOR
        replies: list[Reply] = []
        for group in self.groups.values():
            for member in group.members.values():
                if member.awaiting_join is not None:
                    join = JoinGroupResponse(error_code=error, member_id=member.member_id)
                    replies.append(Reply(member.awaiting_join.token, join))
                if member.awaiting_sync is not None:
                    sync = SyncGroupResponse(error_code=error)
                    replies.append(Reply(member.awaiting_sync.token, sync))
        return replies

    # --- decisions

    def handle(self, event: Event, now: int) -> Result:
        match event:
            case Requested():
                return self._requested(event, now)
            case TimerFired(timer):
                return self._timer_fired(event, timer, now)
            case PartitionsDeleted(partitions):
                records = list(self.offsets.tombstones_of(partitions))
                return Result(event, records, atomic=False)

    def failed(self, result: Result, error: ErrorCode, now: int, *, applied: bool) -> Result:
        """What follows when the records of a result could not be written, or not committed.

        `applied` says whether its changes were. Where they were not, nothing has happened to
        anybody but the one who asked, and a timer comes again. Where they were, everybody who was
        to be answered gets an error. A group whose assignment was to be stored rebalances. The
        result has no records: such a group has members, and none of them has joined yet.
        """
        told = error_of_write(error)
        event = result.event
        if applied:
            replies = [_turned_down(reply, event, told) for reply in result.replies]
        else:
            replies = [_refusal(event, told)] if isinstance(event, Requested) else []
        timers: list[SetTimer[Timer] | CancelTimer[Timer]] = []
        if isinstance(event, TimerFired) and not applied:
            timers.append(SetTimer(event.timer, now + WRITE_RETRY_MS))
        group = self._assigned_in(result)
        if group is None:
            return Result(replies=replies, timers=timers)
        turn = Turn(group.copy(), now, self.config)
        turn.propagate_assignment(told)
        turn.prepare_rebalance()
        return Result(
            groups=(turn.group,),
            replies=[*replies, *turn.replies],
            timers=[*timers, *turn.timers],
        )

    def _assigned_in(self, result: Result) -> ClassicGroup | None:
        """The group whose leader's assignment the result stores, if it is in that generation."""
        event = result.event
        if not (
            isinstance(event, Requested)
            and isinstance(event.request, SyncGroupRequest)
            and result.records
        ):
            return None
        group = self.groups.get(event.request.group_id)
        if group is None or group.generation != event.request.generation_id:
            return None
        live = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        return group if group.state in live else None

    def _requested(self, event: Requested, now: int) -> Result:
        match event.request:
            case HeartbeatRequest() as request:
                return self._heartbeat(event, request, now)
            case OffsetCommitRequest() as request:
                return self._offset_commit(event, request, now)
            case OffsetFetchRequest() as request:
                return self._offset_fetch(event, request)
            case JoinGroupRequest() as request:
                return self._join(event, request, now)
            case SyncGroupRequest() as request:
                return self._sync(event, request, now)
            case LeaveGroupRequest() as request:
                return self._leave(event, request, now)
            case OffsetDeleteRequest() as request:
                return self._offset_delete(event, request)
            case DescribeGroupsRequest() as request:
                version = event.context.version
                groups = [admin.describe(g, self.groups.get(g), version) for g in request.groups]
                return _answer(event, DescribeGroupsResponse(groups=groups))
            case ListGroupsRequest() as request:
                listed = admin.list_groups(
                    self.groups.values(), request.states_filter, request.types_filter
                )
                return _answer(event, ListGroupsResponse(groups=listed))
            case DeleteGroupsRequest() as request:
                records, results = admin.delete_groups(
                    request.groups_names, self.groups, self.offsets
                )
                return _answer(event, DeleteGroupsResponse(results=results), records)
            case other:
                raise TypeError(f"{type(other).__name__} is not for a group coordinator")

    def _timer_fired(self, event: TimerFired[Timer], timer: Timer, now: int) -> Result:
        if isinstance(timer, ExpiryTimer):
            return self._expire_offsets(event, now)
        group = self.groups.get(timer.group_id)
        if group is None:
            return Result(event)
        turn = Turn(group.copy(), now, self.config)
        match timer:
            case SessionTimer():
                members.session_expired(turn, timer.member_id)
            case JoinTimer():
                turn.join_time_is_over()
            case SyncTimer():
                turn.sync_time_is_over()
        return turn.result(event)

    # --- members

    def _join(self, event: Requested, request: JoinGroupRequest, now: int) -> Result:
        error = members.join_refused(request, self.config)
        group = self.groups.get(request.group_id)
        if not error and group is None and request.member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error:
            return _refuse(event, error)
        known = group is not None
        group = ClassicGroup(request.group_id, state_timestamp=now) if group is None else group
        turn = Turn(group.copy(), now, self.config)
        members.Join(turn, request, event.context).decide()
        if not known:
            if not turn.group.members and not turn.group.pending_joins:
                return Result(event, replies=turn.replies)
            key = GroupMetadataKey(request.group_id)
            turn.records.append(GroupRecord(key, group_value(group)))
        return turn.result(event)

    def _sync(self, event: Requested, request: SyncGroupRequest, now: int) -> Result:
        group = self.groups.get(request.group_id)
        if group is None:
            return _refuse(event, _unknown(request.group_id))
        turn = Turn(group.copy(), now, self.config)
        members.sync(turn, request, event.context)
        return turn.result(event)

    def _heartbeat(self, event: Requested, request: HeartbeatRequest, now: int) -> Result:
        group = self.groups.get(request.group_id)
        if group is None:
            return _refuse(event, _unknown(request.group_id))
        error, member = members.heartbeat(group, request)
        timers = [] if member is None else [_session(group, member, now)]
        return _answer(event, HeartbeatResponse(error_code=error), timers=timers)

    def _leave(self, event: Requested, request: LeaveGroupRequest, now: int) -> Result:
        group = self.groups.get(request.group_id)
        if group is None:
            return _refuse(event, _unknown(request.group_id))
        turn = Turn(group.copy(), now, self.config)
        members.leave(turn, request, event.context)
        return turn.result(event)

    # --- offsets

    def _offset_commit(self, event: Requested, request: OffsetCommitRequest, now: int) -> Result:
        group = self.groups.get(request.group_id)
        commit = offset.Commit(request, event.context, now, self.config)
        error = commit.decide(group)
        timers: list[SetTimer[Timer]] = []
        if group is not None and not error and group.state is not GroupState.EMPTY:
            # A commit shows that the member is alive, as a heartbeat does.
            timers.append(_session(group, group.members[request.member_id], now))
        response = OffsetCommitResponse(topics=commit.topics)
        return _answer(event, response, commit.records, timers)

    def _offset_fetch(self, event: Requested, request: OffsetFetchRequest) -> Result:
        context = event.context
        fetched = [
            offset.fetch(
                self.offsets,
                self.groups.get(group.group_id),
                group,
                context.version,
                context.topics,
            )
            for group in request.groups
        ]
        return _answer(event, OffsetFetchResponse(groups=fetched))

    def _offset_delete(self, event: Requested, request: OffsetDeleteRequest) -> Result:
        group = self.groups.get(request.group_id)
        error = offset.may_delete_offsets(group) if request.group_id else ErrorCode.INVALID_GROUP_ID
        if group is None or error:
            return _refuse(event, error)
        records, topics = offset.delete(self.offsets, group, request, event.context.topics)
        return _answer(event, OffsetDeleteResponse(topics=topics), records)

    def _expire_offsets(self, event: TimerFired[Timer], now: int) -> Result:
        retention = self.config.offsets_retention_ms
        records: list[Record] = []
        for group in self.groups.values():
            gone, everything = offset.expired(self.offsets, group, now, retention)
            records.extend(gone)
            if everything and group.state is GroupState.EMPTY:
                records.append(group_tombstone(group.group_id))
        again = SetTimer(event.timer, now + self.config.offsets_retention_check_interval_ms)
        return Result(event, records, timers=[again], atomic=False)


def _unknown(group_id: str) -> ErrorCode:
    """Why a member of a group that is not there is refused."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


def _session(group: ClassicGroup, member: Member, now: int) -> SetTimer[Timer]:
    timer = SessionTimer(group.group_id, member.member_id)
    return SetTimer(timer, now + member.session_timeout_ms)


def _answer(
    event: Requested,
    response: Message,
    records: Sequence[Record] = (),
    timers: Sequence[SetTimer[Timer]] = (),
) -> Result:
    reply = Reply(event.context.waiter, response)
    return Result(event, records, replies=(reply,), timers=timers)


def _refusal(event: Requested, error: ErrorCode) -> Reply:
    response = refusal(event.request, event.context.version, error)
    return Reply(event.context.waiter, response)


def _refuse(event: Requested, error: ErrorCode) -> Result:
    return Result(event, replies=(_refusal(event, error),))


def _turned_down(reply: Reply, event: Event | None, error: ErrorCode) -> Reply:
    """An error in the place of a reply that cannot be given."""
    if isinstance(event, Requested) and reply.waiter == event.context.waiter:
        return _refusal(event, error)
    if isinstance(reply.response, JoinGroupResponse):
        member_id = reply.response.member_id
        return Reply(reply.waiter, JoinGroupResponse(error_code=error, member_id=member_id))
    return Reply(reply.waiter, SyncGroupResponse(error_code=error))
