"""A member of a classic group, as a machine: join, sync, heartbeat, leave (C4).

Eager members give up everything before they join; cooperative ones only what the group takes from
them, and then join once more. Whatever the coordinator answers, the machine ends up joined again,
or reports an error that a poll raises.
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
    Report,
    TopicMatcher,
)
from penstock.client.consumer.group.classic_requests import (
    PROTOCOL_TYPE,
    Generation,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from penstock.client.consumer.group.explain import code_of, explained, not_a_member, rebalancing
from penstock.client.consumer.group.member import NO_PARTITIONS, Member
from penstock.client.errors import CommitFailedError, IllegalStateError
from penstock.core.errors import ErrorCode, KafkaError, ProtocolError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse

JOIN_LAPSE_MS = 5_000
"""A JoinGroup may wait for the whole rebalance; so much later it is given up."""
_MAX_INT = 2**31 - 1
_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class State(Enum):
    UNJOINED = "unjoined"
    PREPARING = "preparing"
    """A JoinGroup is under way."""
    COMPLETING = "completing"
    """Joined; waiting for the assignment."""
    STABLE = "stable"


class ClassicMember(Member):
    """See `GroupMachine` for how it is driven."""

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
        """A poll has been called since the subscription, the last failure, or a long silence."""
        self._is_fatal = False
        self._retry_at = 0
        self._joining: int | None = None
        """The number of the request, or of the metadata, that the rebalance waits for."""
        self._election: JoinGroupResponse | None = None
        self._heartbeat: tuple[int, Generation] | None = None
        """The heartbeat that waits for its answer."""
        self._leadership = leader.Leadership(with_racks=settings.rack_id is not None)

    # --- what is so

    @property
    def is_member(self) -> bool:
        return self.state is not State.UNJOINED and bool(self.generation.member_id)

    @property
    def is_settled(self) -> bool:
        return self.state is State.STABLE and self._event is None and not self._must_rejoin()

    def identity(self) -> Identity:
        if self.state is State.STABLE:
            return self.metadata_identity()
        if self.state is State.UNJOINED:
            raise CommitFailedError(not_a_member(self._settings))
        raise rebalancing()

    def metadata_identity(self) -> Identity:
        instance = self._settings.group_instance_id
        return Identity(self.generation.id, self.generation.member_id, instance)

    # --- what happens

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
            'group_protocol="consumer"; with "classic", subscribe to a compiled re.Pattern'
        )

    def polled(self, at: int, now: int) -> None:
        self._timers.polled(at)
        self._may_join = True
        self._advance(now)

    @property
    def needs_poll(self) -> bool:
        return self._topics is not None and not self._may_join

    def topics_resolved(self, names: Mapping[UUID, str], now: int) -> None:
        """Never asked for: classic assignments have names."""

    def metadata_changed(self, topics: TopicRacks, names: Mapping[UUID, str], now: int) -> None:
        self._leadership.note(topics)
        self._advance(now)

    def tick(self, now: int) -> None:
        if self.state in (State.COMPLETING, State.STABLE):
            if now >= self._timers.session_ends:
                # Nobody answers: perhaps another broker coordinates by now.
                self.actions.append(ForgetCoordinator())
                self._heartbeat = None
                self._timers.answered(now)
            elif now >= self._timers.poll_ends:
                self._give_up_silent(now)
            elif now >= self._timers.heartbeat_at and self._heartbeat is None:
                self._send_heartbeat(now)
        self._advance(now)

    def wake_at(self) -> int | None:
        deadlines = [self._retry_at] if self._can_rejoin() else []
        if self.state in (State.COMPLETING, State.STABLE):
            deadlines += [self._timers.session_ends, self._timers.poll_ends]
            if self._heartbeat is None:
                deadlines.append(self._timers.heartbeat_at)
        return min(deadlines, default=None)

    def release(self) -> RebalanceEvent | None:
        if not self.owned:
            return None
        lost = self.generation.id < 0 or self.state is not State.STABLE
        return RebalanceEvent(RebalanceKind.LOST if lost else RebalanceKind.REVOKED, self.owned)

    def leave(self, reason: str, now: int) -> None:
        self._send_leave(reason)
        self._reset(keep_member_id=False)
        self._event = self._then = None
        self._set_owned(NO_PARTITIONS)
        self._topics = self._joined_topics = None
        self._rejoin_reason = ""
        self._leadership.end()

    # --- going on

    def _must_rejoin(self) -> bool:
        """Also looks whether the world has changed since the last rebalance."""
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
            self._call(RebalanceKind.LOST, lost, lambda error, now: self._let_go(lost))
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
        """Out of the generation, for whatever reason."""
        self.state = State.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id if keep_member_id else "")
        self._joining = self._election = self._heartbeat = None
        self._needs_prepare = True
        self._rejoin_needed = True

    # --- before joining

    def _prepare(self) -> None:
        """Let go of what must not be kept while the group rebalances."""
        topics = self._topics or frozenset()
        if self.generation.id < 0 or not self.generation.member_id:
            kind, going, always = RebalanceKind.LOST, self.owned, False
        elif self.protocol is RebalanceProtocol.EAGER:
            kind, going, always = RebalanceKind.REVOKED, self.owned, True
        else:
            kind, always = RebalanceKind.REVOKED, False
            going = frozenset(p for p in self.owned if p.topic not in topics)
        if going or always:
            self._call(kind, going, lambda error, now: self._let_go(going))

    def _let_go(self, going: frozenset[TopicPartition]) -> None:
        self._set_owned(self.owned - going)

    def _send_join(self, now: int) -> None:
        settings = self._settings
        self.state = State.PREPARING
        self._heartbeat = None
        self._joined_topics = topics = self._topics or frozenset()
        request = join_request(
            settings, self.generation, topics, self.owned, self._assignors, self._rejoin_reason
        )
        timeout_ms = max(settings.request_timeout_ms, settings.max_poll_interval_ms + JOIN_LAPSE_MS)
        self._joining = self._send(request, JoinGroupResponse, min(timeout_ms, _MAX_INT))

    # --- answers

    def answered(self, number: int, response: Message, now: int) -> None:
        if self._heartbeat is not None and number == self._heartbeat[0]:
            sent, self._heartbeat = self._heartbeat[1], None
            assert isinstance(response, HeartbeatResponse)
            self._on_heartbeat(code_of(response.error_code), sent, now)
        elif number == self._joining:
            self._joining = None
            if isinstance(response, JoinGroupResponse):
                self._on_join(response, now)
            elif isinstance(response, SyncGroupResponse):
                self._on_sync(response, now)
        self._advance(now)

    def failed(self, number: int, error: KafkaError, now: int) -> None:
        """No answer: the connection broke, or the time ran out, or it could not be sent at all."""
        is_heartbeat = self._heartbeat is not None and number == self._heartbeat[0]
        if not is_heartbeat and number != self._joining:
            return
        if error.code.retriable:
            self.actions.append(ForgetCoordinator())
        elif error.code is ErrorCode.UNSUPPORTED_VERSION:
            self._report(explained(error.code, self._settings, error.message))
        else:
            self._report(error)
        if is_heartbeat:
            self._heartbeat = None
            self._timers.failed(now)
        else:
            self._joining = self._election = None
            self._failed_rebalance(error.code, now)
        self._advance(now)

    def _failed_rebalance(self, code: ErrorCode, now: int, *, at_once: bool = False) -> None:
        self._request_rejoin(f"rebalance failed due to {code.name}")
        self._retry_at = now if at_once else now + self._settings.retry_backoff_ms

    def _report(self, error: KafkaError, *, is_fatal: bool = False) -> None:
        """The next poll raises it; the one after that tries again, unless it is fatal."""
        self._may_join = False
        self._is_fatal = self._is_fatal or is_fatal
        self.actions.append(Report(error, is_fatal))

    def _on_join(self, response: JoinGroupResponse, now: int) -> None:
        code = code_of(response.error_code)
        if code is ErrorCode.NONE and response.protocol_type not in (None, PROTOCOL_TYPE):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code is ErrorCode.NONE:
            self._joined(response, now)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.generation = Generation(member_id=response.member_id)
            self._request_rejoin(f"need to re-join with the given member-id: {response.member_id}")
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset(keep_member_id=False)
            self._failed_rebalance(code, now, at_once=True)
        else:
            self._not_rebalanced(code, now)

    def _joined(self, response: JoinGroupResponse, now: int) -> None:
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
            self._report(IllegalStateError(f"a member of the group joined with garbage: {error}"))
            self._failed_rebalance(error.code, now)
            return
        self._election = response
        self._count += 1
        self._joining = self._count
        self.actions.append(FetchTopics(self._count, topics))

    def topics_fetched(self, number: int, topics: TopicRacks, now: int) -> None:
        if number != self._joining or self._election is None:
            return
        election, self._election, self._joining = self._election, None, None
        try:
            assignments = self._leadership.assign(election, self._assignors, self.protocol, topics)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's own
            told = _failed_assignor(error)
            self._report(told)
            self._failed_rebalance(told.code, now)
        else:
            self._send_sync(assignments)

    def _send_sync(self, assignments: Mapping[str, bytes]) -> None:
        request = sync_request(self._settings, self.generation, assignments)
        self._joining = self._send(request, SyncGroupResponse)

    def _on_sync(self, response: SyncGroupResponse, now: int) -> None:
        code = code_of(response.error_code)
        if code is ErrorCode.NONE and (
            response.protocol_type not in (None, PROTOCOL_TYPE)
            or response.protocol_name not in (None, self.generation.protocol)
        ):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code is ErrorCode.NONE:
            self.state = State.STABLE
            self._rejoin_needed = False
            self._rejoin_reason = ""
            self._take_assignment(response.assignment, now)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._failed_rebalance(code, now, at_once=True)
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._reset(keep_member_id=code is ErrorCode.ILLEGAL_GENERATION)
            self._failed_rebalance(code, now, at_once=True)
        else:
            self._not_rebalanced(code, now)

    def _not_rebalanced(self, code: ErrorCode, now: int) -> None:
        """JoinGroup or SyncGroup failed, with a code that says nothing of this member."""
        self._failed_rebalance(code, now, at_once=code is ErrorCode.REBALANCE_IN_PROGRESS)
        if code in _MOVED:
            self.actions.append(ForgetCoordinator())
        elif not code.retriable:
            is_fatal = code is ErrorCode.FENCED_INSTANCE_ID
            self._report(explained(code, self._settings), is_fatal=is_fatal)

    # --- the assignment

    def _take_assignment(self, data: bytes, now: int) -> None:
        try:
            assignment = decode_assignment(data) if data else Assignment(())
        except ProtocolError as error:
            self._report(IllegalStateError(f"the leader of the group assigned garbage: {error}"))
            self._failed_rebalance(error.code, now)
            return
        assigned = frozenset(assignment.partitions)
        if not self._fits(assigned):
            self._request_rejoin("received assignment does not match the current subscription")
            self._needs_prepare = True
            return
        revoked = self.owned - assigned
        if revoked and self.protocol is RebalanceProtocol.COOPERATIVE:
            self._request_rejoin("need to revoke partitions and re-join")
            current = self.generation
            self._call(
                RebalanceKind.REVOKED,
                revoked,
                lambda error, now: self._revoked(revoked, current, assignment),
            )
        else:
            self._accept(assignment)

    def _revoked(
        self, revoked: frozenset[TopicPartition], current: Generation, assignment: Assignment
    ) -> None:
        if self.generation == current:
            self._accept(assignment)
        else:
            # Thrown out while the listener worked: what is left is lost next.
            self._let_go(revoked)

    def _fits(self, assigned: frozenset[TopicPartition]) -> bool:
        topics = self._topics or frozenset()
        matches = self._matches
        return all(
            p.topic in topics or (matches is not None and matches(p.topic)) for p in assigned
        )

    def _accept(self, assignment: Assignment) -> None:
        assigned = frozenset(assignment.partitions)
        if self._matches is not None:
            # The leader may have seen a topic that matches the pattern before we did.
            more = frozenset(p.topic for p in assigned)
            self._topics = (self._topics or frozenset()) | more
            self._joined_topics = (self._joined_topics or frozenset()) | more
        self._tell_assignor(assignment)
        added = assigned - self.owned
        self._set_owned(assigned, added)
        self._needs_prepare = True
        self._call(RebalanceKind.ASSIGNED, added, None)

    def _tell_assignor(self, assignment: Assignment) -> None:
        try:
            assignor = leader.find_assignor(self._assignors, self.generation.protocol)
            assignor.on_assignment(assignment, self.generation.id)
        except Exception as error:  # noqa: BLE001 - an assignor may be the user's own
            self.actions.append(Report(_failed_assignor(error), is_fatal=False))

    # --- heartbeats and goodbye

    def _send_heartbeat(self, now: int) -> None:
        request = heartbeat_request(self._settings, self.generation)
        number = self._send(request, HeartbeatResponse)
        self._heartbeat = (number, self.generation)
        self._timers.sent(now)

    def _on_heartbeat(self, code: ErrorCode, sent: Generation, now: int) -> None:
        if code is ErrorCode.NONE:
            self._timers.answered(now)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._timers.answered(now)
            if self.state is State.STABLE:
                self._request_rejoin("group is already rebalancing")
        elif code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            if sent == self.generation:
                self._thrown_out(code, "HEARTBEAT")
        elif code in _MOVED:
            self.actions.append(ForgetCoordinator())
            self._timers.failed(now)
        else:
            self._timers.failed(now)
            if not code.retriable:
                self._report(explained(code, self._settings))

    def _thrown_out(self, code: ErrorCode, api: str) -> None:
        self._reset(keep_member_id=code is ErrorCode.ILLEGAL_GENERATION)
        self._request_rejoin(f"encountered {code.name} from {api} response")
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._report(explained(code, self._settings), is_fatal=True)

    def _give_up_silent(self, now: int) -> None:
        """No poll for too long: others shall have the partitions, until there is one again."""
        self._send_leave("consumer poll timeout has expired.")
        self._reset(keep_member_id=False)
        self._request_rejoin("consumer pro-actively leaving the group")
        self._may_join = False

    def _send_leave(self, reason: str) -> None:
        """Static members stay: they come back, or their session ends."""
        if self.is_member and self._settings.group_instance_id is None:
            request = leave_request(self._settings, self.generation, reason)
            self._send(request, LeaveGroupResponse)

    # --- commits

    def commit_refused(self, code: int, identity: Identity, now: int) -> KafkaError | None:
        error = code_of(code)
        is_current = identity == self.metadata_identity()
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is State.STABLE:
                self._request_rejoin("offset commit failed since group is already rebalancing")
                self._advance(now)
            return rebalancing()
        if not is_current and self.state is State.PREPARING:
            return rebalancing()
        if is_current and self.state is not State.UNJOINED:
            self._thrown_out(error, "OFFSET_COMMIT")
            self._advance(now)
        if error is ErrorCode.FENCED_INSTANCE_ID and is_current:
            return explained(error, self._settings)
        return CommitFailedError(not_a_member(self._settings), error)


def _failed_assignor(error: Exception) -> KafkaError:
    """An assignor may be the user's own: whatever it raises is for the user to see."""
    return IllegalStateError(
        f"the assignor failed: {type(error).__name__}: {error}. The group cannot be rebalanced by "
        "this member until it is mended"
    )
