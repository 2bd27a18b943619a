"""The coordinator of the groups of one partition of `__consumer_offsets`, as a pure state machine.

Start here. Each partition of `__consumer_offsets` holds the groups whose ids hash to it, with their
offsets. The broker that leads the partition coordinates them: it has a `GroupShard`, which is this
state machine, and a host (`penstock.broker.coordinator`), which does everything that is not pure.

    request ─► handle(event, now) ─► Result ─► host appends the records ─► apply(change) ─►
    responses

`handle` decides and changes nothing; only `apply` changes state. So the same code serves requests,
loads a partition after a change of leadership, and runs in the simulation. A host does this:

**Load.** It reads the partition from start to end and passes each record through
`decode_record(key, value, reader)`. A `Skipped` record is logged, any other goes to `apply`. Then
`start(now)` returns the first result. Until then requests get
`error_response(…, COORDINATOR_LOAD_IN_PROGRESS)`, and `error_response(…, NOT_COORDINATOR)` on a
broker that does not lead the partition.

**Events.** Requests, timers that are due, changes of topics and resolved patterns go to
`handle(event, now)`, one at a time. The host processes each result before the next event:

1. It appends the `records` to the partition, in one batch if `atomic` is set. If that fails, it
   replaces the result by `write_failed(result, error, now, applied=False)`.
2. It passes each of `changes` to `apply`.
3. It sets and cancels the `timers`. A timer that is due comes back as `TimerFired`, once, and only
   if it was neither set again nor cancelled in between (`penstock.coordinator.timers`).
4. It sends the `responses` once everything that has been appended so far is committed, that is when
   the high watermark reaches the current log end offset. This includes results without records:
   they may depend on records that are not committed yet. If that takes longer than
   `offsets.commit.timeout.ms`, it drops the responses and processes
   `write_failed(result, REQUEST_TIMED_OUT, now, applied=True)` instead.
5. It resolves each of `regexes` in a worker thread, with the rights of the session in the effect.
   `RegexResolved` returns the topics, or that the search failed, exactly once.

A result of `write_failed` has no records, and its responses are sent at once.

**Topics.** `topics` shows the cluster as it is now. When topics were created, extended or
deleted, every shard gets one `TopicsChanged` after `topics` shows the change. It marks the groups
that read them, which get a new assignment with their members' next heartbeats.
`PartitionsDeleted` deletes committed offsets.

**Patterns.** The host checks that a SubscribedTopicRegex is valid, and responds with
INVALID_REGULAR_EXPRESSION itself, before the request becomes an event.

**Responses.** Every request gets exactly one response, by its number. That of a JoinGroup or
SyncGroup may be part of the result of a later event.

**Unload.** When the broker loses leadership, the host sends the responses that `unload()` returns,
responds to requests that wait for a commit with `error_response(…, NOT_COORDINATOR)`, cancels the
timers and drops the shard.

`apply` rebuilds the state from records alone. Which requests wait and which members are about to
join is in no record and is lost with the coordinator: these clients see an error and join again. A
consumer group (KIP-848) is stored completely, so its members notice nothing.

The types of groups are in packages of their own (`classic`, `consumer`), and reach the shard
through the registry in `group_types` only.
"""

from penstock.coordinator.group import admin
from penstock.coordinator.group.classic.model import ClassicGroup
from penstock.coordinator.group.config import WRITE_RETRY_MS, GroupConfig
from penstock.coordinator.group.events import (
    Change,
    Event,
    ExpiryTimer,
    PartitionsDeleted,
    PendingOffset,
    RegexResolved,
    Requested,
    Result,
    Timer,
    TopicsChanged,
    TransactionalProducer,
    TransactionEnded,
    respond,
)
from penstock.coordinator.group.group import Group, StateUpdate
from penstock.coordinator.group.group_type import DecisionContext, DescribeRequest
from penstock.coordinator.group.group_types import (
    DESCRIBE_REQUESTS,
    ENTRY_REQUESTS,
    TYPE_OF_RECORD,
    type_of,
)
from penstock.coordinator.group.offsets.commit import Commit, TransactionalCommit
from penstock.coordinator.group.offsets.delete import delete_offsets, expire_offsets
from penstock.coordinator.group.offsets.fetch import fetch
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.coordinator.group.offsets.store import Offsets
from penstock.coordinator.group.record import Record
from penstock.coordinator.group.responses import error_to, replace_by_error
from penstock.coordinator.group.topics import Topics
from penstock.coordinator.machine import CancelTimer, Response, SetTimer, TimerFired
from penstock.coordinator.write_errors import client_error
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


class GroupShard:
    """The groups and offsets of one partition. `config` may be replaced at any time."""

    def __init__(self, config: GroupConfig, topics: Topics) -> None:
        self.config = config
        self.topics = topics
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    # --- state

    def apply(self, change: Change) -> None:
        """Applies a record of the partition, or a change that no record holds."""
        if isinstance(change, OffsetRecord):
            group_id = change.key.group
            if group_id not in self.groups and change.value is not None:
                self.groups[group_id] = ClassicGroup(group_id)
            self.offsets.apply(change.key, change.value)
        elif isinstance(change, PendingOffset):
            self._apply_pending(change.producer_id, change.record)
        elif isinstance(change, TransactionEnded):
            self.offsets.end_transaction(change.producer_id, commit=change.commit)
        elif isinstance(change, Record):
            TYPE_OF_RECORD[type(change)].replay(self.groups, change)
        else:
            change.apply_to(self.groups)

    def _apply_pending(self, producer_id: int, record: OffsetRecord) -> None:
        if record.value is None:
            self.apply(record)
            return
        self.groups.setdefault(record.key.group, ClassicGroup(record.key.group))
        self.offsets.pending.add(producer_id, record.key, record.value)

    def on_damage(self) -> None:
        """Does nothing: consumers continue from an older offset, and members join again."""

    def start(self, now: int) -> Result:
        """Starts sessions and the search for expired offsets, once all records are applied."""
        timers: list[SetTimer[Timer] | CancelTimer[Timer]] = [
            SetTimer(ExpiryTimer(), now + self.config.offsets_retention_check_interval_ms)
        ]
        updates: list[StateUpdate] = []
        context = self._context(now)
        for group in self.groups.values():
            started = type_of(group).start(context, group)
            updates.extend(started.state_updates)
            timers.extend(started.timers)
        return Result(state_updates=updates, timers=timers)

    def unload(self) -> list[Response]:
        """Returns error responses to all requests that wait inside groups."""
        return [
            response
            for group in self.groups.values()
            for response in type_of(group).unload(group, ErrorCode.NOT_COORDINATOR)
        ]

    def _context(self, now: int) -> DecisionContext:
        return DecisionContext(self.groups, now, self.config, self.topics)

    # --- decisions

    def handle(self, event: Event, now: int) -> Result:
        match event:
            case Requested():
                result = self._handle_request(event, now)
                if isinstance(result, ErrorCode):
                    return Result(event, responses=(error_to(event, result),))
                return result
            case TimerFired(timer):
                if isinstance(timer, ExpiryTimer):
                    return self._expire_offsets(event, now)
                return self._handle_in_group(timer.group_id, event, now)
            case RegexResolved(group_id):
                return self._handle_in_group(group_id, event, now)
            case PartitionsDeleted(partitions):
                records = list(self.offsets.tombstones_of(partitions))
                return Result(event, records, atomic=False)
            case TopicsChanged():
                context = self._context(now)
                updates = [
                    update
                    for group in self.groups.values()
                    for update in type_of(group).topics_changed(context, group, event)
                ]
                return Result(event, state_updates=updates)

    def _handle_in_group(
        self, group_id: str, event: TimerFired[Timer] | RegexResolved, now: int
    ) -> Result:
        group = self.groups.get(group_id)
        if group is None:
            return Result(event)
        return type_of(group).handle(self._context(now), group, event)

    def write_failed(self, result: Result, error: ErrorCode, now: int, *, applied: bool) -> Result:
        """Returns what follows when the records of a result are not written or not committed.

        If its changes were not applied, only the client that sent the request gets an error, and a
        timer fires again later. If they were, every client that should have got a response gets an
        error. The type of the group may add to that. The result has no records.
        """
        code = client_error(error)
        event = result.event
        responses: list[Response] = []
        timers: list[SetTimer[Timer] | CancelTimer[Timer]] = []
        if applied:
            responses += [replace_by_error(sent, event, code) for sent in result.responses]
        elif isinstance(event, Requested):
            responses.append(error_to(event, code))
        elif isinstance(event, TimerFired):
            timers.append(SetTimer(event.timer, now + WRITE_RETRY_MS))
        group = self._group_of(event)
        if group is None:
            return Result(responses=responses, timers=timers)
        following = type_of(group).write_failed(
            self._context(now), group, result, code, applied=applied
        )
        return Result(
            state_updates=following.state_updates,
            responses=[*responses, *following.responses],
            timers=[*timers, *following.timers],
        )

    def _group_of(self, event: Event | None) -> Group | None:
        match event:
            case RegexResolved(group_id):
                return self.groups.get(group_id)
            case Requested(request):
                return self.groups.get(getattr(request, "group_id", ""))
            case _:
                return None

    def _handle_request(self, event: Requested, now: int) -> Result | ErrorCode:
        request = event.request
        # First, because heartbeats are the most frequent requests.
        entry_handler = ENTRY_REQUESTS.get(type(request))
        if entry_handler is not None:
            group = self.groups.get(getattr(request, "group_id", ""))
            handler = None if group is None else type_of(group).requests.get(type(request))
            return (handler or entry_handler)(self._context(now), group, event, request)
        match request:
            case OffsetCommitRequest():
                return self._commit_offsets(event, request, now)
            case OffsetFetchRequest():
                return self._fetch_offsets(event, request)
            case TxnOffsetCommitRequest():
                return self._commit_in_transaction(event, request, now)
            case OffsetDeleteRequest():
                return self._delete_offsets(event, request)
            case ListGroupsRequest():
                groups = admin.list_groups(
                    self.groups.values(), request.states_filter, request.types_filter
                )
                return respond(event, ListGroupsResponse(groups=groups))
            case DeleteGroupsRequest():
                records, results = admin.delete_groups(
                    request.groups_names, self.groups, self.offsets
                )
                return respond(event, DeleteGroupsResponse(results=results), records)
            case _:
                describe_request = DESCRIBE_REQUESTS.get(type(request))
                if describe_request is None:
                    raise TypeError(f"{type(request).__name__} is not for a group coordinator")
                return self._describe(event, describe_request, now)

    def _describe(self, event: Requested, kind: DescribeRequest, now: int) -> Result:
        assert kind.describe is not None
        context, version = self._context(now), event.context.version
        results = [
            kind.describe(context, group_id, version) for group_id in kind.group_ids(event.request)
        ]
        return respond(event, kind.response(results))

    # --- offsets

    def _commit_offsets(self, event: Requested, request: OffsetCommitRequest, now: int) -> Result:
        group = self.groups.get(request.group_id)
        commit = Commit(request, event.context, now, self.config)
        response, error = commit.decide(group)
        if group is None or error:
            return respond(event, response, commit.records)
        timers = type_of(group).committed(group, request.member_id, now)
        return respond(event, response, commit.records, timers)

    def _commit_in_transaction(
        self, event: Requested, request: TxnOffsetCommitRequest, now: int
    ) -> Result:
        context = event.context
        commit = TransactionalCommit(request, context, now, self.config)
        response = commit.decide(self.groups.get(request.group_id))
        return Result(
            event,
            commit.records,
            responses=(Response(context.waiter, response),),
            producer=TransactionalProducer(
                request.producer_id, request.producer_epoch, context.guard
            ),
        )

    def _fetch_offsets(self, event: Requested, request: OffsetFetchRequest) -> Result:
        context = event.context
        groups = [
            fetch(
                self.offsets,
                self.groups.get(group.group_id),
                group,
                context.version,
                context.topics,
                require_stable=request.require_stable,
            )
            for group in request.groups
        ]
        return respond(event, OffsetFetchResponse(groups=groups))

    def _delete_offsets(self, event: Requested, request: OffsetDeleteRequest) -> Result | ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if error := type_of(group).check_delete_offsets(group):
            return error
        records, topics = delete_offsets(self.offsets, group, request, event.context.topics)
        return respond(event, OffsetDeleteResponse(topics=topics), records)

    def _expire_offsets(self, event: TimerFired[Timer], now: int) -> Result:
        retention = self.config.offsets_retention_ms
        records: list[Record] = []
        for group in self.groups.values():
            tombstones, none_remain = expire_offsets(self.offsets, group, now, retention)
            records.extend(tombstones)
            if none_remain and group.is_empty:
                records.extend(type_of(group).tombstones(group))
        next_search = now + self.config.offsets_retention_check_interval_ms
        return Result(event, records, timers=[SetTimer(event.timer, next_search)], atomic=False)
