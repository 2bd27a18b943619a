"""ConsumerGroupHeartbeat: validation, joining, epochs, leaving, sessions (C3)."""

import pytest

from penstock.coordinator.group.config import ConsumerGroupConfig, GroupConfig
from penstock.coordinator.group.consumer.model import ConsumerGroupState
from penstock.coordinator.group.events import SessionTimer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from tests.support.coordinator.consumer_groups import (
    REBALANCE_MS,
    SESSION_MS,
    Consumer,
    beat_request,
    consumer_host,
    kinds,
    reconcile,
)
from tests.support.coordinator.groups import GroupHost, commit_request, committed, join_request


def send(
    host: GroupHost, request: ConsumerGroupHeartbeatRequest, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    return host.request(request, ConsumerGroupHeartbeatResponse, version)


# --- validation


@pytest.mark.parametrize(
    ("member_id", "group", "epoch", "instance", "rack", "words"),
    [
        ("", "g", 0, None, None, "MemberId"),
        (" ", "g", 3, None, None, "MemberId"),
        ("m", " ", 3, None, None, "GroupId"),
        ("m", "g", 3, "", None, "InstanceId"),
        ("m", "g", 3, None, "", "RackId"),
        ("m", "g", -2, None, None, "InstanceId"),
        ("m", "g", -3, None, None, "MemberEpoch"),
        ("", "", 0, None, None, "MemberId"),
    ],
)
def test_invalid_requests_are_rejected(
    member_id: str, group: str, epoch: int, instance: str | None, rack: str | None, words: str
) -> None:
    request = beat_request(
        member_id, epoch, group=group, instance=instance, rack=rack, names=["t"], owned={}
    )
    request.rebalance_timeout_ms = REBALANCE_MS
    response = send(consumer_host(), request)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert words in (response.error_message or "")


@pytest.mark.parametrize("missing", ["rebalance_ms", "owned", "names"])
def test_a_join_needs_all_fields(missing: str) -> None:
    request = beat_request("m", 0, names=["t"], owned={}, rebalance_ms=REBALANCE_MS)
    match missing:
        case "rebalance_ms":
            request.rebalance_timeout_ms = -1
        case "owned":
            request.topic_partitions = None
        case "names":
            request.subscribed_topic_names = None
    assert send(consumer_host(), request).error_code == ErrorCode.INVALID_REQUEST


def test_an_unknown_assignor_is_rejected() -> None:
    response = Consumer(consumer_host(), "m", assignor="best").join()
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in (response.error_message or "")


def test_only_a_join_creates_a_group() -> None:
    response = send(consumer_host(), beat_request("m", 1))
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_unknown_members_are_rejected() -> None:
    host = consumer_host()
    Consumer(host, "a").join()
    assert send(host, beat_request("b", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert send(host, beat_request("b", -1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_rejects_new_members() -> None:
    config = GroupConfig(group_consumer_max_size=1)
    host = consumer_host(config=config)
    member = Consumer(host, "a")
    member.join()
    assert Consumer(host, "b").join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert member.join().error_code == ErrorCode.NONE


@pytest.mark.parametrize("step", [-1, 1])
def test_a_wrong_epoch_is_fenced(step: int) -> None:
    host = consumer_host()
    member = Consumer(host, "a")
    member.join()
    reconcile(member)
    member.beat(names=["t", "u"])
    member.obey()
    request = beat_request("a", member.epoch + step, owned={"u": [9]})
    assert send(host, request).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_the_previous_epoch_is_accepted_after_a_lost_response() -> None:
    """The previous epoch is valid if the member owns nothing outside its assignment."""
    host = consumer_host()
    member = Consumer(host, "a")
    member.join()
    previous_epoch = member.epoch
    member.beat(names=["t", "u"])
    assert member.epoch == previous_epoch + 1
    retry = send(host, beat_request("a", previous_epoch, owned={"t": [0, 1]}))
    assert (retry.error_code, retry.member_epoch) == (ErrorCode.NONE, member.epoch)
    silent = send(host, beat_request("a", previous_epoch))
    assert silent.error_code == ErrorCode.FENCED_MEMBER_EPOCH


# --- joining


def test_the_first_member_gets_everything() -> None:
    host = consumer_host({"t": 3})
    member = Consumer(host, "a")
    response = member.join()
    assert (response.member_id, response.member_epoch) == ("a", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert member.assigned == {"t": [0, 1, 2]}
    assert kinds(host, 0) == [5, 3, 7, 6, 8]
    assert host.consumer().state is ConsumerGroupState.STABLE


def test_version_0_lets_the_coordinator_choose_the_id() -> None:
    """As Kafka formats a UUID: 22 characters of base64 that do not start with a dash."""
    host = consumer_host()
    request = beat_request("", 0, names=["t"], owned={}, rebalance_ms=REBALANCE_MS)
    ids = {send(host, request, 0).member_id or "" for _ in range(200)}
    assert len(ids) == 200
    assert {len(id_) for id_ in ids} == {22}
    assert not any(id_.startswith("-") for id_ in ids)


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    host = consumer_host()
    member = Consumer(host, "a")
    member.join()
    since = len(host.log)
    response = member.beat()
    assert kinds(host, since) == []
    assert response.assignment is None


def test_a_full_heartbeat_gets_a_full_response() -> None:
    host = consumer_host({"t": 2})
    member = Consumer(host, "a")
    member.join()
    since = len(host.log)
    request = beat_request(
        "a", member.epoch, names=["t"], owned={"t": [0, 1]}, rebalance_ms=REBALANCE_MS
    )
    assert member.hear(request).assignment is not None
    assert kinds(host, since) == []


def test_a_member_without_topics_does_not_affect_others() -> None:
    host = consumer_host()
    first, idle = Consumer(host, "a"), Consumer(host, "b", names=[])
    first.join()
    since = len(host.log)
    assert idle.join().member_epoch == first.epoch
    assert idle.assigned == {}
    assert kinds(host, since) == [5, 8]


def test_the_assignor_of_most_members_is_used() -> None:
    host = consumer_host({"t": 3, "u": 3})
    members = [
        Consumer(host, "a", names=["t", "u"], assignor="range"),
        Consumer(host, "b", names=["t", "u"], assignor="range"),
        Consumer(host, "c", names=["t", "u"], assignor="uniform"),
    ]
    for member in members:
        member.join()
    reconcile(*members)
    # Range assigns each member the same partition of both topics.
    assert {str(m.assigned["t"]) for m in members} == {"[0]", "[1]", "[2]"}
    assert all(m.assigned["t"] == m.assigned["u"] for m in members)


# --- epochs


def test_a_new_subscription_bumps_the_epoch() -> None:
    host = consumer_host({"t": 2, "u": 1})
    member = Consumer(host, "a")
    member.join()
    assert member.beat(names=["t", "u"]).member_epoch == 3
    assert member.assigned == {"t": [0, 1], "u": [0]}


def test_a_new_rack_or_timeout_is_stored_without_a_new_epoch() -> None:
    host = consumer_host()
    member = Consumer(host, "a")
    member.join()
    since = len(host.log)
    member.hear(beat_request("a", member.epoch, rack="r", rebalance_ms=7))
    assert kinds(host, since) == [5]
    stored = host.consumer().members["a"]
    assert (stored.rack_id, stored.rebalance_timeout_ms) == ("r", 7)


def test_new_topics_and_partitions_are_assigned_with_the_next_heartbeat() -> None:
    host = consumer_host({"t": 1})
    member = Consumer(host, "a", names=["t", "later"])
    member.join()
    host.make_topics({"t": 2})
    assert member.beat().member_epoch == 3
    assert member.assigned == {"t": [0, 1]}
    host.make_topics({"later": 1})
    member.beat()
    assert member.assigned == {"t": [0, 1], "later": [0]}
    host.make_topics({"other": 1})
    since = len(host.log)
    member.beat()
    assert kinds(host, since) == []


def test_a_deleted_topic_is_revoked() -> None:
    host = consumer_host({"t": 1, "u": 1})
    member = Consumer(host, "a", names=["t", "u"])
    member.join()
    host.make_topics({"u": 0})
    member.beat({"t": [0]})
    assert member.assigned == {"t": [0]}


def test_target_assignments_have_a_minimum_interval() -> None:
    """`group.consumer.assignment.interval.ms`: members that join earlier wait for the next."""
    config = GroupConfig(consumer=ConsumerGroupConfig(assignment_interval_ms=1_000))
    host = consumer_host(config=config)
    first, second = Consumer(host, "a"), Consumer(host, "b")
    first.join()
    assert second.join().member_epoch == first.epoch
    assert host.consumer().state is ConsumerGroupState.ASSIGNING
    host.advance(999)
    second.beat()
    assert second.epoch == first.epoch
    host.advance(1)
    second.beat()
    assert second.epoch == first.epoch + 1


def test_an_assignment_of_the_future_delays_no_other() -> None:
    """The clock was set back, or that of the last coordinator was ahead."""
    config = GroupConfig(consumer=ConsumerGroupConfig(assignment_interval_ms=1_000))
    host = consumer_host(config=config)
    first, second = Consumer(host, "a"), Consumer(host, "b")
    first.join()
    host.now -= 3_600_000
    assert second.join().member_epoch == first.epoch + 1


def test_group_configs_override_the_defaults() -> None:
    own = {"g": ConsumerGroupConfig(session_timeout_ms=50_000, heartbeat_interval_ms=7_000)}
    host = consumer_host(config=GroupConfig(consumer_overrides=own))
    assert Consumer(host, "a").join().heartbeat_interval_ms == 7_000
    assert Consumer(host, "a", group="h").join().heartbeat_interval_ms == 5_000
    host.advance(49_999)
    assert set(host.shard.groups["g"].members) == {"a"}
    assert not host.shard.groups["h"].members
    host.advance(1)
    assert not host.shard.groups["g"].members


# --- leaving


def test_the_partitions_of_a_leaving_member_are_reassigned() -> None:
    host = consumer_host({"t": 2})
    first, second = Consumer(host, "a"), Consumer(host, "b")
    first.join()
    second.join()
    reconcile(first, second)
    epoch = first.epoch
    since = len(host.log)
    response = second.leave()
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, -1)
    assert kinds(host, since) == [-8, -7, -5, 3]
    first.beat()
    assert first.epoch == epoch + 1
    assert first.assigned == {"t": [0, 1]}


def test_an_expired_member_is_removed() -> None:
    host = consumer_host({"t": 2})
    first, second = Consumer(host, "a"), Consumer(host, "b")
    first.join()
    second.join()
    host.advance(SESSION_MS - 1)
    first.obey()
    host.advance(1)
    assert set(host.consumer().members) == {"a"}
    reconcile(first)
    assert first.assigned == {"t": [0, 1]}
    assert second.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sessions_restart_with_the_coordinator() -> None:
    host = consumer_host()
    member = Consumer(host, "a")
    member.join()
    host.advance(SESSION_MS - 1)
    host.restart()
    host.advance(SESSION_MS - 1)
    assert member.beat().error_code == ErrorCode.NONE
    host.restart()
    host.advance(SESSION_MS)
    assert not host.consumer().members


def test_a_coordinator_restart_changes_no_assignment() -> None:
    host = consumer_host()
    first, second = Consumer(host, "a"), Consumer(host, "b")
    first.join()
    second.join()
    reconcile(first, second)
    assignments = (first.epoch, first.assigned, second.assigned)
    host.restart()
    reconcile(first, second)
    assert (first.epoch, first.assigned, second.assigned) == assignments


def test_a_failed_write_changes_nothing() -> None:
    host = consumer_host()
    member = Consumer(host, "a")
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert member.join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not host.shard.groups
    assert SessionTimer("g", "a") not in host.timers
    assert member.join().error_code == ErrorCode.NONE


def test_an_expiry_that_cannot_be_written_is_retried() -> None:
    host = consumer_host()
    Consumer(host, "a").join()
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    host.advance(SESSION_MS)
    assert set(host.consumer().members) == {"a"}
    host.advance(1_000)
    assert not host.consumer().members


# --- empty groups change their type


def test_an_empty_classic_group_becomes_a_consumer_group() -> None:
    """The offsets are kept."""
    host = consumer_host()
    host.request(commit_request({("t", 1): 5}), OffsetCommitResponse, 9)
    since = len(host.log)
    Consumer(host, "a").join()
    assert kinds(host, since)[0] == -2
    host.restart()
    assert set(host.consumer().members) == {"a"}
    assert committed(host) == {("t", 1): 5}


def test_an_empty_consumer_group_becomes_a_classic_group() -> None:
    host = consumer_host()
    member = Consumer(host, "a")
    member.join()
    member.leave()
    since = len(host.log)
    host.send(join_request(), 3)
    assert kinds(host, since) == [-6, -4, -3, 2]
    assert len(host.classic().members) == 1
    host.restart()
    assert host.classic().is_empty
