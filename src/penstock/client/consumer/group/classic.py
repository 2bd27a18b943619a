"""The membership machine of the classic protocol: join, sync, heartbeat, leave (C4).

Eager members revoke all partitions before they join; cooperative ones only those that the group
reassigns, and then join again. After any response of the coordinator, the machine either joins
again or reports an error that a poll raises.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from uuid import UUID

from penstock.client.consumer.assignors import (
    Assignor,
    RebalanceProtocol,
    TopicRacks,
    common_protocol,
)
from penstock.client.consumer.assignors.encoding import decode_assignment
from penstock.client.consumer.assignors.model import Assignment
from penstock.client.consumer.group import leader
from penstock.client.consumer.group.actions import (
    FetchTopics,
    ForgetCoordinator,
    Identity,
    MemberSettings,
    RebalanceEvent,
    RebalanceKind,
    ReportError,
    TopicMatcher,
)
from penstock.client.consumer.group.classic_requests import (
    Generation,
    heartbeat_request,
    join_error,
    join_request,
    join_timeout_ms,
    leave_request,
    sync_error,
    sync_request,
)
from penstock.client.consumer.group.explain import (
    coordinator_error,
    not_a_member_message,
    rebalance_error,
)
from penstock.client.consumer.group.member import COORDINATOR_MOVED, NO_PARTITIONS, Member
from penstock.client.errors import CommitFailedError, IllegalStateError, error_code_of
from penstock.core.errors import ErrorCode, KafkaError, ProtocolError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse


class State(Enum):
    """The state of the membership."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    """A JoinGroup is under way."""
    COMPLETING = "completing"
    """Joined; a SyncGroup is under way."""
    STABLE = "stable"


class ClassicMember(Member):
    """A member of a group with the classic protocol."""

    def __init__(self, settings: MemberSettings, assignors: Sequence[Assignor]) -> None:
        super().__init__(settings)
        self._assignors = assignors
        self.protocol = common_protocol(assignors)
        self.state = State.UNJOINED
        self.generation = Generation()
        self._topics: frozenset[str] | None = None
        self._matches: TopicMatcher | None = None
        self._joined_topics: frozenset[str] | None = None
        self._rejoin_needed = True
        self._rejoin_reason = ""
        self._needs_prepare = True
        self._may_join = False
        """Whether poll was called since the subscription, the last failure or the poll timeout."""
        self._is_fatal = False
        self._retry_at = 0
        self._joining: int | None = None
        """The number of the request or metadata update that the rebalance waits for."""
        self._election: JoinGroupResponse | None = None
        self._heartbeat: tuple[int, Generation] | None = None
        """The heartbeat under way: its number and generation."""
        self._leadership = leader.Leadership(with_racks=settings.rack_id is not None)

    # --- state

    @property
    def is_member(self) -> bool:
        return self.state is not State.UNJOINED and bool(self.generation.member_id)

    @property
    def is_stable(self) -> bool:
        return self.state is State.STABLE and self._event is None and not self._must_rejoin()

    def identity(self) -> Identity:
        if self.state is State.STABLE:
            return self.metadata_identity()
        if self.state is State.UNJOINED:
            raise CommitFailedError(not_a_member_message(self._settings))
        raise rebalance_error()

    def metadata_identity(self) -> Identity:
        instance = self._settings.group_instance_id
        return Identity(self.generation.id, self.generation.member_id, instance)

    # --- events

    def subscribe(
        self, topics: frozenset[str], now: int, matches: TopicMatcher | None = None
    ) -> None:
        if self._topics is None:
            self._may_join = False
        self._topics = topics
        self._matches = matches
        self._advance(now)

    def subscribe_regex(self, regex: str, now: int) -> None:
        raise IllegalStateError(
            "a SubscriptionPattern is resolved by the broker, which needs "
            '`group_protocol`="consumer"; with "classic", subscribe to a compiled re.Pattern'
        )

    def polled(self, at: int, now: int) -> None:
        self._timers.polled(at)
        self._may_join = True
        self._advance(now)

    @property
    def needs_poll(self) -> bool:
        return self._topics is not None and not self._may_join

    def metadata_changed(self, topics: TopicRacks, names: Mapping[UUID, str], now: int) -> None:
        self._leadership.update_metadata(topics)
        self._advance(now)

    def tick(self, now: int) -> None:
        if self.state in (State.COMPLETING, State.STABLE):
            if now >= self._timers.session_deadline:
                # No response: the group may have another coordinator.
                self.actions.append(ForgetCoordinator())
                self._heartbeat = None
                self._timers.heartbeat_received(now)
            elif now >= self._timers.poll_deadline:
                self._leave_after_poll_timeout(now)
            elif now >= self._timers.heartbeat_at and self._heartbeat is None:
                self._send_heartbeat(now)
        self._advance(now)

    def wake_at(self) -> int | None:
        deadlines = [self._retry_at] if self._can_rejoin() else []
        if self.state in (State.COMPLETING, State.STABLE):
            deadlines += [self._timers.session_deadline, self._timers.poll_deadline]
            if self._heartbeat is None:
                deadlines.append(self._timers.heartbeat_at)
        return min(deadlines, default=None)

    def prepare_leave(self) -> RebalanceEvent | None:
        if not self.owned:
            return None
        is_lost = self.generation.id < 0 or self.state is not State.STABLE
        return RebalanceEvent(RebalanceKind.LOST if is_lost else RebalanceKind.REVOKED, self.owned)

    def leave(self, reason: str, now: int) -> None:
        self._send_leave(reason)
        self._reset(keep_member_id=False)
        self._event = self._continuation = None
        self._set_owned(NO_PARTITIONS)
        self._topics = self._joined_topics = None
        self._rejoin_reason = ""
        self._leadership.end()

    # --- steps

    def _must_rejoin(self) -> bool:
        """Returns whether to rejoin, also because metadata or the subscription have changed."""
        if not self._rejoin_needed:
            if self._leadership.is_outdated:
                self._request_rejoin("cached metadata has changed")
            elif self._joined_topics is not None and self._joined_topics != self._topics:
                self._request_rejoin("subscription has changed")
        return self._rejoin_needed

    def _can_rejoin(self) -> bool:
        return (
            self._topics is not None
            and self._may_join
            and not self._is_fatal
            and self._event is None
            and self._joining is None
            and self._must_rejoin()
        )

    def _advance(self, now: int) -> None:
        if self._is_fatal and self.owned and self._event is None:
            lost = self.owned
            self._call_listener(RebalanceKind.LOST, lost, lambda error, now: self._release(lost))
        if not self._can_rejoin() or now < self._retry_at:
            return
        if self._needs_prepare:
            self._needs_prepare = False
            self._prepare()
        if self._event is None:
            self._send_join(now)

    def _request_rejoin(self, reason: str) -> None:
        self._rejoin_needed = True
        self._rejoin_reason = reason

    def _reset(self, *, keep_member_id: bool) -> None:
        """Leaves the generation."""
        self.state = State.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id if keep_member_id else "")
        self._joining = self._election = self._heartbeat = None
        self._needs_prepare = True
        self._rejoin_needed = True

    # --- before joining

    def _prepare(self) -> None:
        """Revokes the partitions that must not be kept during a rebalance."""
        topics = self._topics or frozenset()
        if self.generation.id < 0 or not self.generation.member_id:
            kind, released, calls_always = RebalanceKind.LOST, self.owned, False
        elif self.protocol is RebalanceProtocol.EAGER:
            kind, released, calls_always = RebalanceKind.REVOKED, self.owned, True
        else:
            kind, calls_always = RebalanceKind.REVOKED, False
            released = frozenset(p for p in self.owned if p.topic not in topics)
        if released or calls_always:
            self._call_listener(kind, released, lambda error, now: self._release(released))

    def _release(self, released: frozenset[TopicPartition]) -> None:
        self._set_owned(self.owned - released)

    def _send_join(self, now: int) -> None:
        settings = self._settings
        self.state = State.PREPARING
        self._heartbeat = None
        self._joined_topics = topics = self._topics or frozenset()
        request = join_request(
            settings, self.generation, topics, self.owned, self._assignors, self._rejoin_reason
        )
        self._joining = self._send(request, JoinGroupResponse, join_timeout_ms(settings))

    # --- responses

    def handle_response(self, number: int, response: Message, now: int) -> None:
        if self._heartbeat is not None and number == self._heartbeat[0]:
            generation, self._heartbeat = self._heartbeat[1], None
            assert isinstance(response, HeartbeatResponse)
            self._on_heartbeat(error_code_of(response.error_code), generation, now)
        elif number == self._joining:
            self._joining = None
            if isinstance(response, JoinGroupResponse):
                self._on_join(response, now)
            elif isinstance(response, SyncGroupResponse):
                self._on_sync(response, now)
        self._advance(now)

    def handle_failure(self, number: int, error: KafkaError, now: int) -> None:
        is_heartbeat = self._heartbeat is not None and number == self._heartbeat[0]
        if not is_heartbeat and number != self._joining:
            return
        if (reported := self._error_to_report(error)) is not None:
            self._report(reported)
        if is_heartbeat:
            self._heartbeat = None
            self._timers.heartbeat_failed(now)
        else:
            self._joining = self._election = None
            self._retry_rebalance(error.code, now)
        self._advance(now)

    def _retry_rebalance(self, code: ErrorCode, now: int, *, at_once: bool = False) -> None:
        self._request_rejoin(f"rebalance failed due to {code.name}")
        self._retry_at = now if at_once else now + self._settings.retry_backoff_ms

    def _fail_rebalance(self, error: KafkaError, code: ErrorCode, now: int) -> None:
        self._report(error)
        self._retry_rebalance(code, now)

    def _report(self, error: KafkaError, *, is_fatal: bool = False) -> None:
        """Has the next poll raise the error; the poll after that retries, unless it is fatal."""
        self._may_join = False
        self._is_fatal = self._is_fatal or is_fatal
        self.actions.append(ReportError(error, is_fatal))

    def _on_join(self, response: JoinGroupResponse, now: int) -> None:
        code = join_error(response)
        if code is ErrorCode.NONE:
            self._handle_join(response, now)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.generation = Generation(member_id=response.member_id)
            self._request_rejoin(f"need to re-join with the given member-id: {response.member_id}")
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset(keep_member_id=False)
            self._retry_rebalance(code, now, at_once=True)
        else:
            self._handle_rebalance_error(code, now)

    def _handle_join(self, response: JoinGroupResponse, now: int) -> None:
        self.state = State.COMPLETING
        self.generation = Generation(
            response.generation_id, response.member_id, response.protocol_name
        )
        self._timers.reset(now)
        if response.leader != response.member_id:
            self._leadership.end()
            self._send_sync({})
            return
        try:
            topics = self._leadership.begin(response)
        except ProtocolError as error:
            problem = f"a member of the group joined with a malformed subscription: {error}"
            self._fail_rebalance(IllegalStateError(problem), error.code, now)
            return
        self._election = response
        self._request_count += 1
        self._joining = self._request_count
        self.actions.append(FetchTopics(self._request_count, topics))

    def topics_fetched(self, number: int, topics: TopicRacks, now: int) -> None:
        if number != self._joining or self._election is None:
            return
        election, self._election, self._joining = self._election, None, None
        try:
            assignments = self._leadership.assign(election, self._assignors, self.protocol, topics)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's own
            failure = leader.assignor_error(error)
            self._fail_rebalance(failure, failure.code, now)
        else:
            self._send_sync(assignments)

    def _send_sync(self, assignments: Mapping[str, bytes]) -> None:
        request = sync_request(self._settings, self.generation, assignments)
        self._joining = self._send(request, SyncGroupResponse)

    def _on_sync(self, response: SyncGroupResponse, now: int) -> None:
        code = sync_error(response, self.generation)
        if code is ErrorCode.NONE:
            self.state = State.STABLE
            self._rejoin_needed = False
            self._rejoin_reason = ""
            self._handle_assignment(response.assignment, now)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._retry_rebalance(code, now, at_once=True)
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._reset(keep_member_id=code is ErrorCode.ILLEGAL_GENERATION)
            self._retry_rebalance(code, now, at_once=True)
        else:
            self._handle_rebalance_error(code, now)

    def _handle_rebalance_error(self, code: ErrorCode, now: int) -> None:
        """Handles an error of JoinGroup or SyncGroup that does not concern this member."""
        self._retry_rebalance(code, now, at_once=code is ErrorCode.REBALANCE_IN_PROGRESS)
        if code in COORDINATOR_MOVED:
            self.actions.append(ForgetCoordinator())
        elif not code.retriable:
            is_fatal = code is ErrorCode.FENCED_INSTANCE_ID
            self._report(coordinator_error(code, self._settings), is_fatal=is_fatal)

    # --- assignment

    def _handle_assignment(self, data: bytes, now: int) -> None:
        try:
            assignment = decode_assignment(data) if data else Assignment(())
        except ProtocolError as error:
            problem = f"the leader of the group sent a malformed assignment: {error}"
            self._fail_rebalance(IllegalStateError(problem), error.code, now)
            return
        assigned = frozenset(assignment.partitions)
        if not self._matches_subscription(assigned):
            self._request_rejoin("received assignment does not match the current subscription")
            self._needs_prepare = True
            return
        revoked = self.owned - assigned
        if revoked and self.protocol is RebalanceProtocol.COOPERATIVE:
            self._request_rejoin("need to revoke partitions and re-join")
            current = self.generation
            self._call_listener(
                RebalanceKind.REVOKED,
                revoked,
                lambda error, now: self._finish_revocation(revoked, current, assignment),
            )
        else:
            self._accept(assignment)

    def _finish_revocation(
        self, revoked: frozenset[TopicPartition], current: Generation, assignment: Assignment
    ) -> None:
        if self.generation == current:
            self._accept(assignment)
        else:
            # Fenced while the listener ran: the other partitions are lost next.
            self._release(revoked)

    def _matches_subscription(self, assigned: frozenset[TopicPartition]) -> bool:
        topics = self._topics or frozenset()
        matches = self._matches
        return all(
            p.topic in topics or (matches is not None and matches(p.topic)) for p in assigned
        )

    def _accept(self, assignment: Assignment) -> None:
        assigned = frozenset(assignment.partitions)
        if self._matches is not None:
            # The leader may have seen a topic that matches the pattern before this member.
            new_topics = frozenset(p.topic for p in assigned)
            self._topics = (self._topics or frozenset()) | new_topics
            self._joined_topics = (self._joined_topics or frozenset()) | new_topics
        self._notify_assignor(assignment)
        added = assigned - self.owned
        self._set_owned(assigned, added)
        self._needs_prepare = True
        self._call_listener(RebalanceKind.ASSIGNED, added, None)

    def _notify_assignor(self, assignment: Assignment) -> None:
        try:
            assignor = leader.find_assignor(self._assignors, self.generation.protocol)
            assignor.on_assignment(assignment, self.generation.id)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's own
            self.actions.append(ReportError(leader.assignor_error(error), is_fatal=False))

    # --- heartbeats and leaving

    def _send_heartbeat(self, now: int) -> None:
        request = heartbeat_request(self._settings, self.generation)
        number = self._send(request, HeartbeatResponse)
        self._heartbeat = (number, self.generation)
        self._timers.heartbeat_sent(now)

    def _on_heartbeat(self, code: ErrorCode, generation: Generation, now: int) -> None:
        if code is ErrorCode.NONE:
            self._timers.heartbeat_received(now)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._timers.heartbeat_received(now)
            if self.state is State.STABLE:
                self._request_rejoin("group is already rebalancing")
        elif code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            if generation == self.generation:
                self._fence(code, "HEARTBEAT")
        elif code in COORDINATOR_MOVED:
            self.actions.append(ForgetCoordinator())
            self._timers.heartbeat_failed(now)
        else:
            self._timers.heartbeat_failed(now)
            if not code.retriable:
                self._report(coordinator_error(code, self._settings))

    def _fence(self, code: ErrorCode, api: str) -> None:
        self._reset(keep_member_id=code is ErrorCode.ILLEGAL_GENERATION)
        self._request_rejoin(f"encountered {code.name} from {api} response")
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._report(coordinator_error(code, self._settings), is_fatal=True)

    def _leave_after_poll_timeout(self, now: int) -> None:
        """Leaves because poll was not called in time; the next poll joins again."""
        self._send_leave("consumer poll timeout has expired.")
        self._reset(keep_member_id=False)
        self._request_rejoin("consumer pro-actively leaving the group")
        self._may_join = False

    def _send_leave(self, reason: str) -> None:
        """Leaves, unless it is a static member, which stays until its session ends."""
        if self.is_member and self._settings.group_instance_id is None:
            request = leave_request(self._settings, self.generation, reason)
            self._send(request, LeaveGroupResponse)

    # --- commits

    def handle_commit_error(self, code: int, identity: Identity, now: int) -> KafkaError | None:
        error = error_code_of(code)
        is_current = identity == self.metadata_identity()
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is State.STABLE:
                self._request_rejoin("offset commit failed since group is already rebalancing")
                self._advance(now)
            return rebalance_error()
        if not is_current and self.state is State.PREPARING:
            return rebalance_error()
        if is_current and self.state is not State.UNJOINED:
            self._fence(error, "OFFSET_COMMIT")
            self._advance(now)
        if error is ErrorCode.FENCED_INSTANCE_ID and is_current:
            return coordinator_error(error, self._settings)
        return CommitFailedError(not_a_member_message(self._settings), error)
