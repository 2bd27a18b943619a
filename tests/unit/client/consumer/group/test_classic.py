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
from tests.support.client.membership_driver import Play

SETTINGS = MemberSettings("g", heartbeat_interval_ms=100, session_timeout_ms=1_000)
T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
RACKS = {"t": [frozenset[str]()] * 3}


class ClassicPlay(Play):
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
        self.answer(
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
        self.answer(
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
        self.later(self.settings.heartbeat_interval_ms)
        request = self.request(HeartbeatRequest)
        self.answer(HeartbeatResponse(0, error))
        return request


def test_the_first_generation() -> None:
    """Nothing before a poll; the id that the coordinator gives; the leader assigns."""
    play = ClassicPlay()
    play.member.subscribe(frozenset(["t"]), play.now)
    assert play.is_idle()
    assert play.member.needs_poll
    play.poll()
    join = play.request(JoinGroupRequest)
    assert (join.member_id, join.session_timeout_ms, join.rebalance_timeout_ms) == (
        "",
        1_000,
        300_000,
    )
    assert decode_subscription(join.protocols[0].metadata).topics == ("t",)
    play.joined(error=ErrorCode.MEMBER_ID_REQUIRED)
    join = play.request(JoinGroupRequest)
    assert join.member_id == "m"
    assert join.reason == "need to re-join with the given member-id: m"
    play.joined(leader=True)
    fetch = play.take(FetchTopics)
    assert fetch.topics == {"t"}
    play.member.topics_fetched(fetch.number, RACKS, play.now)
    sync = play.request(SyncGroupRequest)
    given = sync.assignments[0]
    assert given.assignment == encode_assignment(Assignment((T0, T1, T2)))
    assert (given.member_id, sync.generation_id, sync.protocol_name) == ("m", 1, "range")
    play.synced(T0, T1, T2)
    assert play.assigned() == {T0, T1, T2}
    event = play.event()
    assert (event.kind, event.partitions) == ("assigned", (T0, T1, T2))
    assert not play.member.is_settled
    play.done(event)
    assert play.member.is_settled
    assert play.member.identity() == Identity(1, "m", None)


def test_eager_members_give_up_everything_first() -> None:
    play = ClassicPlay()
    play.stable(T0)
    play.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    event = play.event()
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    # Until the listener returns they are its own, and it may commit.
    assert play.is_idle()
    assert play.member.identity().generation_or_epoch == 1
    play.done(event)
    assert play.assigned() == set()
    join = play.request(JoinGroupRequest)
    assert (join.member_id, join.reason) == ("m", "group is already rebalancing")
    with pytest.raises(RebalanceInProgressError, match="call poll"):
        play.member.identity()
    play.stable(T1)


def test_cooperative_members_give_up_what_goes() -> None:
    """And join once more, so that another one gets it."""
    play = ClassicPlay("cooperative-sticky")
    play.stable(T0, T1)
    play.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = play.request(JoinGroupRequest)
    assert decode_subscription(join.protocols[0].metadata).owned_partitions == (T0, T1)
    play.joined()
    play.request(SyncGroupRequest)
    play.synced(T0, T2)
    event = play.event()
    assert (event.kind, event.partitions) == ("revoked", (T1,))
    play.done(event)
    assert play.assigned() == {T0, T2}
    event = play.event()
    assert (event.kind, event.partitions) == ("assigned", (T2,))
    play.done(event)
    assert play.request(JoinGroupRequest).reason == "need to revoke partitions and re-join"


def test_cooperative_members_give_up_topics_they_do_not_want() -> None:
    play = ClassicPlay("cooperative-sticky")
    play.stable(T0)
    play.member.subscribe(frozenset(["u"]), play.now)
    event = play.event()
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    play.done(event)
    assert play.assigned() == set()
    assert play.request(JoinGroupRequest).reason == "subscription has changed"


def test_thrown_out_while_the_listener_works() -> None:
    """What it was to get in that generation it does not take any more."""
    play = ClassicPlay("cooperative-sticky")
    play.stable(T0, T1)
    play.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    play.request(JoinGroupRequest)
    play.joined()
    play.request(SyncGroupRequest)
    play.synced(T1, T2)
    revoked = play.event()
    play.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    play.done(revoked)
    assert play.assigned() == {T1}
    lost = play.event()
    assert (lost.kind, lost.partitions) == ("lost", (T1,))
    play.done(lost)
    assert play.assigned() == set()
    assert play.request(JoinGroupRequest).member_id == ""


@pytest.mark.parametrize(
    ("error", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m")],
)
def test_a_heartbeat_that_throws_out(error: ErrorCode, member_id: str) -> None:
    """Everything is lost; the id is kept where it may still be good."""
    play = ClassicPlay()
    play.stable(T0)
    play.heartbeat(error)
    event = play.event()
    assert (event.kind, event.partitions) == ("lost", (T0,))
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        play.member.identity()
    play.done(event)
    assert play.assigned() == set()
    join = play.request(JoinGroupRequest)
    assert join.member_id == member_id
    assert join.reason == f"encountered {error.name} from HEARTBEAT response"


def test_an_old_heartbeat_throws_nobody_out() -> None:
    play = ClassicPlay("cooperative-sticky")
    play.stable(T0)
    play.later(100)
    play.request(HeartbeatRequest)
    old = play.sent
    play.member.subscribe(frozenset(["t", "u"]), play.now)
    play.request(JoinGroupRequest)
    play.answer(HeartbeatResponse(0, ErrorCode.UNKNOWN_MEMBER_ID), old)
    assert play.is_idle()
    assert play.member.owned == {T0}


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_the_coordinator_has_moved(error: ErrorCode) -> None:
    """Heartbeats and joins look for it again, and go on."""
    play = ClassicPlay()
    play.start()
    play.joined(error=error)
    play.take(ForgetCoordinator)
    play.later(100)
    assert play.request(JoinGroupRequest).reason == f"rebalance failed due to {error.name}"
    play.joined()
    play.request(SyncGroupRequest)
    play.synced(error=error)
    play.take(ForgetCoordinator)
    play.later(100)
    play.request(JoinGroupRequest)
    play.stable(T0)
    play.heartbeat(error)
    play.take(ForgetCoordinator)
    play.later(100)
    play.request(HeartbeatRequest)


def test_a_broken_connection() -> None:
    """Whatever was under way is tried again; the member stays what it is."""
    play = ClassicPlay()
    play.start()
    for _ in range(2):
        assert play.sent is not None
        play.member.failed(play.sent.number, DisconnectError("gone"), play.now)
        play.take(ForgetCoordinator)
        assert play.is_idle()
        play.later(100)
        play.request(JoinGroupRequest)
    play.stable(T0)
    play.later(100)
    play.request(HeartbeatRequest)
    assert play.sent is not None
    play.member.failed(play.sent.number, DisconnectError("gone"), play.now)
    play.take(ForgetCoordinator)
    play.later(100)
    play.request(HeartbeatRequest)
    assert play.member.owned == {T0}


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
    play = ClassicPlay()
    play.start()
    play.joined(error=error)
    report = play.report()
    assert report.error.code is error
    assert told in report.error.message
    assert not report.is_fatal
    play.later(10_000, polls=False)
    assert play.is_idle()
    play.poll()
    play.request(JoinGroupRequest)


def test_a_name_that_another_one_has_taken() -> None:
    """Final: it never joins again, and what it had is lost."""
    play = ClassicPlay(settings=SETTINGS._replace(group_instance_id="a"))
    play.stable(T0)
    play.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    report = play.report()
    assert isinstance(report.error, FencedInstanceError)
    assert report.is_fatal
    event = play.event()
    assert event.kind == "lost"
    play.done(event)
    assert play.assigned() == set()
    play.poll()
    play.later(10_000)
    assert play.is_idle()


@pytest.mark.parametrize("error", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_a_sync_that_comes_too_late(error: ErrorCode) -> None:
    """The group has gone on: join again, at once."""
    play = ClassicPlay()
    play.start()
    play.joined()
    play.request(SyncGroupRequest)
    play.synced(error=error)
    assert play.request(JoinGroupRequest).member_id == "m"


def test_a_poll_that_does_not_come() -> None:
    """It leaves, and joins again only with the next poll."""
    play = ClassicPlay(
        settings=SETTINGS._replace(max_poll_interval_ms=500, heartbeat_interval_ms=10_000)
    )
    play.stable(T0)
    play.later(600, polls=False)
    leave = play.request(LeaveGroupRequest)
    assert leave.members[0].member_id == "m"
    assert leave.members[0].reason == "consumer poll timeout has expired."
    play.later(10_000, polls=False)
    assert play.is_idle()
    play.poll()
    event = play.event()
    assert (event.kind, event.partitions) == ("lost", (T0,))
    play.done(event)
    assert play.assigned() == set()
    play.request(JoinGroupRequest)


def test_a_coordinator_that_does_not_answer() -> None:
    """After a session without an answer it is looked for again."""
    play = ClassicPlay()
    play.stable(T0)
    play.later(100)
    play.request(HeartbeatRequest)
    play.later(2_000)
    play.take(ForgetCoordinator)
    play.later(10)
    play.request(HeartbeatRequest)


@pytest.mark.parametrize("instance", [None, "a"])
def test_leaving(instance: str | None) -> None:
    """Static members do not say goodbye: their partitions wait for them."""
    play = ClassicPlay(settings=SETTINGS._replace(group_instance_id=instance))
    play.stable(T0)
    event = play.member.release()
    assert event is not None
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    play.member.leave("the consumer unsubscribed", play.now)
    if instance is None:
        leave = play.request(LeaveGroupRequest)
        assert leave.members[0].reason == "the consumer unsubscribed"
    assert play.assigned() == set()
    play.poll()
    play.later(10_000)
    assert play.is_idle()
    assert play.member.metadata_identity().generation_or_epoch == -1


def test_a_leader_watches_the_metadata() -> None:
    """More partitions, or a topic that comes, and the group rebalances."""
    play = ClassicPlay("cooperative-sticky")
    play.start()
    play.joined(leader=True)
    fetch = play.take(FetchTopics)
    play.member.topics_fetched(fetch.number, RACKS, play.now)
    play.request(SyncGroupRequest)
    play.synced(T0, T1, T2)
    play.assigned()
    play.done(play.event())
    play.member.metadata_changed({**RACKS, "other": [frozenset()]}, {}, play.now)
    assert play.is_idle()
    play.member.metadata_changed({"t": [frozenset()] * 4}, {}, play.now)
    assert play.request(JoinGroupRequest).reason == "cached metadata has changed"


def test_a_static_leader_that_comes_back_assigns_nothing() -> None:
    play = ClassicPlay(settings=SETTINGS._replace(group_instance_id="a"))
    play.start()
    play.answer(JoinGroupResponse(0, 0, 5, "consumer", "range", "m", True, "m", []))
    fetch = play.take(FetchTopics)
    play.member.topics_fetched(fetch.number, RACKS, play.now)
    assert play.request(SyncGroupRequest).assignments == []


def test_garbage_from_others() -> None:
    """A subscription or an assignment that cannot be read is told, and joined again."""
    play = ClassicPlay()
    play.start()
    member = JoinGroupResponseMember("x", None, b"\x00")
    play.answer(JoinGroupResponse(0, 0, 5, "consumer", "range", "m", False, "m", [member]))
    assert isinstance(play.report().error, IllegalStateError)
    play.now += 1_000
    play.poll()
    play.request(JoinGroupRequest)
    play.joined()
    play.request(SyncGroupRequest)
    play.answer(SyncGroupResponse(assignment=b"\x00\x01\x00"))
    assert "garbage" in play.report().error.message
    play.now += 1_000
    play.poll()
    play.request(JoinGroupRequest)


def test_an_assignment_of_other_topics() -> None:
    """The subscription has changed meanwhile: it is not taken, and joined again."""
    play = ClassicPlay()
    play.start()
    play.joined()
    play.request(SyncGroupRequest)
    play.synced(TopicPartition("u", 0))
    event = play.event()
    assert event.kind == "revoked"
    play.done(event)
    join = play.request(JoinGroupRequest)
    assert join.reason == "received assignment does not match the current subscription"


def test_a_pattern_takes_what_the_leader_has_seen() -> None:
    play = ClassicPlay()
    play.member.subscribe(frozenset(["t"]), play.now, lambda topic: topic in ("t", "u"))
    play.poll()
    play.request(JoinGroupRequest)
    play.joined()
    play.request(SyncGroupRequest)
    play.synced(TopicPartition("u", 0))
    assert play.assigned() == {TopicPartition("u", 0)}
    play.done(play.event())
    assert play.member.is_settled


def test_errors_that_no_attempt_mends() -> None:
    play = ClassicPlay()
    play.start()
    assert play.sent is not None
    play.member.failed(play.sent.number, AuthenticationError("no"), play.now)
    assert isinstance(play.report().error, AuthenticationError)
    play.later(10_000, polls=False)
    assert play.is_idle()
    with pytest.raises(IllegalStateError, match='group_protocol="consumer"'):
        play.member.subscribe_regex(".*", play.now)


def test_a_heartbeat_that_is_not_allowed() -> None:
    play = ClassicPlay()
    play.stable(T0)
    play.heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(play.report().error, AuthorizationError)
    assert play.member.owned == {T0}


def test_commits_that_are_refused() -> None:
    play = ClassicPlay()
    play.stable(T0)
    who = play.member.identity()
    refused = play.member.commit_refused(ErrorCode.REBALANCE_IN_PROGRESS, who, play.now)
    assert isinstance(refused, RebalanceInProgressError)
    revoked = play.event()
    # Of an older generation, while the next one forms.
    play.done(revoked)
    play.assigned()
    play.request(JoinGroupRequest)
    old = Identity(0, "m", None)
    refused = play.member.commit_refused(ErrorCode.ILLEGAL_GENERATION, old, play.now)
    assert isinstance(refused, RebalanceInProgressError)
    play.stable(T1)
    # Of the current one: it is no member any more.
    who = play.member.identity()
    refused = play.member.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, who, play.now)
    assert isinstance(refused, CommitFailedError)
    assert play.event().kind == "lost"


def test_a_commit_by_a_fenced_instance() -> None:
    play = ClassicPlay(settings=SETTINGS._replace(group_instance_id="a"))
    play.stable(T0)
    who = play.member.identity()
    refused = play.member.commit_refused(ErrorCode.FENCED_INSTANCE_ID, who, play.now)
    assert isinstance(refused, FencedInstanceError)
    assert play.report().is_fatal
