"""A classic member step by step: its requests, its listener calls, its errors (C4)."""

import pytest

from penstock.client.consumer.assignors import Assignment, assignors_of
from penstock.client.consumer.assignors.encoding import decode_subscription, encode_assignment
from penstock.client.consumer.group.actions import (
    FetchTopics,
    ForgetCoordinator,
    Identity,
    MemberSettings,
)
from penstock.client.consumer.group.classic import ClassicMember, State
from penstock.client.errors import (
    AuthenticationError,
    AuthorizationError,
    CommitFailedError,
    DisconnectError,
    FencedInstanceError,
    IllegalStateError,
    RebalanceInProgressError,
)
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.support.client.membership_driver import MachineDriver

SETTINGS = MemberSettings("g", heartbeat_interval_ms=100, session_timeout_ms=1_000)
T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
RACKS = {"t": [frozenset[str]()] * 3}


class ClassicDriver(MachineDriver):
    machine: ClassicMember

    def __init__(self, assignors: str = "range", settings: MemberSettings = SETTINGS) -> None:
        self.settings = settings
        self.member = ClassicMember(self.settings, assignors_of(assignors))
        super().__init__(self.member)
        self.generation = 0

    def start(self) -> JoinGroupRequest:
        self.member.subscribe(frozenset(["t"]), self.now)
        self.poll()
        return self.request(JoinGroupRequest)

    def joined(self, *, leader: bool = False, error: ErrorCode = ErrorCode.NONE) -> None:
        """Responds to the JoinGroup request."""
        self.generation += not error
        assert self.sent is not None
        assert isinstance(self.sent.request, JoinGroupRequest)
        metadata = self.sent.request.protocols[0].metadata
        self.respond(
            JoinGroupResponse(
                error_code=error,
                generation_id=self.generation,
                protocol_type="consumer",
                protocol_name=self.member._assignors[0].name,
                leader="m" if leader else "other",
                member_id="m",
                members=[JoinGroupResponseMember("m", None, metadata)] if leader else [],
            )
        )

    def synced(self, *partitions: TopicPartition, error: ErrorCode = ErrorCode.NONE) -> None:
        self.respond(
            SyncGroupResponse(0, error, assignment=encode_assignment(Assignment(partitions)))
        )

    def stable(self, *partitions: TopicPartition) -> None:
        """Makes the member a follower in a new generation, with these partitions."""
        if self.member.state is State.UNJOINED:
            self.start()
        self.joined()
        self.request(SyncGroupRequest)
        self.synced(*partitions)
        assert self.assigned() == set(partitions)
        self.done(self.event())
        assert self.is_idle()

    def heartbeat(self, error: ErrorCode = ErrorCode.NONE) -> HeartbeatRequest:
        self.advance(self.settings.heartbeat_interval_ms)
        request = self.request(HeartbeatRequest)
        self.respond(HeartbeatResponse(0, error))
        return request


def test_a_member_joins_and_assigns_as_the_leader() -> None:
    """It joins at the first poll, again with the id from the coordinator, and then assigns."""
    driver = ClassicDriver()
    driver.member.subscribe(frozenset(["t"]), driver.now)
    assert driver.is_idle()
    assert driver.member.needs_poll
    driver.poll()
    join = driver.request(JoinGroupRequest)
    assert (join.member_id, join.session_timeout_ms, join.rebalance_timeout_ms) == (
        "",
        1_000,
        300_000,
    )
    assert decode_subscription(join.protocols[0].metadata).topics == ("t",)
    driver.joined(error=ErrorCode.MEMBER_ID_REQUIRED)
    join = driver.request(JoinGroupRequest)
    assert join.member_id == "m"
    assert join.reason == "need to re-join with the given member-id: m"
    driver.joined(leader=True)
    fetch = driver.take(FetchTopics)
    assert fetch.topics == {"t"}
    driver.member.topics_fetched(fetch.number, RACKS, driver.now)
    sync = driver.request(SyncGroupRequest)
    assignment = sync.assignments[0]
    assert assignment.assignment == encode_assignment(Assignment((T0, T1, T2)))
    assert (assignment.member_id, sync.generation_id, sync.protocol_name) == ("m", 1, "range")
    driver.synced(T0, T1, T2)
    assert driver.assigned() == {T0, T1, T2}
    event = driver.event()
    assert (event.kind, event.partitions) == ("assigned", (T0, T1, T2))
    assert not driver.member.is_stable
    driver.done(event)
    assert driver.member.is_stable
    assert driver.member.identity() == Identity(1, "m", None)


def test_eager_members_revoke_all_partitions_before_they_join() -> None:
    driver = ClassicDriver()
    driver.stable(T0)
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    event = driver.event()
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    # Until the listener returns it owns the partitions, and may commit.
    assert driver.is_idle()
    assert driver.member.identity().generation_or_epoch == 1
    driver.done(event)
    assert driver.assigned() == set()
    join = driver.request(JoinGroupRequest)
    assert (join.member_id, join.reason) == ("m", "group is already rebalancing")
    with pytest.raises(RebalanceInProgressError, match="call poll"):
        driver.member.identity()
    driver.stable(T1)


def test_cooperative_members_revoke_only_partitions_assigned_to_others() -> None:
    """They join once more, so that another member gets the revoked partitions."""
    driver = ClassicDriver("cooperative-sticky")
    driver.stable(T0, T1)
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = driver.request(JoinGroupRequest)
    assert decode_subscription(join.protocols[0].metadata).owned_partitions == (T0, T1)
    driver.joined()
    driver.request(SyncGroupRequest)
    driver.synced(T0, T2)
    event = driver.event()
    assert (event.kind, event.partitions) == ("revoked", (T1,))
    driver.done(event)
    assert driver.assigned() == {T0, T2}
    event = driver.event()
    assert (event.kind, event.partitions) == ("assigned", (T2,))
    driver.done(event)
    assert driver.request(JoinGroupRequest).reason == "need to revoke partitions and re-join"


def test_cooperative_members_revoke_topics_that_they_no_longer_subscribe_to() -> None:
    driver = ClassicDriver("cooperative-sticky")
    driver.stable(T0)
    driver.member.subscribe(frozenset(["u"]), driver.now)
    event = driver.event()
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    driver.done(event)
    assert driver.assigned() == set()
    assert driver.request(JoinGroupRequest).reason == "subscription has changed"


def test_a_member_removed_during_a_listener_call_ignores_its_new_assignment() -> None:
    """Partitions of the generation that it has lost are not assigned."""
    driver = ClassicDriver("cooperative-sticky")
    driver.stable(T0, T1)
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.request(JoinGroupRequest)
    driver.joined()
    driver.request(SyncGroupRequest)
    driver.synced(T1, T2)
    revoked = driver.event()
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.done(revoked)
    assert driver.assigned() == {T1}
    lost = driver.event()
    assert (lost.kind, lost.partitions) == ("lost", (T1,))
    driver.done(lost)
    assert driver.assigned() == set()
    assert driver.request(JoinGroupRequest).member_id == ""


@pytest.mark.parametrize(
    ("error", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m")],
)
def test_a_fenced_heartbeat_loses_all_partitions(error: ErrorCode, member_id: str) -> None:
    """The member id is kept if it may still be valid."""
    driver = ClassicDriver()
    driver.stable(T0)
    driver.heartbeat(error)
    event = driver.event()
    assert (event.kind, event.partitions) == ("lost", (T0,))
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        driver.member.identity()
    driver.done(event)
    assert driver.assigned() == set()
    join = driver.request(JoinGroupRequest)
    assert join.member_id == member_id
    assert join.reason == f"encountered {error.name} from HEARTBEAT response"


def test_a_stale_heartbeat_error_is_ignored() -> None:
    driver = ClassicDriver("cooperative-sticky")
    driver.stable(T0)
    driver.advance(100)
    driver.request(HeartbeatRequest)
    old = driver.sent
    driver.member.subscribe(frozenset(["t", "u"]), driver.now)
    driver.request(JoinGroupRequest)
    driver.respond(HeartbeatResponse(0, ErrorCode.UNKNOWN_MEMBER_ID), old)
    assert driver.is_idle()
    assert driver.member.owned == {T0}


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_moved_coordinator_is_looked_up_again(error: ErrorCode) -> None:
    """Heartbeats and joins continue with the new coordinator."""
    driver = ClassicDriver()
    driver.start()
    driver.joined(error=error)
    driver.take(ForgetCoordinator)
    driver.advance(100)
    assert driver.request(JoinGroupRequest).reason == f"rebalance failed due to {error.name}"
    driver.joined()
    driver.request(SyncGroupRequest)
    driver.synced(error=error)
    driver.take(ForgetCoordinator)
    driver.advance(100)
    driver.request(JoinGroupRequest)
    driver.stable(T0)
    driver.heartbeat(error)
    driver.take(ForgetCoordinator)
    driver.advance(100)
    driver.request(HeartbeatRequest)


def test_requests_are_retried_after_a_disconnect() -> None:
    """The member keeps its id and its partitions."""
    driver = ClassicDriver()
    driver.start()
    for _ in range(2):
        assert driver.sent is not None
        driver.member.handle_failure(
            driver.sent.number, DisconnectError("disconnected"), driver.now
        )
        driver.take(ForgetCoordinator)
        assert driver.is_idle()
        driver.advance(100)
        driver.request(JoinGroupRequest)
    driver.stable(T0)
    driver.advance(100)
    driver.request(HeartbeatRequest)
    assert driver.sent is not None
    driver.member.handle_failure(driver.sent.number, DisconnectError("disconnected"), driver.now)
    driver.take(ForgetCoordinator)
    driver.advance(100)
    driver.request(HeartbeatRequest)
    assert driver.member.owned == {T0}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "ACL READ"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.max.size"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "partition_assignment_strategy"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "session_timeout_ms=1000"),
        (ErrorCode.INVALID_GROUP_ID, "another group_id"),
        (ErrorCode.UNSUPPORTED_VERSION, "2.3"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_the_error_of_a_refused_join_is_reported(error: ErrorCode, message: str) -> None:
    """The message says what to do; the next poll tries again."""
    driver = ClassicDriver()
    driver.start()
    driver.joined(error=error)
    report = driver.report()
    assert report.error.code is error
    assert message in report.error.message
    assert not report.is_fatal
    driver.advance(10_000, polls=False)
    assert driver.is_idle()
    driver.poll()
    driver.request(JoinGroupRequest)


def test_a_fenced_instance_id_is_a_fatal_error() -> None:
    """The member never joins again, and its partitions are lost."""
    driver = ClassicDriver(settings=SETTINGS._replace(group_instance_id="a"))
    driver.stable(T0)
    driver.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    report = driver.report()
    assert isinstance(report.error, FencedInstanceError)
    assert report.is_fatal
    event = driver.event()
    assert event.kind == "lost"
    driver.done(event)
    assert driver.assigned() == set()
    driver.poll()
    driver.advance(10_000)
    assert driver.is_idle()


@pytest.mark.parametrize("error", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_a_late_sync_joins_again_immediately(error: ErrorCode) -> None:
    """The group has a newer generation."""
    driver = ClassicDriver()
    driver.start()
    driver.joined()
    driver.request(SyncGroupRequest)
    driver.synced(error=error)
    assert driver.request(JoinGroupRequest).member_id == "m"


def test_a_member_that_does_not_poll_leaves_the_group() -> None:
    """It joins again at the next poll."""
    driver = ClassicDriver(
        settings=SETTINGS._replace(max_poll_interval_ms=500, heartbeat_interval_ms=10_000)
    )
    driver.stable(T0)
    driver.advance(600, polls=False)
    leave = driver.request(LeaveGroupRequest)
    assert leave.members[0].member_id == "m"
    assert leave.members[0].reason == "consumer poll timeout has expired."
    driver.advance(10_000, polls=False)
    assert driver.is_idle()
    driver.poll()
    event = driver.event()
    assert (event.kind, event.partitions) == ("lost", (T0,))
    driver.done(event)
    assert driver.assigned() == set()
    driver.request(JoinGroupRequest)


def test_a_silent_coordinator_is_looked_up_again() -> None:
    """After a session timeout without a response."""
    driver = ClassicDriver()
    driver.stable(T0)
    driver.advance(100)
    driver.request(HeartbeatRequest)
    driver.advance(2_000)
    driver.take(ForgetCoordinator)
    driver.advance(10)
    driver.request(HeartbeatRequest)


@pytest.mark.parametrize("instance", [None, "a"])
def test_leaving(instance: str | None) -> None:
    """Static members send no LeaveGroup request: their partitions stay assigned to them."""
    driver = ClassicDriver(settings=SETTINGS._replace(group_instance_id=instance))
    driver.stable(T0)
    event = driver.member.prepare_leave()
    assert event is not None
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    driver.member.leave("the consumer unsubscribed", driver.now)
    if instance is None:
        leave = driver.request(LeaveGroupRequest)
        assert leave.members[0].reason == "the consumer unsubscribed"
    assert driver.assigned() == set()
    driver.poll()
    driver.advance(10_000)
    assert driver.is_idle()
    assert driver.member.metadata_identity().generation_or_epoch == -1


def test_a_leader_watches_the_metadata() -> None:
    """The group rebalances when partitions or topics are added."""
    driver = ClassicDriver("cooperative-sticky")
    driver.start()
    driver.joined(leader=True)
    fetch = driver.take(FetchTopics)
    driver.member.topics_fetched(fetch.number, RACKS, driver.now)
    driver.request(SyncGroupRequest)
    driver.synced(T0, T1, T2)
    driver.assigned()
    driver.done(driver.event())
    driver.member.metadata_changed({**RACKS, "other": [frozenset()]}, {}, driver.now)
    assert driver.is_idle()
    driver.member.metadata_changed({"t": [frozenset()] * 4}, {}, driver.now)
    assert driver.request(JoinGroupRequest).reason == "cached metadata has changed"


def test_a_static_leader_that_rejoins_assigns_nothing() -> None:
    driver = ClassicDriver(settings=SETTINGS._replace(group_instance_id="a"))
    driver.start()
    driver.respond(JoinGroupResponse(0, 0, 5, "consumer", "range", "m", True, "m", []))
    fetch = driver.take(FetchTopics)
    driver.member.topics_fetched(fetch.number, RACKS, driver.now)
    assert driver.request(SyncGroupRequest).assignments == []


def test_malformed_data_of_other_members_is_reported() -> None:
    """After a malformed subscription or assignment the member joins again."""
    driver = ClassicDriver()
    driver.start()
    member = JoinGroupResponseMember("x", None, b"\x00")
    driver.respond(JoinGroupResponse(0, 0, 5, "consumer", "range", "m", False, "m", [member]))
    assert isinstance(driver.report().error, IllegalStateError)
    driver.now += 1_000
    driver.poll()
    driver.request(JoinGroupRequest)
    driver.joined()
    driver.request(SyncGroupRequest)
    driver.respond(SyncGroupResponse(assignment=b"\x00\x01\x00"))
    assert "malformed assignment" in driver.report().error.message
    driver.now += 1_000
    driver.poll()
    driver.request(JoinGroupRequest)


def test_an_assignment_of_other_topics_is_revoked() -> None:
    """The subscription has changed during the rebalance; the member joins again."""
    driver = ClassicDriver()
    driver.start()
    driver.joined()
    driver.request(SyncGroupRequest)
    driver.synced(TopicPartition("u", 0))
    event = driver.event()
    assert event.kind == "revoked"
    driver.done(event)
    join = driver.request(JoinGroupRequest)
    assert join.reason == "received assignment does not match the current subscription"


def test_partitions_of_a_topic_that_only_the_leader_knows_match_a_pattern() -> None:
    driver = ClassicDriver()
    driver.member.subscribe(frozenset(["t"]), driver.now, lambda topic: topic in ("t", "u"))
    driver.poll()
    driver.request(JoinGroupRequest)
    driver.joined()
    driver.request(SyncGroupRequest)
    driver.synced(TopicPartition("u", 0))
    assert driver.assigned() == {TopicPartition("u", 0)}
    driver.done(driver.event())
    assert driver.member.is_stable


def test_permanent_errors_are_reported_and_not_retried() -> None:
    driver = ClassicDriver()
    driver.start()
    assert driver.sent is not None
    driver.member.handle_failure(driver.sent.number, AuthenticationError("no"), driver.now)
    assert isinstance(driver.report().error, AuthenticationError)
    driver.advance(10_000, polls=False)
    assert driver.is_idle()
    with pytest.raises(IllegalStateError, match='group_protocol="consumer"'):
        driver.member.subscribe_regex(".*", driver.now)


def test_an_unauthorized_heartbeat_is_reported() -> None:
    driver = ClassicDriver()
    driver.stable(T0)
    driver.heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(driver.report().error, AuthorizationError)
    assert driver.member.owned == {T0}


def test_commit_errors_during_and_after_a_rebalance() -> None:
    driver = ClassicDriver()
    driver.stable(T0)
    identity = driver.member.identity()
    commit_error = driver.member.handle_commit_error(
        ErrorCode.REBALANCE_IN_PROGRESS, identity, driver.now
    )
    assert isinstance(commit_error, RebalanceInProgressError)
    revoked = driver.event()
    # From an older generation, during the rebalance.
    driver.done(revoked)
    driver.assigned()
    driver.request(JoinGroupRequest)
    old = Identity(0, "m", None)
    commit_error = driver.member.handle_commit_error(ErrorCode.ILLEGAL_GENERATION, old, driver.now)
    assert isinstance(commit_error, RebalanceInProgressError)
    driver.stable(T1)
    # From the current generation: it is no longer a member.
    identity = driver.member.identity()
    commit_error = driver.member.handle_commit_error(
        ErrorCode.UNKNOWN_MEMBER_ID, identity, driver.now
    )
    assert isinstance(commit_error, CommitFailedError)
    assert driver.event().kind == "lost"


def test_a_commit_by_a_fenced_instance_is_a_fatal_error() -> None:
    driver = ClassicDriver(settings=SETTINGS._replace(group_instance_id="a"))
    driver.stable(T0)
    identity = driver.member.identity()
    commit_error = driver.member.handle_commit_error(
        ErrorCode.FENCED_INSTANCE_ID, identity, driver.now
    )
    assert isinstance(commit_error, FencedInstanceError)
    assert driver.report().is_fatal
