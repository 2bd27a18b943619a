"""A classic member step by step: what it sends, whom it calls, what each error makes of it (C4)."""

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
        """The JoinGroup is answered."""
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
        """A follower of a generation, with these partitions."""
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


def test_the_first_generation() -> None:
    """Nothing before a poll; the id that the coordinator gives; the leader assigns."""
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
    given = sync.assignments[0]
    assert given.assignment == encode_assignment(Assignment((T0, T1, T2)))
    assert (given.member_id, sync.generation_id, sync.protocol_name) == ("m", 1, "range")
    driver.synced(T0, T1, T2)
    assert driver.assigned() == {T0, T1, T2}
    event = driver.event()
    assert (event.kind, event.partitions) == ("assigned", (T0, T1, T2))
    assert not driver.member.is_stable
    driver.done(event)
    assert driver.member.is_stable
    assert driver.member.identity() == Identity(1, "m", None)


def test_eager_members_give_up_everything_first() -> None:
    driver = ClassicDriver()
    driver.stable(T0)
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    event = driver.event()
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    # Until the listener returns they are its own, and it may commit.
    assert driver.is_idle()
    assert driver.member.identity().generation_or_epoch == 1
    driver.done(event)
    assert driver.assigned() == set()
    join = driver.request(JoinGroupRequest)
    assert (join.member_id, join.reason) == ("m", "group is already rebalancing")
    with pytest.raises(RebalanceInProgressError, match="call poll"):
        driver.member.identity()
    driver.stable(T1)


def test_cooperative_members_give_up_what_goes() -> None:
    """And join once more, so that another one gets it."""
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


def test_cooperative_members_give_up_topics_they_do_not_want() -> None:
    driver = ClassicDriver("cooperative-sticky")
    driver.stable(T0)
    driver.member.subscribe(frozenset(["u"]), driver.now)
    event = driver.event()
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    driver.done(event)
    assert driver.assigned() == set()
    assert driver.request(JoinGroupRequest).reason == "subscription has changed"


def test_thrown_out_while_the_listener_works() -> None:
    """What it was to get in that generation it does not take any more."""
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
def test_a_heartbeat_that_throws_out(error: ErrorCode, member_id: str) -> None:
    """Everything is lost; the id is kept where it may still be good."""
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


def test_an_old_heartbeat_throws_nobody_out() -> None:
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
def test_the_coordinator_has_moved(error: ErrorCode) -> None:
    """Heartbeats and joins look for it again, and go on."""
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


def test_a_broken_connection() -> None:
    """Whatever was under way is tried again; the member stays what it is."""
    driver = ClassicDriver()
    driver.start()
    for _ in range(2):
        assert driver.sent is not None
        driver.member.handle_failure(driver.sent.number, DisconnectError("gone"), driver.now)
        driver.take(ForgetCoordinator)
        assert driver.is_idle()
        driver.advance(100)
        driver.request(JoinGroupRequest)
    driver.stable(T0)
    driver.advance(100)
    driver.request(HeartbeatRequest)
    assert driver.sent is not None
    driver.member.handle_failure(driver.sent.number, DisconnectError("gone"), driver.now)
    driver.take(ForgetCoordinator)
    driver.advance(100)
    driver.request(HeartbeatRequest)
    assert driver.member.owned == {T0}


@pytest.mark.parametrize(
    ("error", "told"),
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
def test_a_join_that_is_refused(error: ErrorCode, told: str) -> None:
    """The poll says what to do; the next one tries again."""
    driver = ClassicDriver()
    driver.start()
    driver.joined(error=error)
    report = driver.report()
    assert report.error.code is error
    assert told in report.error.message
    assert not report.is_fatal
    driver.advance(10_000, polls=False)
    assert driver.is_idle()
    driver.poll()
    driver.request(JoinGroupRequest)


def test_a_name_that_another_one_has_taken() -> None:
    """Final: it never joins again, and what it had is lost."""
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
def test_a_sync_that_comes_too_late(error: ErrorCode) -> None:
    """The group has gone on: join again, at once."""
    driver = ClassicDriver()
    driver.start()
    driver.joined()
    driver.request(SyncGroupRequest)
    driver.synced(error=error)
    assert driver.request(JoinGroupRequest).member_id == "m"


def test_a_poll_that_does_not_come() -> None:
    """It leaves, and joins again only with the next poll."""
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


def test_a_coordinator_that_does_not_answer() -> None:
    """After a session without an answer it is looked for again."""
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
    """Static members do not say goodbye: their partitions wait for them."""
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
    """More partitions, or a topic that comes, and the group rebalances."""
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


def test_a_static_leader_that_comes_back_assigns_nothing() -> None:
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


def test_an_assignment_of_other_topics() -> None:
    """The subscription has changed meanwhile: it is not taken, and joined again."""
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


def test_a_pattern_takes_what_the_leader_has_seen() -> None:
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


def test_errors_that_no_attempt_mends() -> None:
    driver = ClassicDriver()
    driver.start()
    assert driver.sent is not None
    driver.member.handle_failure(driver.sent.number, AuthenticationError("no"), driver.now)
    assert isinstance(driver.report().error, AuthenticationError)
    driver.advance(10_000, polls=False)
    assert driver.is_idle()
    with pytest.raises(IllegalStateError, match='group_protocol="consumer"'):
        driver.member.subscribe_regex(".*", driver.now)


def test_a_heartbeat_that_is_not_allowed() -> None:
    driver = ClassicDriver()
    driver.stable(T0)
    driver.heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(driver.report().error, AuthorizationError)
    assert driver.member.owned == {T0}


def test_commits_that_are_refused() -> None:
    driver = ClassicDriver()
    driver.stable(T0)
    who = driver.member.identity()
    refused = driver.member.handle_commit_error(ErrorCode.REBALANCE_IN_PROGRESS, who, driver.now)
    assert isinstance(refused, RebalanceInProgressError)
    revoked = driver.event()
    # Of an older generation, while the next one forms.
    driver.done(revoked)
    driver.assigned()
    driver.request(JoinGroupRequest)
    old = Identity(0, "m", None)
    refused = driver.member.handle_commit_error(ErrorCode.ILLEGAL_GENERATION, old, driver.now)
    assert isinstance(refused, RebalanceInProgressError)
    driver.stable(T1)
    # Of the current one: it is no member any more.
    who = driver.member.identity()
    refused = driver.member.handle_commit_error(ErrorCode.UNKNOWN_MEMBER_ID, who, driver.now)
    assert isinstance(refused, CommitFailedError)
    assert driver.event().kind == "lost"


def test_a_commit_by_a_fenced_instance() -> None:
    driver = ClassicDriver(settings=SETTINGS._replace(group_instance_id="a"))
    driver.stable(T0)
    who = driver.member.identity()
    refused = driver.member.handle_commit_error(ErrorCode.FENCED_INSTANCE_ID, who, driver.now)
    assert isinstance(refused, FencedInstanceError)
    assert driver.report().is_fatal
