"""Groups of the newer protocol (KIP-848) over the wire: members join, share, leave, return (C3)."""

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
    settle,
    settle_on,
)
from tests.support.protocol.admin import alter
from tests.support.protocol.requests import make_topic

SESSION_MS = 45_000
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
both_versions = pytest.mark.parametrize("version", [0, 1])


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return GROUP_SETTINGS


# --- members come and go


@both_versions
def test_two_members_share_a_topic(client: WireClient, version: int) -> None:
    group = f"shared-{version}"
    topic = make_topic(client, group, 4)
    find_group(client, group)
    first = ConsumerMember(client, group, "first", names=[group], version=version).joined()
    assert (first.epoch, first.assigned) == (2, {topic: [0, 1, 2, 3]})
    second = ConsumerMember(client, group, "second", names=[group], version=version).joined()
    assert second.assigned == {}, "the first has not let go yet"
    settle(first, second)
    assert first.epoch == second.epoch == 3
    assert sorted(len(item.assigned[topic]) for item in (first, second)) == [2, 2]
    assert owned_by(first, second) == {topic: [0, 1, 2, 3]}
    gone = second.leave()
    assert (gone.error_code, gone.member_id, gone.member_epoch) == (0, "second", -1)
    settle(first)
    assert first.assigned == {topic: [0, 1, 2, 3]}


def test_the_broker_gives_ids_in_version_0_and_wants_them_later(client: WireClient) -> None:
    make_topic(client, "ids")
    find_group(client, "ids")
    member = ConsumerMember(client, "ids", "", names=["ids"], version=0).joined()
    assert len(member.member_id) == 22
    refused = ConsumerMember(client, "ids", "", names=["ids"]).join()
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "MemberId" in refused.error_message


def test_what_is_not_new_is_not_said_again(client: WireClient) -> None:
    make_topic(client, "quiet")
    find_group(client, "quiet")
    member = ConsumerMember(client, "quiet", "m", names=["quiet"]).joined()
    response = member.beat()
    assert response.assignment is None
    assert response.heartbeat_interval_ms == 5000
    # A full request asks for a full answer, as after an answer that got lost.
    full = member.request(member.epoch, owned=member.assigned, names=["quiet"], rebalance_ms=60_000)
    assert member.send(full).assignment is not None


def test_a_partition_is_given_only_after_it_was_let_go(client: WireClient) -> None:
    topic = make_topic(client, "slow", 2)
    find_group(client, "slow")
    first = ConsumerMember(client, "slow", "first", names=["slow"]).joined()
    second = ConsumerMember(client, "slow", "second", names=["slow"]).joined()
    told = first.beat({topic: [0, 1]})
    assert len(first.assigned[topic]) == 1
    assert told.member_epoch == 2, "it still has what it must let go"
    for _ in range(3):
        second.obey()
        assert second.assigned == {}
        first.beat({topic: [0, 1]})
    first.obey()
    second.obey()
    assert first.epoch == second.epoch == 3
    assert owned_by(first, second) == {topic: [0, 1]}


def test_who_does_not_let_go_in_time_is_fenced(broker: RunningBroker, client: WireClient) -> None:
    """The member goes on with its heartbeats, but keeps what it was asked to give up."""
    topic = make_topic(client, "stubborn", 2)
    find_group(client, "stubborn")
    first = ConsumerMember(client, "stubborn", "first", names=["stubborn"]).joined()
    second = ConsumerMember(client, "stubborn", "second", names=["stubborn"]).joined()
    for _ in range(3):
        assert first.beat({topic: [0, 1]}).error_code == 0
        second.obey()
        pass_time(broker, 25_000)
    assert first.beat({topic: [0, 1]}).error_code in FENCED
    settle_on([{topic: [0, 1]}], second)


# --- epochs


def test_an_epoch_of_the_past_is_fenced(client: WireClient) -> None:
    topic = make_topic(client, "epochs", 2)
    find_group(client, "epochs")
    member = ConsumerMember(client, "epochs", "m", names=["epochs"]).joined()
    other = ConsumerMember(client, "epochs", "n", names=["epochs"]).joined()
    settle(member, other)
    member.epoch += 5
    response = member.beat()
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "join again" in response.error_message
    member.joined()
    settle(member, other)
    assert owned_by(member, other) == {topic: [0, 1]}


def test_an_answer_that_got_lost_is_given_again(client: WireClient) -> None:
    topic = make_topic(client, "lost", 2)
    find_group(client, "lost")
    member = ConsumerMember(client, "lost", "m", names=["lost"]).joined()
    make_topic(client, "lost-2")
    before = member.epoch
    assert member.beat(names=["lost", "lost-2"]).member_epoch == before + 1
    again = member.client.request(member.request(before, owned={topic: [0, 1]}), 1)
    assert (again.error_code, again.member_epoch) == (0, before + 1)


def test_members_that_nobody_knows(client: WireClient) -> None:
    find_group(client, "nobody")
    make_topic(client, "nobody")
    stranger = ConsumerMember(client, "nobody", "stranger", names=["nobody"])
    stranger.epoch = 3
    response = stranger.beat()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "epoch 0" in response.error_message
    ConsumerMember(client, "nobody", "m", names=["nobody"]).joined()
    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- sessions


def test_who_is_not_heard_of_is_fenced(broker: RunningBroker, client: WireClient) -> None:
    topic = make_topic(client, "silent", 2)
    find_group(client, "silent")
    silent = ConsumerMember(client, "silent", "silent", names=["silent"]).joined()
    alive = ConsumerMember(client, "silent", "alive", names=["silent"]).joined()
    settle(silent, alive)
    pass_time(broker, SESSION_MS - 1000)
    alive.obey()
    pass_time(broker, 2000)
    response = silent.beat()
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "silent" in response.error_message
    settle_on([{topic: [0, 1]}], alive)
    assert [member.member_id for member in described(client, "silent").members] == ["alive"]


def test_sessions_are_as_long_as_the_settings_say(tmp_path: Path) -> None:
    """By the real clock; a group of its own settings lives longer, from its next heartbeat on."""
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
        patient = ConsumerMember(client, "patient", "m", names=["t"]).joined()
        assert short.beat().heartbeat_interval_ms == 50
        own = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "5000"}
        alter(client, ConfigResourceType.GROUP, "patient", own)
        assert patient.beat().heartbeat_interval_ms == 5000
        wait_until(lambda: described(client, "g").group_state == "Empty")
        assert short.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert patient.beat().error_code == 0
        alter(client, ConfigResourceType.GROUP, "patient", dict.fromkeys(own))
        assert patient.beat().heartbeat_interval_ms == 50
        wait_until(lambda: described(client, "patient").group_state == "Empty")


def test_the_broker_s_settings_change_without_a_restart(client: WireClient) -> None:
    """`group.consumer.assignment.interval.ms` is the one that can (KIP-1101)."""
    make_topic(client, "dynamic", 2)
    find_group(client, "dynamic")
    first = ConsumerMember(client, "dynamic", "first", names=["dynamic"]).joined()
    name = "group.consumer.assignment.interval.ms"
    alter(client, ConfigResourceType.BROKER, "", {name: "15000"})
    try:
        second = ConsumerMember(client, "dynamic", "second", names=["dynamic"]).joined()
        settle(first, second)
        assert second.assigned == {}, "the target of just now still holds"
    finally:
        alter(client, ConfigResourceType.BROKER, "", {name: None})
    settle(first, second)
    assert [len(owned) for item in (first, second) for owned in item.assigned.values()] == [1, 1]


# --- static members


def test_a_static_member_gets_back_what_it_had(client: WireClient) -> None:
    topic = make_topic(client, "static", 4)
    find_group(client, "static")
    first = ConsumerMember(client, "static", "a-1", names=["static"], instance="a").joined()
    other = ConsumerMember(client, "static", "b-1", names=["static"], instance="b").joined()
    settle(first, other)
    had = first.assigned
    assert first.leave(LEAVE_FOR_NOW).error_code == 0
    other.obey()
    assert len(other.assigned[topic]) == 2, "nobody gets what it will come back for"
    back = ConsumerMember(client, "static", "a-2", names=["static"], instance="a").joined()
    assert (back.epoch, back.assigned) == (first.epoch, had)
    fenced = first.beat()
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert "a-2" in fenced.error_message


def test_an_instance_that_is_taken(client: WireClient) -> None:
    make_topic(client, "taken")
    find_group(client, "taken")
    first = ConsumerMember(client, "taken", "a-1", names=["taken"], instance="a").joined()
    twin = ConsumerMember(client, "taken", "a-2", names=["taken"], instance="a")
    refused = twin.join()
    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert "a-1" in refused.error_message
    assert first.leave().error_code == 0
    assert twin.join().error_code == 0


def test_a_static_member_that_does_not_come_back(broker: RunningBroker, client: WireClient) -> None:
    topic = make_topic(client, "never", 2)
    find_group(client, "never")
    first = ConsumerMember(client, "never", "a-1", names=["never"], instance="a").joined()
    other = ConsumerMember(client, "never", "b-1", names=["never"], instance="b").joined()
    settle(first, other)
    first.leave(LEAVE_FOR_NOW)
    pass_time(broker, SESSION_MS - 1000)
    other.obey()
    assert len(other.assigned[topic]) == 1
    pass_time(broker, 2000)
    settle_on([{topic: [0, 1]}], other)


# --- assignors


def test_members_choose_an_assignor(client: WireClient) -> None:
    ids = [make_topic(client, f"chosen-{index}", 3) for index in range(2)]
    names = ["chosen-0", "chosen-1"]
    find_group(client, "chosen")
    members = [
        ConsumerMember(client, "chosen", name, names=names, assignor="range").joined()
        for name in ("a", "b")
    ]
    settle(*members)
    assert described(client, "chosen").assignor_name == "range"
    # Range gives each member the same partitions of every topic.
    assert members[0].assigned == {id_: [0, 1] for id_ in ids}
    assert members[1].assigned == {id_: [2] for id_ in ids}
    for member in members:
        member.beat(assignor="uniform")
    settle(*members)
    assert described(client, "chosen").assignor_name == "uniform"


def test_an_assignor_that_the_broker_does_not_have(client: WireClient) -> None:
    find_group(client, "odd")
    response = ConsumerMember(client, "odd", "m", names=["t"], assignor="sticky").join()
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "sticky" in response.error_message
    assert "uniform, range" in response.error_message


# --- requests that make no sense


@pytest.mark.parametrize(
    ("change", "says"),
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
def test_a_request_that_lacks_something(
    client: WireClient, change: dict[str, object], says: str
) -> None:
    find_group(client, "wrong")
    request = ConsumerMember(client, "wrong", "m", names=["t"]).join_request()
    for field, value in change.items():
        setattr(request, field, value)
    response = client.request(request, 1)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert says in response.error_message


def test_what_does_not_fit_into_the_log(broker: RunningBroker, client: WireClient) -> None:
    """Nothing has happened then, and the client is told where to look."""
    find_group(client, "huge")
    names = [f"topic-{number}" for number in range(100_000)]
    refused = ConsumerMember(client, "huge", "m", names=names).join()
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "log" in refused.error_message
    assert described(client, "huge").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert ConsumerMember(client, "huge", "m", names=["few"]).join().error_code == 0


def test_a_broker_that_coordinates_nothing_yet(tmp_path: Path) -> None:
    """Nobody has asked for a coordinator: the client shall look for it."""
    with watching(), running_broker(tmp_path) as broker, broker.connect() as client:
        response = client.request(ConsumerGroupHeartbeatRequest("g", "m"), 1)
        assert response.error_code == ErrorCode.NOT_COORDINATOR
        assert "coordinator" in response.error_message


def test_a_group_has_room_for_so_many(tmp_path: Path) -> None:
    settings = {**GROUP_SETTINGS, "group.consumer.max.size": "2"}
    with watching(), running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t", 2)
        find_group(client, "g")
        first = ConsumerMember(client, "g", "a", names=["t"]).joined()
        ConsumerMember(client, "g", "b", names=["t"]).joined()
        third = ConsumerMember(client, "g", "c", names=["t"])
        refused = third.join()
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert "2" in refused.error_message
        first.leave()
        assert third.join().error_code == 0
