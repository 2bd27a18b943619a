"""A member of a consumer group (KIP-848), as a machine: heartbeats, epochs, reconciliation (C5).

The coordinator assigns; every heartbeat may bring a new target. The member gives up what is not in
it, tells so with a heartbeat, and takes what is new; until then nobody else gets it.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from penstock.client.consumer.assignors import TopicRacks
from penstock.client.consumer.group.actions import (
    ForgetCoordinator,
    Identity,
    MemberSettings,
    RebalanceEvent,
    RebalanceKind,
    Report,
    ResolveTopics,
    TopicMatcher,
)
from penstock.client.consumer.group.explain import code_of, explained, not_a_member
from penstock.client.consumer.group.member import NO_PARTITIONS, Member
from penstock.client.errors import CommitFailedError
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member leaves for a while: its partitions wait for it."""
_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_THROWN_OUT = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)

ByTopic = Mapping[UUID, frozenset[int]]


class State(Enum):
    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    """The target differs from what it has."""
    ACKNOWLEDGING = "acknowledging"
    """It has what was to be had; the coordinator does not know yet."""
    STABLE = "stable"
    FENCED = "fenced"
    """Thrown out; it joins again once it has let go of everything."""
    STALE = "stale"
    """Left because of a long silence; the next poll joins again."""
    FATAL = "fatal"


_IN_GROUP = (State.JOINING, State.RECONCILING, State.ACKNOWLEDGING, State.STABLE)


class LocalAssignment(NamedTuple):
    """Numbered, so that one that comes back after another one is a new one."""

    epoch: int
    partitions: ByTopic


class SentFields(NamedTuple):
    """What the coordinator has been told and need not be told again."""

    topics: frozenset[str] | None = None
    regex: str | None = None
    assignment: LocalAssignment | None = None
    constants: bool = False
    """The rebalance timeout and the assignor."""


_NOTHING_SENT = SentFields()


class ConsumerMember(Member):
    """See `GroupMachine` for how it is driven. `member_id` is chosen by the client."""

    def __init__(self, settings: MemberSettings, member_id: str) -> None:
        super().__init__(settings)
        self.state = State.UNSUBSCRIBED
        self.member_id = member_id
        self.epoch = 0
        self._topics: frozenset[str] = frozenset()
        self._regex: str | None = None
        self._is_subscribed = False
        self._target: LocalAssignment | None = None
        self._current: LocalAssignment | None = None
        self._sent = _NOTHING_SENT
        self._in_doubt = False
        """A heartbeat that named partitions is, or may still be, on its way. The coordinator takes
        what it does not name for given up: nothing is taken that it could not have named."""
        self._names: Mapping[UUID, str] = {}
        self._assigned_names: dict[UUID, str] = {}
        """Of topics assigned here: metadata may forget one before it is revoked."""
        self._heartbeat: int | None = None
        self._retry_at = 0
        self._refresh_at = 0

    # --- what is so

    @property
    def is_member(self) -> bool:
        return self.epoch > 0 and self.state in _IN_GROUP

    @property
    def is_settled(self) -> bool:
        return self.state is State.STABLE and self._event is None

    def identity(self) -> Identity:
        if not self.is_member:
            raise CommitFailedError(not_a_member(self._settings))
        return self.metadata_identity()

    def metadata_identity(self) -> Identity:
        epoch = self.epoch if self.is_member else -1
        return Identity(epoch, self.member_id, self._settings.group_instance_id)

    # --- what happens

    def subscribe(
        self, topics: frozenset[str], now: int, matches: TopicMatcher | None = None
    ) -> None:
        self._topics, self._regex = topics, None
        self._subscribed(now)

    def subscribe_regex(self, regex: str, now: int) -> None:
        self._topics, self._regex = frozenset(), regex
        self._subscribed(now)

    def _subscribed(self, now: int) -> None:
        self._is_subscribed = True
        if self.is_member and (self._topics, self._regex) != (self._sent.topics, self._sent.regex):
            self._timers.heartbeat_at = now
        self._advance(now)

    def polled(self, at: int, now: int) -> None:
        self._timers.polled(at)
        if self._is_subscribed and self.state in (State.UNSUBSCRIBED, State.STALE):
            if self.state is State.STALE and self._event is not None:
                # It joins once the listener knows that everything is lost.
                self.state = State.FENCED
            else:
                self._join()
        self._advance(now)

    @property
    def needs_poll(self) -> bool:
        return self._is_subscribed and self.state in (State.UNSUBSCRIBED, State.STALE)

    def metadata_changed(self, topics: TopicRacks, names: Mapping[UUID, str], now: int) -> None:
        self._names = names
        self._advance(now)

    def topics_resolved(self, names: Mapping[UUID, str], now: int) -> None:
        wanted = self._target.partitions if self._target is not None else {}
        self._assigned_names.update((i, name) for i, name in names.items() if i in wanted)
        self._advance(now)

    def topics_fetched(self, number: int, topics: TopicRacks, now: int) -> None:
        """Never asked for: the coordinator assigns."""

    def tick(self, now: int) -> None:
        if self.state in _IN_GROUP and now >= self._timers.poll_ends:
            self._give_up_silent()
        self._advance(now)

    def wake_at(self) -> int | None:
        if self.state not in _IN_GROUP:
            return None
        deadlines = [self._timers.poll_ends]
        if self._heartbeat is None:
            deadlines.append(self._heartbeat_at())
        if self.state is State.RECONCILING and self._event is None and not self._in_doubt:
            deadlines.append(max(self._refresh_at, self._retry_at))
        return min(deadlines)

    def release(self) -> RebalanceEvent | None:
        if not self.owned:
            return None
        kind = RebalanceKind.REVOKED if self.is_member else RebalanceKind.LOST
        return RebalanceEvent(kind, self.owned)

    def leave(self, reason: str, now: int) -> None:
        if self.state in _IN_GROUP:
            self._send_leave()
        self._event = self._then = None
        self._forget_assignment()
        self._is_subscribed = False
        self._topics, self._regex = frozenset(), None
        if self.state is not State.FATAL:
            self.state = State.UNSUBSCRIBED

    # --- going on

    def _advance(self, now: int) -> None:
        if self._event is None and self.state in (State.FENCED, State.STALE, State.FATAL):
            self._let_go_of_lost()
        if self._event is None and self.state is State.RECONCILING and now >= self._retry_at:
            self._reconcile(now)
        if self.state in _IN_GROUP and self._heartbeat is None and now >= self._heartbeat_at():
            self._send_heartbeat(now)

    def _heartbeat_at(self) -> int:
        if self.state in (State.JOINING, State.ACKNOWLEDGING):
            return self._retry_at
        return max(self._retry_at, self._timers.heartbeat_at)

    def _forget_assignment(self) -> None:
        self._set_owned(NO_PARTITIONS)
        self._current = self._target = None
        self._assigned_names = {}

    def _join(self) -> None:
        self.state = State.JOINING
        self.epoch = 0
        self._current = self._target = None
        self._sent = _NOTHING_SENT
        self._in_doubt = False
        self._retry_at = 0

    def _let_go_of_lost(self) -> None:
        if self.owned:
            self._call(RebalanceKind.LOST, self.owned, self._lost)
        else:
            self._lost(None, 0)

    def _lost(self, error: Exception | None, now: int) -> None:
        self._forget_assignment()
        if self.state is State.FENCED:
            self._join()

    # --- heartbeats

    def _send_heartbeat(self, now: int) -> None:
        settings = self._settings
        joining = self.state is State.JOINING
        sent = _NOTHING_SENT if joining else self._sent
        current = self._to_report()
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=settings.group_instance_id,
        )
        if not sent.constants:
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.remote_assignor
        if joining:
            request.rack_id = settings.rack_id
        if sent.topics != self._topics:
            request.subscribed_topic_names = sorted(self._topics)
        if sent.regex != self._regex:
            # An empty one takes back a pattern that was there before.
            request.subscribed_topic_regex = self._regex or ""
        if sent.assignment != current:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic, sorted(partitions))
                for topic, partitions in current.partitions.items()
            ]
            self._in_doubt = True
        self._sent = SentFields(self._topics, self._regex, current, constants=True)
        self._heartbeat = self._send(request, ConsumerGroupHeartbeatResponse)
        self._timers.sent(now)
        if self.state is State.ACKNOWLEDGING:
            self.state = State.STABLE if self._is_reconciled() else State.RECONCILING

    def _to_report(self) -> LocalAssignment:
        """What it owns at this moment, numbered by what it has reconciled."""
        owned: dict[UUID, frozenset[int]] = {}
        for topic_id, name in self._assigned_names.items():
            partitions = frozenset(p.partition for p in self.owned if p.topic == name)
            if partitions:
                owned[topic_id] = partitions
        return LocalAssignment(-1 if self._current is None else self._current.epoch, owned)

    def _send_leave(self) -> None:
        static = self._settings.group_instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH,
            instance_id=self._settings.group_instance_id,
        )
        self._send(request, ConsumerGroupHeartbeatResponse)
        self._heartbeat = None
        self._sent = _NOTHING_SENT
        self.epoch = request.member_epoch

    def _give_up_silent(self) -> None:
        """No poll for too long: others shall have the partitions, until there is one again."""
        self._send_leave()
        self.state = State.STALE

    def answered(self, number: int, response: Message, now: int) -> None:
        if number != self._heartbeat:
            return
        self._heartbeat = None
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        code = code_of(response.error_code)
        if code is ErrorCode.NONE:
            self._on_success(response)
        else:
            self._sent = _NOTHING_SENT
            self._on_error(code, response.error_message, now)
        self._advance(now)

    def failed(self, number: int, error: KafkaError, now: int) -> None:
        if number != self._heartbeat:
            return
        self._heartbeat = None
        self._sent = _NOTHING_SENT
        self._retry_at = now + self._settings.retry_backoff_ms
        self._timers.heartbeat_at = self._retry_at
        if error.code.retriable:
            self.actions.append(ForgetCoordinator())
        elif error.code is ErrorCode.UNSUPPORTED_VERSION:
            self._fail(explained(error.code, self._settings, error.message))
        else:
            self._fail(error)
        self._advance(now)

    def _on_success(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.heartbeat_interval_ms > 0:
            # The new interval counts from the heartbeat that brought it.
            self._timers.heartbeat_at += response.heartbeat_interval_ms - self._timers.interval_ms
            self._timers.interval_ms = response.heartbeat_interval_ms
        if self.state not in _IN_GROUP or response.member_epoch < 0:
            return
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self._in_doubt = False
        if response.assignment is not None:
            self._take_target(response.assignment)

    def _on_error(self, code: ErrorCode, said: str | None, now: int) -> None:
        if code in _THROWN_OUT:
            if self.state in _IN_GROUP:
                self.state = State.FENCED
                self.epoch = 0
        elif code in _MOVED:
            self.actions.append(ForgetCoordinator())
            self._timers.heartbeat_at = now
        elif code.retriable:
            self._retry_at = now + self._settings.retry_backoff_ms
            self._timers.heartbeat_at = self._retry_at
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # It stays what it is: the right may be granted later.
            self._retry_at = now + self._settings.retry_backoff_ms
            self.actions.append(Report(explained(code, self._settings, said), is_fatal=False))
        else:
            self._fail(explained(code, self._settings, said))

    def _fail(self, error: KafkaError) -> None:
        self.state = State.FATAL
        self.epoch = 0
        self.actions.append(Report(error, is_fatal=True))

    # --- reconciliation

    def _is_reconciled(self) -> bool:
        return self._current == self._target

    def _take_target(self, told: ConsumerGroupHeartbeatAssignment) -> None:
        partitions = {each.topic_id: frozenset(each.partitions) for each in told.topic_partitions}
        target = self._target
        if target is None or target.partitions != partitions:
            self._target = LocalAssignment(0 if target is None else target.epoch + 1, partitions)
        if not self._is_reconciled():
            self.state = State.RECONCILING
        elif self.state in (State.RECONCILING, State.JOINING):
            self.state = State.STABLE

    def _reconcile(self, now: int) -> None:
        target = self._target
        if target is None or self._is_reconciled():
            return
        resolved: dict[UUID, frozenset[int]] = {}
        for topic_id, partitions in target.partitions.items():
            name = self._names.get(topic_id) or self._assigned_names.get(topic_id)
            if name is not None:
                self._assigned_names[topic_id] = name
                resolved[topic_id] = partitions
        if len(resolved) < len(target.partitions) and now >= self._refresh_at:
            self._refresh_at = now + self._settings.retry_backoff_ms
            unknown = frozenset(target.partitions) - frozenset(resolved)
            self.actions.append(ResolveTopics(unknown))
        reached = LocalAssignment(target.epoch, resolved)
        if self._current is not None and self._current.partitions == resolved:
            if self._current != reached:
                self._current = reached
                self.state = State.ACKNOWLEDGING
            return
        assigned = frozenset(
            TopicPartition(self._assigned_names[topic_id], partition)
            for topic_id, partitions in resolved.items()
            for partition in partitions
        )
        revoked = self.owned - assigned
        if revoked:
            self._call(
                RebalanceKind.REVOKED,
                revoked,
                lambda error, then: self._revoked(revoked, reached, assigned, error, then),
            )
        elif not self._in_doubt:
            self._take(reached, assigned)

    def _revoked(
        self,
        revoked: frozenset[TopicPartition],
        reached: LocalAssignment,
        assigned: frozenset[TopicPartition],
        error: Exception | None,
        now: int,
    ) -> None:
        if self.state is not State.RECONCILING:
            return
        if error is not None:
            self._retry_at = now + self._settings.retry_backoff_ms
        elif self._in_doubt:
            self._set_owned(self.owned - revoked)
        else:
            self._take(reached, assigned)

    def _take(self, reached: LocalAssignment, assigned: frozenset[TopicPartition]) -> None:
        added = assigned - self.owned
        self._set_owned(assigned, added)
        self._assigned_names = {
            topic_id: self._assigned_names[topic_id] for topic_id in reached.partitions
        }
        self._call(
            RebalanceKind.ASSIGNED, added, lambda error, now: self._taken(reached, error, now)
        )

    def _taken(self, reached: LocalAssignment, error: Exception | None, now: int) -> None:
        if self.state is not State.RECONCILING:
            return
        if error is not None:
            self._retry_at = now + self._settings.retry_backoff_ms
        else:
            self._current = reached
            self.state = State.ACKNOWLEDGING

    # --- commits

    def commit_refused(self, code: int, identity: Identity, now: int) -> KafkaError | None:
        """A stale epoch is worth another try: the next heartbeat brings the new one."""
        error = code_of(code)
        if error is ErrorCode.STALE_MEMBER_EPOCH and self.is_member:
            return None
        is_current = self.is_member and identity == self.metadata_identity()
        if error is ErrorCode.UNKNOWN_MEMBER_ID and is_current:
            self.state = State.FENCED
            self.epoch = 0
            self._advance(now)
        return CommitFailedError(not_a_member(self._settings), error)
