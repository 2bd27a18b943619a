"""What administrators see and do of groups of both kinds, and offsets with member epochs (C3)."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.security.acl import AclOperation
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    commit,
    committed,
    described,
    fetched_group,
    find_group,
    listed,
    wait_until,
)
from tests.support.coordinator.group_members import (
    ClassicMember,
    ConsumerMember,
    settle,
)
from tests.support.protocol.requests import make_topic

OPERATIONS = ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
ALL_OF_A_GROUP = sum(1 << AclOperation[item] for item in OPERATIONS)
NOT_ASKED = -(1 << 31)
STALE = ErrorCode.STALE_MEMBER_EPOCH
NONE = ErrorCode.NONE


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return GROUP_SETTINGS


def partitions(assignment: Any) -> dict[str, list[int]]:
    return {
        topic_partition.topic_name: topic_partition.partitions
        for topic_partition in assignment.topic_partitions
    }


# --- ConsumerGroupDescribe


def test_a_group_is_described(broker: RunningBroker, client: WireClient) -> None:
    topic = make_topic(client, "seen", 2)
    find_group(client, "seen")
    with broker.connect(client_id="second") as another:
        one = ConsumerMember(client, "seen", "one", names=["seen"], instance="i").joined()
        two = ConsumerMember(another, "seen", "two", names=["seen"]).joined()
        one.beat({topic: [0, 1]})
        group = described(client, "seen")
        assert (group.error_code, group.group_state) == (0, "Reconciling")
        assert (group.group_epoch, group.assignment_epoch) >= (3, 3)
        assert group.assignor_name == "uniform"
        assert group.authorized_operations == NOT_ASKED
        members = {member.member_id: member for member in group.members}
        assert set(members) == {"one", "two"}
        assert members["one"].instance_id == "i"
        assert partitions(members["one"].assignment) == {"seen": [0, 1]}, "it has not let go yet"
        assert len(partitions(members["one"].target_assignment)["seen"]) == 1
        assert members["one"].subscribed_topic_names == ["seen"]
        assert members["one"].subscribed_topic_regex == ""
        assert (members["two"].client_id, members["two"].client_host) == ("second", "/127.0.0.1")
        assert members["two"].member_type == 1
        settle(one, two)
        group = described(client, "seen")
        assert group.group_state == "Stable"
        for entry in group.members:
            assert partitions(entry.assignment) == partitions(entry.target_assignment)
            assert entry.member_epoch == group.group_epoch == group.assignment_epoch
        one.leave()
        two.leave()
        group = described(client, "seen")
        assert (group.group_state, group.members) == ("Empty", [])


@pytest.mark.parametrize("version", [0, 1])
def test_several_groups_are_described_in_their_order(client: WireClient, version: int) -> None:
    make_topic(client, f"several-v{version}")
    names = [f"several-v{version}-{index}" for index in range(6)]
    for name in names:
        find_group(client, name)
        ConsumerMember(client, name, "m", names=[f"several-v{version}"]).joined()
    asked = [*names[3:], "several-none", "", *names[:3]]
    request = ConsumerGroupDescribeRequest(asked, include_authorized_operations=True)
    groups = client.request(request, version).groups
    assert [group.group_id for group in groups] == asked
    codes = {group.group_id: group.error_code for group in groups if group.error_code}
    assert codes == {
        "several-none": ErrorCode.GROUP_ID_NOT_FOUND,
        "": ErrorCode.INVALID_GROUP_ID,
    }
    assert groups[0].authorized_operations == ALL_OF_A_GROUP
    assert "several-none" in groups[3].error_message


def test_a_classic_group_is_none_of_the_other_kind(client: WireClient) -> None:
    make_topic(client, "kinds")
    find_group(client, "kinds-classic")
    ClassicMember(client, "kinds-classic", ["kinds"]).joined()
    ConsumerMember(client, "kinds-consumer", "m", names=["kinds"]).joined()
    response = described(client, "kinds-classic")
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "classic" in response.error_message or "consumer" in response.error_message
    for version, code in ((5, NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        asked = DescribeGroupsRequest(["kinds-consumer", "kinds-classic"])
        consumer, classic = client.request(asked, version).groups
        assert (consumer.error_code, consumer.group_state) == (code, "Dead")
        assert (classic.error_code, classic.group_state) == (0, "Stable")
        assert (classic.protocol_type, classic.protocol_data) == ("consumer", "range")
        assert len(classic.members) == 1


# --- ListGroups


def test_groups_are_listed_by_state_and_type(client: WireClient) -> None:
    make_topic(client, "listed")
    find_group(client, "l-consumer")
    ConsumerMember(client, "l-consumer", "m", names=["listed"]).joined()
    ConsumerMember(client, "l-left", "m", names=["listed"]).joined().leave()
    ClassicMember(client, "l-classic", ["listed"]).joined()
    commit(client, "l-offsets", {("listed", 0): 1})

    def found(states: list[str], types: list[str]) -> dict[str, tuple[str, str]]:
        groups = listed(client, states, types)
        return {name: group for name, group in groups.items() if name.startswith("l-")}

    everything = {
        "l-consumer": ("Stable", "consumer"),
        "l-left": ("Empty", "consumer"),
        "l-classic": ("Stable", "classic"),
        "l-offsets": ("Empty", "classic"),
    }
    assert found([], []) == everything
    assert set(found(["Stable"], [])) == {"l-consumer", "l-classic"}
    assert set(found(["stable", "EMPTY"], ["Consumer"])) == {"l-consumer", "l-left"}
    assert set(found([], ["classic"])) == {"l-classic", "l-offsets"}
    assert set(found(["Empty"], ["classic"])) == {"l-offsets"}
    assert found(["Assigning"], []) == {}
    assert found([], ["share"]) == {}
    old = client.request(ListGroupsRequest(["Empty"]), 4).groups
    assert {"l-left", "l-offsets"} <= {item.group_id for item in old}
    kinds = {
        group.group_id: group.protocol_type
        for group in client.request(ListGroupsRequest(), 2).groups
    }
    assert (kinds["l-consumer"], kinds["l-offsets"]) == ("consumer", "")


# --- DeleteGroups


def test_groups_are_deleted_once_they_are_empty(client: WireClient) -> None:
    make_topic(client, "del")
    find_group(client, "del-0")
    members = [ConsumerMember(client, f"del-{i}", "m", names=["del"]).joined() for i in range(3)]
    for member in members:
        done = commit(client, member.group, {("del", 0): 3}, member_id="m", epoch=member.epoch)
        assert done == [NONE]
    members[0].leave()
    members[2].leave()
    asked = ["del-2", "del-1", "del-none", "del-0"]
    results = client.request(DeleteGroupsRequest(asked), 2).results
    assert [(result.group_id, result.error_code) for result in results] == [
        ("del-2", 0),
        ("del-1", ErrorCode.NON_EMPTY_GROUP),
        ("del-none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("del-0", 0),
    ]
    assert set(listed(client)) & set(asked) == {"del-1"}
    assert committed(client, "del-0") == {}
    assert committed(client, "del-1") == {("del", 0): 3}
    assert members[0].joined().epoch == 2, "a new group under the old name"


# --- OffsetCommit and OffsetFetch


@pytest.mark.parametrize("version", [9, 10])
def test_members_commit_with_their_epoch(client: WireClient, version: int) -> None:
    name = f"commits-{version}"
    topic = make_topic(client, name, 2)
    find_group(client, name)
    key: Any = name if version == 9 else topic
    one = ConsumerMember(client, name, "one", names=[name]).joined()
    assert commit(
        client, name, {(key, 0): 4, (key, 1): 5}, member_id="one", epoch=one.epoch, version=version
    ) == [NONE, NONE]

    def of(member_id: str, epoch: int) -> list[ErrorCode]:
        return commit(
            client, name, {(key, 0): 9}, member_id=member_id, epoch=epoch, version=version
        )

    assert of("one", one.epoch + 1) == [STALE]
    assert of("two", one.epoch) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert of("", -1) == [ErrorCode.UNKNOWN_MEMBER_ID], "only into a group without members"
    assert committed(client, name) == {(name, 0): 4, (name, 1): 5}

    def fetched(member_id: str | None, epoch: int) -> Any:
        return fetched_group(
            client, name, {key: [0, 1]}, member_id=member_id, epoch=epoch, version=version
        )

    result = fetched("one", one.epoch)
    assert [partition.committed_offset for partition in result.topics[0].partitions] == [4, 5]
    assert fetched("one", one.epoch + 1).error_code == STALE
    assert fetched("one", one.epoch - 1).error_code == STALE
    assert fetched("two", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetched(None, -1).error_code == 0
    one.leave()
    assert of("", -1) == [NONE]
    assert committed(client, name)[name, 0] == 9


def test_an_epoch_of_the_past_may_commit_what_is_still_its(client: WireClient) -> None:
    """KIP-1251: the commit was under way while the member heard of a new epoch."""
    topic = make_topic(client, "past", 2)
    find_group(client, "past")
    one = ConsumerMember(client, "past", "one", names=["past"]).joined()
    before = one.epoch
    two = ConsumerMember(client, "past", "two", names=["past"]).joined()
    settle(one, two)
    (kept,) = one.assigned[topic]
    (given,) = two.assigned[topic]
    assert one.epoch > before

    def of(partition: int) -> list[ErrorCode]:
        return commit(client, "past", {("past", partition): 1}, member_id="one", epoch=before)

    assert of(kept) == [NONE]
    assert of(given) == [STALE]


def test_a_version_without_epochs_is_refused(client: WireClient) -> None:
    make_topic(client, "older")
    find_group(client, "older")
    one = ConsumerMember(client, "older", "one", names=["older"]).joined()
    done = commit(client, "older", {("older", 0): 1}, member_id="one", epoch=one.epoch, version=8)
    assert done == [ErrorCode.UNSUPPORTED_VERSION]


def test_topics_and_groups_that_are_not_there(client: WireClient) -> None:
    topic = make_topic(client, "there")
    find_group(client, "there")
    nowhere = uuid4()
    done = commit(client, "there", {(nowhere, 0): 1, (topic, 0): 2, (topic, 7): 3}, version=10)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert done == [ErrorCode.UNKNOWN_TOPIC_ID, NONE, unknown]
    result = fetched_group(client, "there", {nowhere: [0], topic: [0, 7]}, version=10)
    lost, known = result.topics
    assert (lost.topic_id, lost.partitions[0].error_code) == (nowhere, ErrorCode.UNKNOWN_TOPIC_ID)
    assert [partition.committed_offset for partition in known.partitions] == [2, -1]
    for version, code in ((9, ErrorCode.GROUP_ID_NOT_FOUND), (8, ErrorCode.ILLEGAL_GENERATION)):
        offsets: dict[Any, int] = {("there", 0): 1}
        done = commit(client, "no-group", offsets, member_id="m", epoch=3, version=version)
        assert done == [code]


def test_offsets_of_several_groups_at_once(client: WireClient) -> None:
    make_topic(client, "many")
    names = [f"many-{index}" for index in range(8)]
    for number, name in enumerate(names):
        find_group(client, name)
        member = ConsumerMember(client, name, "m", names=["many"]).joined()
        commit(client, name, {("many", 0): number}, member_id="m", epoch=member.epoch)
    asked = [OffsetFetchRequestGroup(name, topics=None) for name in [*names, "many-none"]]
    groups = client.request(OffsetFetchRequest(groups=asked), 9).groups
    assert [group.group_id for group in groups] == [*names, "many-none"]
    offsets = [group.topics[0].partitions[0].committed_offset for group in groups[:-1]]
    assert offsets == list(range(8))
    assert (groups[-1].error_code, groups[-1].topics) == (0, [])


# --- OffsetDelete


def delete_offsets(client: WireClient, group: str, *topics: str) -> Any:
    asked = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)]) for topic in topics]
    return client.request(OffsetDeleteRequest(group, asked), 0)


def test_offsets_of_topics_that_nobody_reads_are_deleted(client: WireClient) -> None:
    for name in ("od-read", "od-old"):
        make_topic(client, name)
    find_group(client, "od")
    commit(client, "od", {("od-read", 0): 1, ("od-old", 0): 2})
    member = ConsumerMember(client, "od", "m", regex="od-r.*").joined()
    wait_until(lambda: member.obey() and bool(member.assigned))
    response = delete_offsets(client, "od", "od-read", "od-old", "od-none")
    assert response.error_code == 0
    assert [topic.partitions[0].error_code for topic in response.topics] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert committed(client, "od") == {("od-read", 0): 1}
    member.leave()
    assert delete_offsets(client, "od", "od-read").topics[0].partitions[0].error_code == 0
    assert committed(client, "od") == {}
    assert delete_offsets(client, "od-nothing", "od-read").error_code == (
        ErrorCode.GROUP_ID_NOT_FOUND
    )
