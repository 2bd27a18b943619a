"""The coordinator of the groups of one partition of `__consumer_offsets`, as a pure machine (C3).

`handle` decides and changes nothing; `apply` alone changes state. A host, which leads the
partition, drives a shard so:

Load. Read the partition from its start to its end. For each record: `decode_record(key, value,
reader)`; what is `Skipped` is logged, everything else goes to `apply`. Then deal with `loaded(now)`
as with any other result. Until then answer requests with `error_response(…,
COORDINATOR_LOAD_IN_PROGRESS)`, without leadership with `error_response(…, NOT_COORDINATOR)`.

Events. Requests, timers that are due, changes of topics and patterns that were resolved go to
`handle(event, now)`, one at a time. Before the next event of this shard, the result is dealt with:

1. `records` are appended to the partition, in one batch where `atomic` is set. If that fails,
   `failed(result, error, now, applied=False)` takes the place of the result.
2. each of `changes` goes to `apply`.
3. `timers` are set and cancelled. A timer that is due comes back as `TimerFired`, once, and only
   if it was neither set again nor cancelled meanwhile: `penstock.coordinator.timers` does that.
4. `responses` leave as soon as everything appended so far is committed, which is when the high
   watermark reaches the log end offset of now. That holds for results without records too: what
   they say may rest on records that are not committed yet. If it takes longer than
   `offsets.commit.timeout.ms`, `failed(result, REQUEST_TIMED_OUT, now, applied=True)` follows, and
   the responses are dropped.
5. each of `regexes` is looked up, away from the event loop, by the rights of the client whose
   request the result answers (`ResolveRegexes`); `RegexResolved` brings what was found, or that
   it failed, exactly once.

A result of `failed` has no records, and its responses leave at once.

Topics. `topics` answers for the cluster as it is. When topics were created or deleted or got
partitions, and `topics` tells so, every shard gets one `TopicsChanged`; it marks groups, which
assign anew with their members' next heartbeats. `PartitionsDeleted` is another matter: offsets.

Patterns. Whether a SubscribedTopicRegex can be compiled is for the host to see: it answers
INVALID_REGULAR_EXPRESSION before the request comes here.

A JoinGroup or SyncGroup may have no reply in its own result; it comes in that of a later event.
Every request is answered exactly once, by its number.

Unload. When leadership is lost, send `unload()`, answer the responses that were held back with
`error_response(…, NOT_COORDINATOR)`, forget the timers and drop the shard.

Committed state is rebuilt by `apply` from the records alone. What no record keeps, who waits and
who is about to join, is lost with the coordinator: members then see an error and join again. A
consumer group (KIP-848) is wholly in its records; its members notice nothing.
"""

from penstock.coordinator.group import admin
from penstock.coordinator.group.classic.model import ClassicGroup, ClassicGroupState, group_of_value
from penstock.coordinator.group.classic.update import ClassicGroupUpdate
from penstock.coordinator.group.config import WRITE_RETRY_MS, GroupConfig
from penstock.coordinator.group.consumer import regexes
from penstock.coordinator.group.consumer.describe import describe_consumer_group
from penstock.coordinator.group.consumer.model import (
    ConsumerGroup,
    ConsumerGroupSoftState,
    MemberState,
)
from penstock.coordinator.group.consumer.records import ConsumerGroupRecord
from penstock.coordinator.group.consumer.replay import replay
from penstock.coordinator.group.consumer.update import ConsumerGroupUpdate
from penstock.coordinator.group.events import (
    Change,
    Event,
    ExpiryTimer,
    Group,
    PartitionsDeleted,
    PendingOffset,
    RegexResolved,
    Requested,
    Result,
    RevocationTimer,
    Timer,
    TopicsChanged,
    TransactionalProducer,
    TransactionEnded,
)
from penstock.coordinator.group.membership import Membership, session
from penstock.coordinator.group.offsets import commit as offset
from penstock.coordinator.group.offsets.commit import Offsets
from penstock.coordinator.group.offsets.txn_commit import TransactionalCommit
from penstock.coordinator.group.records import ClassicGroupRecord, OffsetRecord, Record
from penstock.coordinator.group.responses import answer, refuse, refused
from penstock.coordinator.group.topics import Topics
from penstock.coordinator.machine import CancelTimer, Response, SetTimer, TimerFired
from penstock.coordinator.write_errors import client_error
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.protocol.stored.consumer_group import ConsumerGroupMetadataKey


class GroupShard:
    """The groups and offsets of one partition. `config` may be replaced at any time."""

    def __init__(self, config: GroupConfig, topics: Topics) -> None:
        self.config = config
        self.topics = topics
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    # --- state

    def apply(self, change: Change) -> None:
        """Take over a record of the partition, or the live state of a group."""
        if isinstance(change, OffsetRecord):
            group_id = change.key.group
            if group_id not in self.groups and change.value is not None:
                self.groups[group_id] = ClassicGroup(group_id)
            self.offsets.apply(change.key, change.value)
        elif isinstance(change, PendingOffset):
            self._apply_pending(change.producer_id, change.record)
        elif isinstance(change, TransactionEnded):
            self.offsets.end_transaction(change.producer_id, commit=change.commit)
        elif isinstance(change, ConsumerGroupRecord):
            self._apply_consumer_record(change)
        elif isinstance(change, ClassicGroupRecord):
            if change.value is None:
                self.groups.pop(change.key.group, None)
            else:
                self.groups[change.key.group] = group_of_value(change.key, change.value)
        elif isinstance(change, ClassicGroup):
            self.groups[change.group_id] = change
        else:
            group = self.groups.get(change.group_id)
            if isinstance(group, ConsumerGroup):
                group.take(change)

    def _apply_pending(self, producer_id: int, record: OffsetRecord) -> None:
        if record.value is None:
            self.apply(record)
            return
        self.groups.setdefault(record.key.group, ClassicGroup(record.key.group))
        self.offsets.pending.add(producer_id, record.key, record.value)

    def _apply_consumer_record(self, record: ConsumerGroupRecord) -> None:
        group_id = record.key.group_id
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            # A classic group here is one that an offset before this record made.
            group = self.groups[group_id] = ConsumerGroup(group_id)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del self.groups[group_id]
        else:
            replay(group, record)

    def loaded(self, now: int) -> Result:
        """All records have been applied: sessions start, and the search for expired offsets."""
        timers: list[SetTimer[Timer] | CancelTimer[Timer]] = [
            SetTimer(ExpiryTimer(), now + self.config.offsets_retention_check_interval_ms)
        ]
        groups = []
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                timers.extend(self._start_sessions(group, now))
            elif group.members:
                turn = ClassicGroupUpdate(group.copy(), now, self.config)
                for member in group.members.values():
                    turn.expect_heartbeat(member)
                if len(group.members) > self.config.group_max_size:
                    turn.prepare_rebalance()
                groups.append(turn.group)
                timers.extend(turn.timers)
        return Result(groups=groups, timers=timers)

    def _start_sessions(
        self, group: ConsumerGroup, now: int
    ) -> list[SetTimer[Timer] | CancelTimer[Timer]]:
        turn = ConsumerGroupUpdate(group, now, self.config, self.topics)
        for member in group.members.values():
            turn.expect_heartbeat(member)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                timer = RevocationTimer(group.group_id, member.member_id)
                turn.set_timer(timer, member.rebalance_timeout_ms)
        return turn.timers

    def unload(self) -> list[Response]:
        """This broker no longer leads the partition: everybody who waits is sent away."""
        error = ErrorCode.NOT_COORDINATOR
        responses: list[Response] = []
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                if member.awaiting_join is not None:
                    join = JoinGroupResponse(error_code=error, member_id=member.member_id)
                    responses.append(Response(member.awaiting_join.token, join))
                if member.awaiting_sync is not None:
                    sync = SyncGroupResponse(error_code=error)
                    responses.append(Response(member.awaiting_sync.token, sync))
        return responses

    # --- decisions

    def handle(self, event: Event, now: int) -> Result:
        match event:
            case Requested():
                return self._requested(event, now)
            case TimerFired(timer):
                if isinstance(timer, ExpiryTimer):
                    return self._expire_offsets(event, now)
                return self._membership(now).timer_fired(event, timer)
            case PartitionsDeleted(partitions):
                records = list(self.offsets.tombstones_of(partitions))
                return Result(event, records, atomic=False)
            case TopicsChanged():
                return Result(event, news=self._news_of_topics(event, now))
            case RegexResolved(group_id):
                group = self.groups.get(group_id)
                if not isinstance(group, ConsumerGroup):
                    return Result(event)
                turn = ConsumerGroupUpdate(group, now, self.config, self.topics)
                regexes.resolved(turn, event)
                return turn.result(event)

    def _membership(self, now: int) -> Membership:
        return Membership(self.groups, now, self.config, self.topics)

    def _news_of_topics(self, event: TopicsChanged, now: int) -> list[ConsumerGroupSoftState]:
        news = []
        for group in self.groups.values():
            if not isinstance(group, ConsumerGroup):
                continue
            if any(group.is_subscribed_to(name) for name in event.names):
                news.append(ConsumerGroupSoftState(group.group_id, metadata_checked=False))
            if event.created and group.regexes:
                news.append(ConsumerGroupSoftState(group.group_id, topics_created_ms=now))
        return news

    def failed(self, result: Result, error: ErrorCode, now: int, *, applied: bool) -> Result:
        """What follows when the records of a result could not be written, or not committed.

        `applied` says whether its changes were. Where they were not, nothing has happened to
        anybody but the one who asked, a timer comes again, and patterns are resolved again. Where
        they were, everybody who was to be answered gets an error. A group whose assignment was to
        be stored rebalances. The result has no records: such a group has members, and none of them
        has joined yet.
        """
        told = client_error(error)
        event = result.event
        if applied:
            responses = [_turned_down(response, event, told) for response in result.responses]
        else:
            responses = [refused(event, told)] if isinstance(event, Requested) else []
        timers: list[SetTimer[Timer] | CancelTimer[Timer]] = []
        if isinstance(event, TimerFired) and not applied:
            timers.append(SetTimer(event.timer, now + WRITE_RETRY_MS))
        news = []
        if isinstance(event, RegexResolved) and not applied:
            news.append(ConsumerGroupSoftState(event.group_id, resolving=False))
        group = self._assigned_in(result)
        if group is None:
            return Result(responses=responses, timers=timers, news=news)
        turn = ClassicGroupUpdate(group.copy(), now, self.config)
        turn.propagate_assignment(told)
        turn.prepare_rebalance()
        return Result(
            groups=(turn.group,),
            responses=[*responses, *turn.responses],
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
        if not isinstance(group, ClassicGroup):
            return None
        if group.generation != event.request.generation_id:
            return None
        live = (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE)
        return group if group.state in live else None

    def _requested(self, event: Requested, now: int) -> Result:
        match event.request:
            case ConsumerGroupHeartbeatRequest() as request:
                return self._membership(now).consumer_heartbeat(event, request)
            case HeartbeatRequest() as request:
                return self._membership(now).heartbeat(event, request)
            case OffsetCommitRequest() as request:
                return self._offset_commit(event, request, now)
            case OffsetFetchRequest() as request:
                return self._offset_fetch(event, request)
            case TxnOffsetCommitRequest() as request:
                return self._txn_offset_commit(event, request, now)
            case JoinGroupRequest() as request:
                return self._membership(now).join(event, request)
            case SyncGroupRequest() as request:
                return self._membership(now).sync(event, request)
            case LeaveGroupRequest() as request:
                return self._membership(now).leave(event, request)
            case OffsetDeleteRequest() as request:
                return self._offset_delete(event, request)
            case DescribeGroupsRequest() as request:
                version = event.context.version
                groups = [admin.describe(g, self.groups.get(g), version) for g in request.groups]
                return answer(event, DescribeGroupsResponse(groups=groups))
            case ConsumerGroupDescribeRequest() as request:
                described = [
                    describe_consumer_group(g, self.groups.get(g), self.config, self.topics)
                    for g in request.group_ids
                ]
                return answer(event, ConsumerGroupDescribeResponse(groups=described))
            case ListGroupsRequest() as request:
                listed = admin.list_groups(
                    self.groups.values(), request.states_filter, request.types_filter
                )
                return answer(event, ListGroupsResponse(groups=listed))
            case DeleteGroupsRequest() as request:
                records, results = admin.delete_groups(
                    request.groups_names, self.groups, self.offsets
                )
                return answer(event, DeleteGroupsResponse(results=results), records)
            case other:
                raise TypeError(f"{type(other).__name__} is not for a group coordinator")

    # --- offsets

    def _offset_commit(self, event: Requested, request: OffsetCommitRequest, now: int) -> Result:
        group = self.groups.get(request.group_id)
        commit = offset.Commit(request, event.context, now, self.config)
        error = commit.decide(group)
        timers: list[SetTimer[Timer]] = []
        if isinstance(group, ClassicGroup) and not error and not group.is_empty:
            # A commit shows that the member is alive, as a heartbeat does.
            timers.append(session(group, group.members[request.member_id], now))
        response = OffsetCommitResponse(topics=commit.topics)
        return answer(event, response, commit.records, timers)

    def _txn_offset_commit(
        self, event: Requested, request: TxnOffsetCommitRequest, now: int
    ) -> Result:
        commit = TransactionalCommit(request, event.context, now, self.config)
        commit.decide(self.groups.get(request.group_id))
        return Result(
            event,
            commit.records,
            responses=(Response(event.context.waiter, commit.response),),
            producer=TransactionalProducer(
                request.producer_id, request.producer_epoch, event.context.guard
            ),
        )

    def _offset_fetch(self, event: Requested, request: OffsetFetchRequest) -> Result:
        context = event.context
        fetched = [
            offset.fetch(
                self.offsets,
                self.groups.get(group.group_id),
                group,
                context.version,
                context.topics,
                require_stable=request.require_stable,
            )
            for group in request.groups
        ]
        return answer(event, OffsetFetchResponse(groups=fetched))

    def _offset_delete(self, event: Requested, request: OffsetDeleteRequest) -> Result:
        group = self.groups.get(request.group_id)
        error = offset.may_delete_offsets(group) if request.group_id else ErrorCode.INVALID_GROUP_ID
        if group is None or error:
            return refuse(event, error)
        records, topics = offset.delete(self.offsets, group, request, event.context.topics)
        return answer(event, OffsetDeleteResponse(topics=topics), records)

    def _expire_offsets(self, event: TimerFired[Timer], now: int) -> Result:
        retention = self.config.offsets_retention_ms
        records: list[Record] = []
        for group in self.groups.values():
            gone, everything = offset.expired(self.offsets, group, now, retention)
            records.extend(gone)
            if everything and group.is_empty:
                records.extend(admin.tombstones(group))
        again = SetTimer(event.timer, now + self.config.offsets_retention_check_interval_ms)
        return Result(event, records, timers=[again], atomic=False)


def _turned_down(response: Response, event: Event | None, error: ErrorCode) -> Response:
    """An error in the place of a reply that cannot be given."""
    if isinstance(event, Requested) and response.waiter == event.context.waiter:
        return refused(event, error)
    if isinstance(response.message, JoinGroupResponse):
        member_id = response.message.member_id
        return Response(response.waiter, JoinGroupResponse(error_code=error, member_id=member_id))
    return Response(response.waiter, SyncGroupResponse(error_code=error))
