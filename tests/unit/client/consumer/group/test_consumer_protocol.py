"""A member of a consumer group (KIP-848) step by step (C5)."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from penstock.client.consumer.group.actions import (
    ForgetCoordinator,
    Identity,
    MemberSettings,
    ResolveTopics,
)
from penstock.client.consumer.group.consumer_protocol import ConsumerMember, State
from penstock.client.errors import CommitFailedError, DisconnectError
from penstock.core.errors import ErrorCode, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from tests.support.client.membership_driver import Play
from tests.support.coordinator.groups import id_of

SETTINGS = MemberSettings("g", max_poll_interval_ms=10_000, rack_id="r", remote_assignor="range")
T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
T, U = id_of("t"), id_of("u")
NAMES = {T: "t"}
Target = Mapping[UUID, list[int]]


class ConsumerPlay(Play):
    def __init__(self, settings: MemberSettings = SETTINGS) -> None:
        self.member = ConsumerMember(settings, "me")
        super().__init__(self.member)
        self.epoch = 0
        self.member.metadata_changed({}, NAMES, self.now)

    def start(self) -> ConsumerGroupHeartbeatRequest:
        self.member.subscribe(frozenset(["t"]), self.now)
        self.poll()
        return self.beat()

    def beat(self) -> ConsumerGroupHeartbeatRequest:
        return self.request(ConsumerGroupHeartbeatRequest)

    def next_beat(self) -> ConsumerGroupHeartbeatRequest:
        """The one that is due after the interval."""
        self.later(1_000)
        return self.beat()

    def target(self, target: Target | None = None, *, bump: bool = True) -> None:
        """The heartbeat is answered, with a new target perhaps."""
        self.epoch += bump
        assignment = None
        if target is not None:
            topics = [
                ConsumerGroupHeartbeatResponseTopicPartitions(topic, partitions)
                for topic, partitions in target.items()
            ]
            assignment = ConsumerGroupHeartbeatAssignment(topics)
        self.answer(
            ConsumerGroupHeartbeatResponse(
                member_id="me",
                member_epoch=self.epoch,
                heartbeat_interval_ms=1_000,
                assignment=assignment,
            )
        )

    def error(self, code: ErrorCode, said: str | None = None) -> None:
        self.answer(ConsumerGroupHeartbeatResponse(0, code, said))

    def stable(self, *partitions: int) -> None:
        self.start()
        self.target({T: list(partitions)})
        self.assigned()
        self.done(self.event())
        self.beat()
        self.target(bump=False)
        assert self.member.is_settled


def told(request: ConsumerGroupHeartbeatRequest) -> dict[UUID, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: each.partitions for each in request.topic_partitions}


def test_the_first_assignment() -> None:
    """Everything is told when it joins; then only what is new."""
    play = ConsumerPlay()
    assert play.member.metadata_identity() == Identity(-1, "me", None)
    join = play.start()
    assert (join.member_id, join.member_epoch, join.rebalance_timeout_ms) == ("me", 0, 10_000)
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == (["t"], None)
    assert (join.rack_id, join.server_assignor, told(join)) == ("r", "range", {})
    play.target({T: [0, 1]})
    assert play.assigned() == {T0, T1}
    event = play.event()
    assert (event.kind, event.partitions) == ("assigned", (T0, T1))
    assert play.is_idle()
    play.done(event)
    acknowledged = play.beat()
    assert told(acknowledged) == {T: [0, 1]}
    assert acknowledged.member_epoch == 1
    play.target(bump=False)
    assert play.member.is_settled
    beat = play.next_beat()
    assert (beat.subscribed_topic_names, beat.rack_id, beat.server_assignor) == (None, None, None)
    assert (beat.rebalance_timeout_ms, told(beat)) == (-1, None)
    assert play.member.identity() == Identity(1, "me", None)


def test_partitions_go_and_come() -> None:
    """First what goes, with the listener; then what comes; then the coordinator is told."""
    play = ConsumerPlay()
    play.stable(0, 1)
    play.next_beat()
    play.target({T: [1, 2]})
    revoked = play.event()
    assert (revoked.kind, revoked.partitions) == ("revoked", (T0,))
    assert play.member.owned == {T0, T1}
    play.done(revoked)
    assert play.assigned() == {T1, T2}
    added = play.event()
    assert (added.kind, added.partitions) == ("assigned", (T2,))
    play.done(added)
    assert told(play.beat()) == {T: [1, 2]}


def test_a_target_that_changes_under_way() -> None:
    play = ConsumerPlay()
    play.stable(0)
    play.next_beat()
    play.target({T: [1]})
    revoked = play.event()
    assert told(play.next_beat()) is None
    play.target({T: [0, 2]})
    play.done(revoked)
    assert play.assigned() == {T1}
    play.done(play.event())
    assert told(play.beat()) == {T: [1]}
    play.target(bump=False)
    # And on to the next one.
    assert play.event().partitions == (T1,)


def test_nothing_is_taken_that_a_heartbeat_under_way_does_not_name() -> None:
    """The coordinator would take it for given up, and could give it to somebody else."""
    play = ConsumerPlay()
    play.stable(0)
    play.next_beat()
    assert play.sent is not None
    play.member.failed(play.sent.number, DisconnectError("gone"), play.now)
    play.take(ForgetCoordinator)
    assert told(play.next_beat()) == {T: [0]}
    play.target({T: [0, 1]})
    assert play.assigned() == {T0, T1}


def test_topics_without_a_name() -> None:
    """What is known is taken; the rest is asked for, and follows."""
    play = ConsumerPlay()
    play.start()
    play.target({T: [0], U: [1]})
    assert play.take(ResolveTopics).topic_ids == {U}
    assert play.assigned() == {T0}
    play.done(play.event())
    assert told(play.beat()) == {T: [0]}
    play.target(bump=False)
    assert not play.member.is_settled
    play.later(100)
    play.take(ResolveTopics)
    play.member.topics_resolved({U: "u"}, play.now)
    assert play.assigned() == {T0, TopicPartition("u", 1)}
    play.done(play.event())
    assert told(play.beat()) == {T: [0], U: [1]}
    play.target(bump=False)
    assert play.member.is_settled


@pytest.mark.parametrize("error", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_fenced(error: ErrorCode) -> None:
    """Everything is lost; it joins again under its id."""
    play = ConsumerPlay()
    play.stable(0)
    play.next_beat()
    play.error(error)
    lost = play.event()
    assert (lost.kind, lost.partitions) == ("lost", (T0,))
    with pytest.raises(CommitFailedError):
        play.member.identity()
    play.done(lost)
    assert play.assigned() == set()
    join = play.beat()
    assert (join.member_id, join.member_epoch, told(join)) == ("me", 0, {})


def test_fenced_while_the_listener_works() -> None:
    play = ConsumerPlay()
    play.stable(0, 1)
    play.next_beat()
    play.target({T: [1, 2]})
    revoked = play.event()
    play.next_beat()
    play.error(ErrorCode.FENCED_MEMBER_EPOCH)
    assert play.is_idle()
    play.done(revoked)
    assert play.event().kind == "lost"


def test_after_a_broken_connection_everything_is_told_again() -> None:
    play = ConsumerPlay()
    play.stable(0)
    play.next_beat()
    assert play.sent is not None
    play.member.failed(play.sent.number, DisconnectError("gone"), play.now)
    play.take(ForgetCoordinator)
    play.later(100)
    beat = play.beat()
    assert (beat.member_epoch, beat.subscribed_topic_names, told(beat)) == (1, ["t"], {T: [0]})


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_the_coordinator_has_moved(error: ErrorCode) -> None:
    play = ConsumerPlay()
    play.stable(0)
    play.next_beat()
    play.error(error)
    play.take(ForgetCoordinator)
    assert play.beat().member_epoch == 1


def test_a_coordinator_that_loads() -> None:
    play = ConsumerPlay()
    play.start()
    play.error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert play.is_idle()
    play.later(100)
    assert play.beat().member_epoch == 0


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "ACL READ"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "full"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "group.consumer.assignors"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, "group_instance_id"),
        (ErrorCode.FENCED_INSTANCE_ID, "group_instance_id"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2"),
        (ErrorCode.INVALID_REQUEST, "INVALID_REQUEST"),
        (ErrorCode.UNSUPPORTED_VERSION, "4.0"),
    ],
)
def test_fatal_errors(error: ErrorCode, told: str) -> None:
    """Poll says what to do, and does so every time."""
    play = ConsumerPlay()
    play.stable(0)
    play.next_beat()
    play.error(error, "because")
    report = play.report()
    assert report.is_fatal
    assert told in report.error.message
    assert report.error.message.endswith("(because)")
    lost = play.event()
    assert lost.kind == "lost"
    play.done(lost)
    assert play.assigned() == set()
    play.poll()
    play.later(60_000)
    assert play.is_idle()


def test_a_broker_that_does_not_know_the_protocol() -> None:
    play = ConsumerPlay()
    play.start()
    assert play.sent is not None
    play.member.failed(play.sent.number, UnsupportedVersionError("not served"), play.now)
    report = play.report()
    assert report.is_fatal
    assert 'group_protocol="consumer"' in report.error.message


def test_a_topic_that_may_not_be_seen() -> None:
    """Told, but not final: the right may come."""
    play = ConsumerPlay()
    play.start()
    play.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")
    assert not play.report().is_fatal
    play.later(200)
    assert play.beat().member_epoch == 0


def test_a_poll_that_does_not_come() -> None:
    """It leaves; with the next poll it hears that all is lost, and joins."""
    play = ConsumerPlay()
    play.stable(0)
    while True:
        play.later(20_000, polls=False)
        beat = play.beat()
        if beat.member_epoch < 0:
            break
        play.target(bump=False)
    assert beat.member_epoch == -1
    lost = play.event()
    assert lost.kind == "lost"
    assert play.member.needs_poll
    play.poll()
    assert play.is_idle()
    play.done(lost)
    assert play.assigned() == set()
    assert play.beat().member_epoch == 0


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("a", -2)])
def test_leaving(instance: str | None, epoch: int) -> None:
    """A static member leaves for a while only."""
    play = ConsumerPlay(SETTINGS._replace(group_instance_id=instance))
    play.stable(0)
    event = play.member.release()
    assert event is not None
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    play.member.leave("bye", play.now)
    leave = play.beat()
    assert (leave.member_epoch, leave.instance_id) == (epoch, instance)
    assert play.assigned() == set()
    play.error(ErrorCode.UNKNOWN_MEMBER_ID)
    play.poll()
    assert play.is_idle()
    assert play.member.state is State.UNSUBSCRIBED
    # It may come back.
    assert play.start().member_epoch == 0


def test_subscriptions_change() -> None:
    """The coordinator is told at once, with the next heartbeat; a pattern is taken back by ''."""
    play = ConsumerPlay()
    play.stable(0)
    play.member.subscribe(frozenset(["t", "u"]), play.now)
    assert play.beat().subscribed_topic_names == ["t", "u"]
    play.target(bump=False)
    play.member.subscribe_regex("x.*", play.now)
    beat = play.beat()
    assert (beat.subscribed_topic_names, beat.subscribed_topic_regex) == ([], "x.*")
    play.target(bump=False)
    play.member.subscribe(frozenset(["t"]), play.now)
    beat = play.beat()
    assert (beat.subscribed_topic_names, beat.subscribed_topic_regex) == (["t"], "")


@pytest.mark.parametrize("kind", ["revoked", "assigned"])
def test_a_listener_that_fails(kind: str) -> None:
    """It is called again: the coordinator waits for the member, as long as it may."""
    play = ConsumerPlay()
    play.stable(0)
    play.next_beat()
    play.target({T: [1] if kind == "revoked" else [0, 1]})
    if kind == "assigned":
        play.assigned()
    event = play.event()
    assert event.kind == kind
    play.done(event, ValueError("oops"))
    assert play.is_idle()
    play.later(100)
    again = play.event()
    assert again.kind == kind
    play.done(again)
    if kind == "revoked":
        assert play.assigned() == {T1}
        play.done(play.event())
    assert told(play.beat()) == {T: [1] if kind == "revoked" else [0, 1]}


def test_commits_that_are_refused() -> None:
    play = ConsumerPlay()
    play.stable(0)
    who = play.member.identity()
    assert play.member.commit_refused(ErrorCode.STALE_MEMBER_EPOCH, who, play.now) is None
    refused = play.member.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, who, play.now)
    assert isinstance(refused, CommitFailedError)
    assert play.event().kind == "lost"
    refused = play.member.commit_refused(ErrorCode.STALE_MEMBER_EPOCH, who, play.now)
    assert isinstance(refused, CommitFailedError)
