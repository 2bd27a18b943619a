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
from tests.support.client.membership_driver import MachineDriver
from tests.support.coordinator.groups import id_of

SETTINGS = MemberSettings("g", max_poll_interval_ms=10_000, rack_id="r", remote_assignor="range")
T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
T, U = id_of("t"), id_of("u")
NAMES = {T: "t"}
Target = Mapping[UUID, list[int]]


class ConsumerProtocolDriver(MachineDriver):
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
        """Returns the heartbeat that is due after the interval."""
        self.advance(1_000)
        return self.beat()

    def target(self, target: Target | None = None, *, bump: bool = True) -> None:
        """Responds to the heartbeat, optionally with a new target assignment."""
        self.epoch += bump
        assignment = None
        if target is not None:
            topics = [
                ConsumerGroupHeartbeatResponseTopicPartitions(topic, partitions)
                for topic, partitions in target.items()
            ]
            assignment = ConsumerGroupHeartbeatAssignment(topics)
        self.respond(
            ConsumerGroupHeartbeatResponse(
                member_id="me",
                member_epoch=self.epoch,
                heartbeat_interval_ms=1_000,
                assignment=assignment,
            )
        )

    def error(self, code: ErrorCode, message: str | None = None) -> None:
        self.respond(ConsumerGroupHeartbeatResponse(0, code, message))

    def stable(self, *partitions: int) -> None:
        self.start()
        self.target({T: list(partitions)})
        self.assigned()
        self.done(self.event())
        self.beat()
        self.target(bump=False)
        assert self.member.is_stable


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> dict[UUID, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {
        topic_partition.topic_id: topic_partition.partitions
        for topic_partition in request.topic_partitions
    }


def test_the_first_assignment() -> None:
    """The join heartbeat has all fields; later ones only those that have changed."""
    driver = ConsumerProtocolDriver()
    assert driver.member.metadata_identity() == Identity(-1, "me", None)
    join = driver.start()
    assert (join.member_id, join.member_epoch, join.rebalance_timeout_ms) == ("me", 0, 10_000)
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == (["t"], None)
    assert (join.rack_id, join.server_assignor, owned_partitions(join)) == ("r", "range", {})
    driver.target({T: [0, 1]})
    assert driver.assigned() == {T0, T1}
    event = driver.event()
    assert (event.kind, event.partitions) == ("assigned", (T0, T1))
    assert driver.is_idle()
    driver.done(event)
    acknowledged = driver.beat()
    assert owned_partitions(acknowledged) == {T: [0, 1]}
    assert acknowledged.member_epoch == 1
    driver.target(bump=False)
    assert driver.member.is_stable
    beat = driver.next_beat()
    assert (beat.subscribed_topic_names, beat.rack_id, beat.server_assignor) == (None, None, None)
    assert (beat.rebalance_timeout_ms, owned_partitions(beat)) == (-1, None)
    assert driver.member.identity() == Identity(1, "me", None)


def test_partitions_are_revoked_before_new_ones_are_assigned() -> None:
    """The coordinator is notified after the listener has handled both."""
    driver = ConsumerProtocolDriver()
    driver.stable(0, 1)
    driver.next_beat()
    driver.target({T: [1, 2]})
    revoked = driver.event()
    assert (revoked.kind, revoked.partitions) == ("revoked", (T0,))
    assert driver.member.owned == {T0, T1}
    driver.done(revoked)
    assert driver.assigned() == {T1, T2}
    added = driver.event()
    assert (added.kind, added.partitions) == ("assigned", (T2,))
    driver.done(added)
    assert owned_partitions(driver.beat()) == {T: [1, 2]}


def test_a_target_that_changes_during_a_revocation_is_applied_later() -> None:
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    driver.next_beat()
    driver.target({T: [1]})
    revoked = driver.event()
    assert owned_partitions(driver.next_beat()) is None
    driver.target({T: [0, 2]})
    driver.done(revoked)
    assert driver.assigned() == {T1}
    driver.done(driver.event())
    assert owned_partitions(driver.beat()) == {T: [1]}
    driver.target(bump=False)
    # Then it continues with the newer target.
    assert driver.event().partitions == (T1,)


def test_partitions_are_not_assigned_while_a_heartbeat_without_them_is_in_flight() -> None:
    """The coordinator would consider them revoked, and could assign them to another member."""
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    driver.next_beat()
    assert driver.sent is not None
    driver.member.handle_failure(driver.sent.number, DisconnectError("disconnected"), driver.now)
    driver.take(ForgetCoordinator)
    assert owned_partitions(driver.next_beat()) == {T: [0]}
    driver.target({T: [0, 1]})
    assert driver.assigned() == {T0, T1}


def test_unknown_topic_ids_are_resolved() -> None:
    """Partitions of known topics are assigned immediately, the others once they are resolved."""
    driver = ConsumerProtocolDriver()
    driver.start()
    driver.target({T: [0], U: [1]})
    assert driver.take(ResolveTopics).topic_ids == {U}
    assert driver.assigned() == {T0}
    driver.done(driver.event())
    assert owned_partitions(driver.beat()) == {T: [0]}
    driver.target(bump=False)
    assert not driver.member.is_stable
    driver.advance(100)
    driver.take(ResolveTopics)
    driver.member.topics_resolved({U: "u"}, driver.now)
    assert driver.assigned() == {T0, TopicPartition("u", 1)}
    driver.done(driver.event())
    assert owned_partitions(driver.beat()) == {T: [0], U: [1]}
    driver.target(bump=False)
    assert driver.member.is_stable


@pytest.mark.parametrize("error", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_joins_again(error: ErrorCode) -> None:
    """All partitions are lost; the member id stays the same."""
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    driver.next_beat()
    driver.error(error)
    lost = driver.event()
    assert (lost.kind, lost.partitions) == ("lost", (T0,))
    with pytest.raises(CommitFailedError):
        driver.member.identity()
    driver.done(lost)
    assert driver.assigned() == set()
    join = driver.beat()
    assert (join.member_id, join.member_epoch, owned_partitions(join)) == ("me", 0, {})


def test_a_member_fenced_during_a_listener_call_loses_its_partitions_afterwards() -> None:
    driver = ConsumerProtocolDriver()
    driver.stable(0, 1)
    driver.next_beat()
    driver.target({T: [1, 2]})
    revoked = driver.event()
    driver.next_beat()
    driver.error(ErrorCode.FENCED_MEMBER_EPOCH)
    assert driver.is_idle()
    driver.done(revoked)
    assert driver.event().kind == "lost"


def test_the_first_heartbeat_after_a_disconnect_has_all_fields() -> None:
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    driver.next_beat()
    assert driver.sent is not None
    driver.member.handle_failure(driver.sent.number, DisconnectError("disconnected"), driver.now)
    driver.take(ForgetCoordinator)
    driver.advance(100)
    beat = driver.beat()
    assert (beat.member_epoch, beat.subscribed_topic_names, owned_partitions(beat)) == (
        1,
        ["t"],
        {T: [0]},
    )


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_moved_coordinator_is_looked_up_again(error: ErrorCode) -> None:
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    driver.next_beat()
    driver.error(error)
    driver.take(ForgetCoordinator)
    assert driver.beat().member_epoch == 1


def test_a_heartbeat_to_a_loading_coordinator_is_retried() -> None:
    driver = ConsumerProtocolDriver()
    driver.start()
    driver.error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert driver.is_idle()
    driver.advance(100)
    assert driver.beat().member_epoch == 0


@pytest.mark.parametrize(
    ("error", "message"),
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
def test_a_fatal_error_is_reported_and_ends_the_membership(error: ErrorCode, message: str) -> None:
    """The message says what to do."""
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    driver.next_beat()
    driver.error(error, "because")
    report = driver.report()
    assert report.is_fatal
    assert message in report.error.message
    assert report.error.message.endswith("(because)")
    lost = driver.event()
    assert lost.kind == "lost"
    driver.done(lost)
    assert driver.assigned() == set()
    driver.poll()
    driver.advance(60_000)
    assert driver.is_idle()


def test_a_broker_without_the_consumer_protocol_is_a_fatal_error() -> None:
    driver = ConsumerProtocolDriver()
    driver.start()
    assert driver.sent is not None
    driver.member.handle_failure(
        driver.sent.number, UnsupportedVersionError("not served"), driver.now
    )
    report = driver.report()
    assert report.is_fatal
    assert 'group_protocol="consumer"' in report.error.message


def test_an_unauthorized_topic_is_reported_but_not_fatal() -> None:
    """The permission may be granted later."""
    driver = ConsumerProtocolDriver()
    driver.start()
    driver.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t")
    assert not driver.report().is_fatal
    driver.advance(200)
    assert driver.beat().member_epoch == 0


def test_a_member_that_does_not_poll_leaves_the_group() -> None:
    """Its partitions are lost; it joins again at the next poll."""
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    while True:
        driver.advance(20_000, polls=False)
        beat = driver.beat()
        if beat.member_epoch < 0:
            break
        driver.target(bump=False)
    assert beat.member_epoch == -1
    lost = driver.event()
    assert lost.kind == "lost"
    assert driver.member.needs_poll
    driver.poll()
    assert driver.is_idle()
    driver.done(lost)
    assert driver.assigned() == set()
    assert driver.beat().member_epoch == 0


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("a", -2)])
def test_leaving(instance: str | None, epoch: int) -> None:
    """A static member leaves temporarily."""
    driver = ConsumerProtocolDriver(SETTINGS._replace(group_instance_id=instance))
    driver.stable(0)
    event = driver.member.prepare_leave()
    assert event is not None
    assert (event.kind, event.partitions) == ("revoked", (T0,))
    driver.member.leave("bye", driver.now)
    leave = driver.beat()
    assert (leave.member_epoch, leave.instance_id) == (epoch, instance)
    assert driver.assigned() == set()
    driver.error(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.poll()
    assert driver.is_idle()
    assert driver.member.state is State.UNSUBSCRIBED
    # It may join again.
    assert driver.start().member_epoch == 0


def test_a_changed_subscription_is_sent_immediately() -> None:
    """A pattern is removed by ''."""
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    driver.member.subscribe(frozenset(["t", "u"]), driver.now)
    assert driver.beat().subscribed_topic_names == ["t", "u"]
    driver.target(bump=False)
    driver.member.subscribe_regex("x.*", driver.now)
    beat = driver.beat()
    assert (beat.subscribed_topic_names, beat.subscribed_topic_regex) == ([], "x.*")
    driver.target(bump=False)
    driver.member.subscribe(frozenset(["t"]), driver.now)
    beat = driver.beat()
    assert (beat.subscribed_topic_names, beat.subscribed_topic_regex) == (["t"], "")


@pytest.mark.parametrize("kind", ["revoked", "assigned"])
def test_a_failed_listener_is_called_again(kind: str) -> None:
    """The coordinator waits for the member until its rebalance timeout."""
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    driver.next_beat()
    driver.target({T: [1] if kind == "revoked" else [0, 1]})
    if kind == "assigned":
        driver.assigned()
    event = driver.event()
    assert event.kind == kind
    driver.done(event, ValueError("oops"))
    assert driver.is_idle()
    driver.advance(100)
    retried_event = driver.event()
    assert retried_event.kind == kind
    driver.done(retried_event)
    if kind == "revoked":
        assert driver.assigned() == {T1}
        driver.done(driver.event())
    assert owned_partitions(driver.beat()) == {T: [1] if kind == "revoked" else [0, 1]}


def test_a_commit_error_fails_the_commit_if_the_member_is_fenced() -> None:
    driver = ConsumerProtocolDriver()
    driver.stable(0)
    identity = driver.member.identity()
    assert (
        driver.member.handle_commit_error(ErrorCode.STALE_MEMBER_EPOCH, identity, driver.now)
        is None
    )
    refused = driver.member.handle_commit_error(ErrorCode.UNKNOWN_MEMBER_ID, identity, driver.now)
    assert isinstance(refused, CommitFailedError)
    assert driver.event().kind == "lost"
    refused = driver.member.handle_commit_error(ErrorCode.STALE_MEMBER_EPOCH, identity, driver.now)
    assert isinstance(refused, CommitFailedError)
