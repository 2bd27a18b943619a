"""The membership machine of the consumer protocol (KIP-848): heartbeats, epochs (C5).

The coordinator assigns; the response to every heartbeat may have a new target assignment. The
member revokes the partitions that are not in it, acknowledges that with a heartbeat, and adds the
new ones. The coordinator assigns a partition to another member only after that.
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
    ReportError,
    ResolveTopics,
    TopicMatcher,
)
from penstock.client.consumer.group.explain import coordinator_error, not_a_member_message
from penstock.client.consumer.group.member import COORDINATOR_MOVED, NO_PARTITIONS, Member
from penstock.client.errors import CommitFailedError, error_code_of
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
"""A static member leaves temporarily: its partitions are kept for it."""
_FENCED_ERRORS = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)

ByTopic = Mapping[UUID, frozenset[int]]


class State(Enum):
    """The state of the membership."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    """The target differs from the current assignment."""
    ACKNOWLEDGING = "acknowledging"
    """Reconciled, but not acknowledged to the coordinator yet."""
    STABLE = "stable"
    FENCED = "fenced"
    """Removed by the coordinator; it joins again once its partitions are released."""
    STALE = "stale"
    """Left because poll was not called in time; the next poll joins again."""
    FATAL = "fatal"


_IN_GROUP = (State.JOINING, State.RECONCILING, State.ACKNOWLEDGING, State.STABLE)


class LocalAssignment(NamedTuple):
    """An assignment with a local epoch: equal partitions received later are a new one."""

    epoch: int
    partitions: ByTopic


class SentFields(NamedTuple):
    """The values of the last heartbeat, which need not be sent again."""

    topics: frozenset[str] | None = None
    regex: str | None = None
    assignment: LocalAssignment | None = None
    constants: bool = False
    """Whether the rebalance timeout and the assignor were sent."""


_NOTHING_SENT = SentFields()


class ConsumerMember(Member):
    """A member of a group with the consumer protocol. The client chooses `member_id`."""

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
        """Whether a heartbeat with owned partitions is, or may be, under way. The coordinator
        considers others revoked, so that no partition may be added until its response."""
        self._names: Mapping[UUID, str] = {}
        self._assigned_names: dict[UUID, str] = {}
        """The names of assigned topics: metadata may lose one before it is revoked."""
        self._heartbeat: int | None = None
        self._retry_at = 0
        self._refresh_at = 0

    # --- state

    @property
    def is_member(self) -> bool:
        return self.epoch > 0 and self.state in _IN_GROUP

    @property
    def is_stable(self) -> bool:
        return self.state is State.STABLE and self._event is None

    def identity(self) -> Identity:
        if not self.is_member:
            raise CommitFailedError(not_a_member_message(self._settings))
        return self.metadata_identity()

    def metadata_identity(self) -> Identity:
        epoch = self.epoch if self.is_member else -1
        return Identity(epoch, self.member_id, self._settings.group_instance_id)

    # --- events

    def subscribe(
        self, topics: frozenset[str], now: int, matches: TopicMatcher | None = None
    ) -> None:
        self._topics, self._regex = topics, None
        self._handle_subscription(now)

    def subscribe_regex(self, regex: str, now: int) -> None:
        self._topics, self._regex = frozenset(), regex
        self._handle_subscription(now)

    def _handle_subscription(self, now: int) -> None:
        self._is_subscribed = True
        if self.is_member and (self._topics, self._regex) != (self._sent.topics, self._sent.regex):
            self._timers.heartbeat_at = now
        self._advance(now)

    def polled(self, at: int, now: int) -> None:
        self._timers.polled(at)
        if self._is_subscribed and self.state in (State.UNSUBSCRIBED, State.STALE):
            if self.state is State.STALE and self._event is not None:
                # It joins once the listener has been called with the lost partitions.
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
        target = self._target.partitions if self._target is not None else {}
        self._assigned_names.update(
            (topic_id, name) for topic_id, name in names.items() if topic_id in target
        )
        self._advance(now)

    def tick(self, now: int) -> None:
        if self.state in _IN_GROUP and now >= self._timers.poll_deadline:
            self._leave_after_poll_timeout()
        self._advance(now)

    def wake_at(self) -> int | None:
        if self.state not in _IN_GROUP:
            return None
        deadlines = [self._timers.poll_deadline]
        if self._heartbeat is None:
            deadlines.append(self._heartbeat_at())
        if self.state is State.RECONCILING and self._event is None and not self._in_doubt:
            deadlines.append(max(self._refresh_at, self._retry_at))
        return min(deadlines)

    def prepare_leave(self) -> RebalanceEvent | None:
        if not self.owned:
            return None
        kind = RebalanceKind.REVOKED if self.is_member else RebalanceKind.LOST
        return RebalanceEvent(kind, self.owned)

    def leave(self, reason: str, now: int) -> None:
        if self.state in _IN_GROUP:
            self._send_leave()
        self._event = self._continuation = None
        self._clear_assignment()
        self._is_subscribed = False
        self._topics, self._regex = frozenset(), None
        if self.state is not State.FATAL:
            self.state = State.UNSUBSCRIBED

    # --- steps

    def _advance(self, now: int) -> None:
        if self._event is None and self.state in (State.FENCED, State.STALE, State.FATAL):
            self._release_lost()
        if self._event is None and self.state is State.RECONCILING and now >= self._retry_at:
            self._reconcile(now)
        if self.state in _IN_GROUP and self._heartbeat is None and now >= self._heartbeat_at():
            self._send_heartbeat(now)

    def _heartbeat_at(self) -> int:
        if self.state in (State.JOINING, State.ACKNOWLEDGING):
            return self._retry_at
        return max(self._retry_at, self._timers.heartbeat_at)

    def _clear_assignment(self) -> None:
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

    def _release_lost(self) -> None:
        if self.owned:
            self._call_listener(RebalanceKind.LOST, self.owned, self._finish_loss)
        else:
            self._finish_loss(None, 0)

    def _finish_loss(self, error: Exception | None, now: int) -> None:
        self._clear_assignment()
        if self.state is State.FENCED:
            self._join()

    # --- heartbeats

    def _send_heartbeat(self, now: int) -> None:
        settings = self._settings
        is_joining = self.state is State.JOINING
        sent = _NOTHING_SENT if is_joining else self._sent
        current = self._owned_assignment()
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=settings.group_instance_id,
        )
        if not sent.constants:
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.remote_assignor
        if is_joining:
            request.rack_id = settings.rack_id
        if sent.topics != self._topics:
            request.subscribed_topic_names = sorted(self._topics)
        if sent.regex != self._regex:
            # An empty pattern removes the previous one.
            request.subscribed_topic_regex = self._regex or ""
        if sent.assignment != current:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic, sorted(partitions))
                for topic, partitions in current.partitions.items()
            ]
            self._in_doubt = True
        self._sent = SentFields(self._topics, self._regex, current, constants=True)
        self._heartbeat = self._send(request, ConsumerGroupHeartbeatResponse)
        self._timers.heartbeat_sent(now)
        if self.state is State.ACKNOWLEDGING:
            self.state = State.STABLE if self._is_reconciled() else State.RECONCILING

    def _owned_assignment(self) -> LocalAssignment:
        """Returns the owned partitions with the local epoch of the reconciled assignment."""
        owned: dict[UUID, frozenset[int]] = {}
        for topic_id, name in self._assigned_names.items():
            partitions = frozenset(p.partition for p in self.owned if p.topic == name)
            if partitions:
                owned[topic_id] = partitions
        return LocalAssignment(-1 if self._current is None else self._current.epoch, owned)

    def _send_leave(self) -> None:
        is_static = self._settings.group_instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=self._settings.group_instance_id,
        )
        self._send(request, ConsumerGroupHeartbeatResponse)
        self._heartbeat = None
        self._sent = _NOTHING_SENT
        self.epoch = request.member_epoch

    def _leave_after_poll_timeout(self) -> None:
        """Leaves because poll was not called in time; the next poll joins again."""
        self._send_leave()
        self.state = State.STALE

    def handle_response(self, number: int, response: Message, now: int) -> None:
        if number != self._heartbeat:
            return
        self._heartbeat = None
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        code = error_code_of(response.error_code)
        if code is ErrorCode.NONE:
            self._on_success(response)
        else:
            self._sent = _NOTHING_SENT
            self._on_error(code, response.error_message, now)
        self._advance(now)

    def handle_failure(self, number: int, error: KafkaError, now: int) -> None:
        if number != self._heartbeat:
            return
        self._heartbeat = None
        self._sent = _NOTHING_SENT
        self._retry_at = now + self._settings.retry_backoff_ms
        self._timers.heartbeat_at = self._retry_at
        if (reported := self._error_to_report(error)) is not None:
            self._fail(reported)
        self._advance(now)

    def _on_success(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.heartbeat_interval_ms > 0:
            # The new interval starts at the heartbeat whose response has it.
            self._timers.heartbeat_at += response.heartbeat_interval_ms - self._timers.interval_ms
            self._timers.interval_ms = response.heartbeat_interval_ms
        if self.state not in _IN_GROUP or response.member_epoch < 0:
            return
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self._in_doubt = False
        if response.assignment is not None:
            self._handle_target(response.assignment)

    def _on_error(self, code: ErrorCode, message: str | None, now: int) -> None:
        if code in _FENCED_ERRORS:
            if self.state in _IN_GROUP:
                self.state = State.FENCED
                self.epoch = 0
        elif code in COORDINATOR_MOVED:
            self.actions.append(ForgetCoordinator())
            self._timers.heartbeat_at = now
        elif code.retriable:
            self._retry_at = now + self._settings.retry_backoff_ms
            self._timers.heartbeat_at = self._retry_at
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # It remains a member: the right may be granted later.
            self._retry_at = now + self._settings.retry_backoff_ms
            self.actions.append(
                ReportError(coordinator_error(code, self._settings, message), is_fatal=False)
            )
        else:
            self._fail(coordinator_error(code, self._settings, message))

    def _fail(self, error: KafkaError) -> None:
        self.state = State.FATAL
        self.epoch = 0
        self.actions.append(ReportError(error, is_fatal=True))

    # --- reconciliation

    def _is_reconciled(self) -> bool:
        return self._current == self._target

    def _handle_target(self, assignment: ConsumerGroupHeartbeatAssignment) -> None:
        partitions = {
            topic.topic_id: frozenset(topic.partitions) for topic in assignment.topic_partitions
        }
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
            unresolved = frozenset(target.partitions) - frozenset(resolved)
            self.actions.append(ResolveTopics(unresolved))
        reconciled = LocalAssignment(target.epoch, resolved)
        if self._current is not None and self._current.partitions == resolved:
            if self._current != reconciled:
                self._current = reconciled
                self.state = State.ACKNOWLEDGING
            return
        assigned = frozenset(
            TopicPartition(self._assigned_names[topic_id], partition)
            for topic_id, partitions in resolved.items()
            for partition in partitions
        )
        revoked = self.owned - assigned
        if revoked:
            self._call_listener(
                RebalanceKind.REVOKED,
                revoked,
                lambda error, now: self._finish_revocation(
                    revoked, reconciled, assigned, error, now
                ),
            )
        elif not self._in_doubt:
            self._add_partitions(reconciled, assigned)

    def _finish_revocation(
        self,
        revoked: frozenset[TopicPartition],
        reconciled: LocalAssignment,
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
            self._add_partitions(reconciled, assigned)

    def _add_partitions(
        self, reconciled: LocalAssignment, assigned: frozenset[TopicPartition]
    ) -> None:
        added = assigned - self.owned
        self._set_owned(assigned, added)
        self._assigned_names = {
            topic_id: self._assigned_names[topic_id] for topic_id in reconciled.partitions
        }
        self._call_listener(
            RebalanceKind.ASSIGNED,
            added,
            lambda error, now: self._finish_addition(reconciled, error, now),
        )

    def _finish_addition(
        self, reconciled: LocalAssignment, error: Exception | None, now: int
    ) -> None:
        if self.state is not State.RECONCILING:
            return
        if error is not None:
            self._retry_at = now + self._settings.retry_backoff_ms
        else:
            self._current = reconciled
            self.state = State.ACKNOWLEDGING

    # --- commits

    def handle_commit_error(self, code: int, identity: Identity, now: int) -> KafkaError | None:
        """Retries after a stale epoch: the next heartbeat gets the new one."""
        error = error_code_of(code)
        if error is ErrorCode.STALE_MEMBER_EPOCH and self.is_member:
            return None
        is_current = self.is_member and identity == self.metadata_identity()
        if error is ErrorCode.UNKNOWN_MEMBER_ID and is_current:
            self.state = State.FENCED
            self.epoch = 0
            self._advance(now)
        return CommitFailedError(not_a_member_message(self._settings), error)
