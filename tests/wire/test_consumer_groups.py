"""Groups of the consumer protocol (KIP-848): members join, share, leave, return (C3)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.enums import ConfigResourceType
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    described,
    find_group,
    pass_time,
    wait_until,
)
from tests.support.coordinator.group_members import (
    LEAVE_FOR_NOW,
    ConsumerMember,
    owned_by,
    reconcile,
    reconcile_to,
)
from tests.support.protocol.admin import alter
from tests.support.protocol.requests import make_topic

SESSION_MS = 45_000
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
both_versions = pytest.mark.parametrize("version", [0, 1])


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return GROUP_SETTINGS


# --- members


@both_versions
def test_two_members_share_a_topic(client: WireClient, version: int) -> None:
    group = f"shared-{version}"
    topic = make_topic(client, group, 4)
    find_group(client, group)
    first = ConsumerMember(client, group, "first", names=[group], version=version).joined()
    assert (first.epoch, first.assigned) == (2, {topic: [0, 1, 2, 3]})
    second = ConsumerMember(client, group, "second", names=[group], version=version).joined()
    assert second.assigned == {}, "the first has not revoked its partitions yet"
    reconcile(first, second)
    assert first.epoch == second.epoch == 3
    assert sorted(len(item.assigned[topic]) for item in (first, second)) == [2, 2]
    assert owned_by(first, second) == {topic: [0, 1, 2, 3]}
    leave_response = second.leave()
    assert (leave_response.error_code, leave_response.member_id, leave_response.member_epoch) == (
        0,
        "second",
        -1,
    )
    reconcile(first)
    assert first.assigned == {topic: [0, 1, 2, 3]}


def test_member_ids_are_assigned_in_version_0_and_required_later(client: WireClient) -> None:
    make_topic(client, "ids")
    find_group(client, "ids")
    member = ConsumerMember(client, "ids", "", names=["ids"], version=0).joined()
    assert len(member.member_id) == 22
    response = ConsumerMember(client, "ids", "", names=["ids"]).join()
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "MemberId" in response.error_message


def test_an_unchanged_assignment_is_not_repeated(client: WireClient) -> None:
    make_topic(client, "quiet")
    find_group(client, "quiet")
    member = ConsumerMember(client, "quiet", "m", names=["quiet"]).joined()
    response = member.beat()
    assert response.assignment is None
    assert response.heartbeat_interval_ms == 5000
    # A full request gets a full response, as after a lost response.
    full = member.request(member.epoch, owned=member.assigned, names=["quiet"], rebalance_ms=60_000)
    assert member.send(full).assignment is not None


def test_a_partition_is_assigned_only_after_it_was_revoked(client: WireClient) -> None:
    topic = make_topic(client, "slow", 2)
    find_group(client, "slow")
    first = ConsumerMember(client, "slow", "first", names=["slow"]).joined()
    second = ConsumerMember(client, "slow", "second", names=["slow"]).joined()
    response = first.beat({topic: [0, 1]})
    assert len(first.assigned[topic]) == 1
    assert response.member_epoch == 2, "it still owns the partition it must revoke"
    for _ in range(3):
        second.obey()
        assert second.assigned == {}
        first.beat({topic: [0, 1]})
    first.obey()
    second.obey()
    assert first.epoch == second.epoch == 3
    assert owned_by(first, second) == {topic: [0, 1]}


def test_a_member_that_does_not_revoke_in_time_is_fenced(
    broker: RunningBroker, client: WireClient
) -> None:
    """The member sends heartbeats, but does not revoke its partitions."""
    topic = make_topic(client, "stubborn", 2)
    find_group(client, "stubborn")
    first = ConsumerMember(client, "stubborn", "first", names=["stubborn"]).joined()
    second = ConsumerMember(client, "stubborn", "second", names=["stubborn"]).joined()
    for _ in range(3):
        assert first.beat({topic: [0, 1]}).error_code == 0
        second.obey()
        pass_time(broker, 25_000)
    assert first.beat({topic: [0, 1]}).error_code in FENCED
    reconcile_to([{topic: [0, 1]}], second)


# --- epochs


def test_a_wrong_member_epoch_is_fenced(client: WireClient) -> None:
    topic = make_topic(client, "epochs", 2)
    find_group(client, "epochs")
    member = ConsumerMember(client, "epochs", "m", names=["epochs"]).joined()
    second = ConsumerMember(client, "epochs", "n", names=["epochs"]).joined()
    reconcile(member, second)
    member.epoch += 5
    response = member.beat()
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "join again" in response.error_message
    member.joined()
    reconcile(member, second)
    assert owned_by(member, second) == {topic: [0, 1]}


def test_a_lost_response_is_repeated(client: WireClient) -> None:
    topic = make_topic(client, "lost", 2)
    find_group(client, "lost")
    member = ConsumerMember(client, "lost", "m", names=["lost"]).joined()
    make_topic(client, "lost-2")
    before = member.epoch
    assert member.beat(names=["lost", "lost-2"]).member_epoch == before + 1
    repeated = member.client.request(member.request(before, owned={topic: [0, 1]}), 1)
    assert (repeated.error_code, repeated.member_epoch) == (0, before + 1)


def test_unknown_members_are_rejected(client: WireClient) -> None:
    find_group(client, "nobody")
    make_topic(client, "nobody")
    unknown_member = ConsumerMember(client, "nobody", "stranger", names=["nobody"])
    unknown_member.epoch = 3
    response = unknown_member.beat()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "epoch 0" in response.error_message
    ConsumerMember(client, "nobody", "m", names=["nobody"]).joined()
    assert unknown_member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown_member.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- sessions


def test_a_member_without_heartbeats_is_fenced(broker: RunningBroker, client: WireClient) -> None:
    topic = make_topic(client, "silent", 2)
    find_group(client, "silent")
    silent = ConsumerMember(client, "silent", "silent", names=["silent"]).joined()
    alive = ConsumerMember(client, "silent", "alive", names=["silent"]).joined()
    reconcile(silent, alive)
    pass_time(broker, SESSION_MS - 1000)
    alive.obey()
    pass_time(broker, 2000)
    response = silent.beat()
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "silent" in response.error_message
    reconcile_to([{topic: [0, 1]}], alive)
    assert [member.member_id for member in described(client, "silent").members] == ["alive"]


def test_session_timeouts_of_the_broker_and_of_a_group(tmp_path: Path) -> None:
    """Uses the real clock; the timeout of a group applies from its next heartbeat on."""
    settings = {
        **GROUP_SETTINGS,
        "group.consumer.min.session.timeout.ms": "50",
        "group.consumer.session.timeout.ms": "200",
        "group.consumer.min.heartbeat.interval.ms": "10",
        "group.consumer.heartbeat.interval.ms": "50",
    }
    with watching(), running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t")
        find_group(client, "g")
        short = ConsumerMember(client, "g", "m", names=["t"]).joined()
        long_lived = ConsumerMember(client, "patient", "m", names=["t"]).joined()
        assert short.beat().heartbeat_interval_ms == 50
        group_configs = {
            "consumer.session.timeout.ms": "60000",
            "consumer.heartbeat.interval.ms": "5000",
        }
        alter(client, ConfigResourceType.GROUP, "patient", group_configs)
        assert long_lived.beat().heartbeat_interval_ms == 5000
        wait_until(lambda: described(client, "g").group_state == "Empty")
        assert short.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert long_lived.beat().error_code == 0
        alter(client, ConfigResourceType.GROUP, "patient", dict.fromkeys(group_configs))
        assert long_lived.beat().heartbeat_interval_ms == 50
        wait_until(lambda: described(client, "patient").group_state == "Empty")


def test_the_assignment_interval_changes_without_a_restart(client: WireClient) -> None:
    """`group.consumer.assignment.interval.ms` can be changed (KIP-1101)."""
    make_topic(client, "dynamic", 2)
    find_group(client, "dynamic")
    first = ConsumerMember(client, "dynamic", "first", names=["dynamic"]).joined()
    name = "group.consumer.assignment.interval.ms"
    alter(client, ConfigResourceType.BROKER, "", {name: "15000"})
    try:
        second = ConsumerMember(client, "dynamic", "second", names=["dynamic"]).joined()
        reconcile(first, second)
        assert second.assigned == {}, "the previous target assignment still applies"
    finally:
        alter(client, ConfigResourceType.BROKER, "", {name: None})
    reconcile(first, second)
    assert [len(owned) for item in (first, second) for owned in item.assigned.values()] == [1, 1]


# --- static members


def test_a_static_member_gets_its_partitions_back(client: WireClient) -> None:
    topic = make_topic(client, "static", 4)
    find_group(client, "static")
    first = ConsumerMember(client, "static", "a-1", names=["static"], instance="a").joined()
    second = ConsumerMember(client, "static", "b-1", names=["static"], instance="b").joined()
    reconcile(first, second)
    partitions_before = first.assigned
    assert first.leave(LEAVE_FOR_NOW).error_code == 0
    second.obey()
    assert len(second.assigned[topic]) == 2, "the partitions stay reserved for the static member"
    returned = ConsumerMember(client, "static", "a-2", names=["static"], instance="a").joined()
    assert (returned.epoch, returned.assigned) == (first.epoch, partitions_before)
    response = first.beat()
    assert response.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert "a-2" in response.error_message


def test_an_instance_id_in_use_is_rejected(client: WireClient) -> None:
    make_topic(client, "taken")
    find_group(client, "taken")
    first = ConsumerMember(client, "taken", "a-1", names=["taken"], instance="a").joined()
    twin = ConsumerMember(client, "taken", "a-2", names=["taken"], instance="a")
    response = twin.join()
    assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert "a-1" in response.error_message
    assert first.leave().error_code == 0
    assert twin.join().error_code == 0


def test_the_session_of_an_absent_static_member_ends(
    broker: RunningBroker, client: WireClient
) -> None:
    topic = make_topic(client, "never", 2)
    find_group(client, "never")
    first = ConsumerMember(client, "never", "a-1", names=["never"], instance="a").joined()
    second = ConsumerMember(client, "never", "b-1", names=["never"], instance="b").joined()
    reconcile(first, second)
    first.leave(LEAVE_FOR_NOW)
    pass_time(broker, SESSION_MS - 1000)
    second.obey()
    assert len(second.assigned[topic]) == 1
    pass_time(broker, 2000)
    reconcile_to([{topic: [0, 1]}], second)


# --- assignors


def test_members_select_an_assignor(client: WireClient) -> None:
    ids = [make_topic(client, f"chosen-{index}", 3) for index in range(2)]
    names = ["chosen-0", "chosen-1"]
    find_group(client, "chosen")
    members = [
        ConsumerMember(client, "chosen", name, names=names, assignor="range").joined()
        for name in ("a", "b")
    ]
    reconcile(*members)
    assert described(client, "chosen").assignor_name == "range"
    # Range assigns the same partitions of every topic to a member.
    assert members[0].assigned == {id_: [0, 1] for id_ in ids}
    assert members[1].assigned == {id_: [2] for id_ in ids}
    for member in members:
        member.beat(assignor="uniform")
    reconcile(*members)
    assert described(client, "chosen").assignor_name == "uniform"


def test_an_unknown_assignor_is_rejected(client: WireClient) -> None:
    find_group(client, "odd")
    response = ConsumerMember(client, "odd", "m", names=["t"], assignor="sticky").join()
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "sticky" in response.error_message
    assert "uniform, range" in response.error_message


# --- invalid requests


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, "TopicPartitions"),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames"),
        ({"group_id": ""}, "GroupId"),
        ({"group_id": "  "}, "GroupId"),
        ({"instance_id": ""}, "InstanceId"),
        ({"rack_id": ""}, "RackId"),
        ({"member_epoch": -2}, "InstanceId"),
        ({"member_epoch": -3}, "MemberEpoch"),
    ],
)
def test_an_invalid_heartbeat_is_rejected(
    client: WireClient, change: dict[str, object], message: str
) -> None:
    find_group(client, "wrong")
    request = ConsumerMember(client, "wrong", "m", names=["t"]).join_request()
    for field, value in change.items():
        setattr(request, field, value)
    response = client.request(request, 1)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert message in response.error_message


def test_a_record_that_is_too_large_for_the_log_is_rejected(
    broker: RunningBroker, client: WireClient
) -> None:
    """The group is unchanged, and the error message refers to the log."""
    find_group(client, "huge")
    names = [f"topic-{number}" for number in range(100_000)]
    response = ConsumerMember(client, "huge", "m", names=names).join()
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "log" in response.error_message
    assert described(client, "huge").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert ConsumerMember(client, "huge", "m", names=["few"]).join().error_code == 0


def test_a_broker_without_coordinators_rejects_heartbeats(tmp_path: Path) -> None:
    """No client has looked for a coordinator yet."""
    with watching(), running_broker(tmp_path) as broker, broker.connect() as client:
        response = client.request(ConsumerGroupHeartbeatRequest("g", "m"), 1)
        assert response.error_code == ErrorCode.NOT_COORDINATOR
        assert "coordinator" in response.error_message


def test_the_size_of_a_group_is_limited(tmp_path: Path) -> None:
    settings = {**GROUP_SETTINGS, "group.consumer.max.size": "2"}
    with watching(), running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t", 2)
        find_group(client, "g")
        first = ConsumerMember(client, "g", "a", names=["t"]).joined()
        ConsumerMember(client, "g", "b", names=["t"]).joined()
        third = ConsumerMember(client, "g", "c", names=["t"])
        response = third.join()
        assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert "2" in response.error_message
        first.leave()
        assert third.join().error_code == 0
