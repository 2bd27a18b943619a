"""Administration of classic and consumer groups, and offsets with member epochs (C3)."""

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
    reconcile,
)
from tests.support.protocol.requests import make_topic

OPERATIONS = ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
ALL_OF_A_GROUP = sum(1 << AclOperation[operation] for operation in OPERATIONS)
NOT_REQUESTED = -(1 << 31)
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
    with broker.connect(client_id="second") as second_client:
        first = ConsumerMember(client, "seen", "one", names=["seen"], instance="i").joined()
        second = ConsumerMember(second_client, "seen", "two", names=["seen"]).joined()
        first.beat({topic: [0, 1]})
        group = described(client, "seen")
        assert (group.error_code, group.group_state) == (0, "Reconciling")
        assert (group.group_epoch, group.assignment_epoch) >= (3, 3)
        assert group.assignor_name == "uniform"
        assert group.authorized_operations == NOT_REQUESTED
        members = {member.member_id: member for member in group.members}
        assert set(members) == {"one", "two"}
        assert members["one"].instance_id == "i"
        assert partitions(members["one"].assignment) == {"seen": [0, 1]}, (
            "it has not revoked its partition yet"
        )
        assert len(partitions(members["one"].target_assignment)["seen"]) == 1
        assert members["one"].subscribed_topic_names == ["seen"]
        assert members["one"].subscribed_topic_regex == ""
        assert (members["two"].client_id, members["two"].client_host) == ("second", "/127.0.0.1")
        assert members["two"].member_type == 1
        reconcile(first, second)
        group = described(client, "seen")
        assert group.group_state == "Stable"
        for entry in group.members:
            assert partitions(entry.assignment) == partitions(entry.target_assignment)
            assert entry.member_epoch == group.group_epoch == group.assignment_epoch
        first.leave()
        second.leave()
        group = described(client, "seen")
        assert (group.group_state, group.members) == ("Empty", [])


@pytest.mark.parametrize("version", [0, 1])
def test_several_groups_are_described_in_the_order_of_the_request(
    client: WireClient, version: int
) -> None:
    make_topic(client, f"several-v{version}")
    names = [f"several-v{version}-{index}" for index in range(6)]
    for name in names:
        find_group(client, name)
        ConsumerMember(client, name, "m", names=[f"several-v{version}"]).joined()
    requested = [*names[3:], "several-none", "", *names[:3]]
    request = ConsumerGroupDescribeRequest(requested, include_authorized_operations=True)
    groups = client.request(request, version).groups
    assert [group.group_id for group in groups] == requested
    codes = {group.group_id: group.error_code for group in groups if group.error_code}
    assert codes == {
        "several-none": ErrorCode.GROUP_ID_NOT_FOUND,
        "": ErrorCode.INVALID_GROUP_ID,
    }
    assert groups[0].authorized_operations == ALL_OF_A_GROUP
    assert "several-none" in groups[3].error_message


def test_a_classic_group_is_not_described_as_a_consumer_group(client: WireClient) -> None:
    make_topic(client, "kinds")
    find_group(client, "kinds-classic")
    ClassicMember(client, "kinds-classic", ["kinds"]).joined()
    ConsumerMember(client, "kinds-consumer", "m", names=["kinds"]).joined()
    response = described(client, "kinds-classic")
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "classic" in response.error_message or "consumer" in response.error_message
    for version, code in ((5, NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        requested = DescribeGroupsRequest(["kinds-consumer", "kinds-classic"])
        consumer, classic = client.request(requested, version).groups
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

    def listed_groups(states: list[str], types: list[str]) -> dict[str, tuple[str, str]]:
        groups = listed(client, states, types)
        return {name: group for name, group in groups.items() if name.startswith("l-")}

    everything = {
        "l-consumer": ("Stable", "consumer"),
        "l-left": ("Empty", "consumer"),
        "l-classic": ("Stable", "classic"),
        "l-offsets": ("Empty", "classic"),
    }
    assert listed_groups([], []) == everything
    assert set(listed_groups(["Stable"], [])) == {"l-consumer", "l-classic"}
    assert set(listed_groups(["stable", "EMPTY"], ["Consumer"])) == {"l-consumer", "l-left"}
    assert set(listed_groups([], ["classic"])) == {"l-classic", "l-offsets"}
    assert set(listed_groups(["Empty"], ["classic"])) == {"l-offsets"}
    assert listed_groups(["Assigning"], []) == {}
    assert listed_groups([], ["share"]) == {}
    old = client.request(ListGroupsRequest(["Empty"]), 4).groups
    assert {"l-left", "l-offsets"} <= {item.group_id for item in old}
    kinds = {
        group.group_id: group.protocol_type
        for group in client.request(ListGroupsRequest(), 2).groups
    }
    assert (kinds["l-consumer"], kinds["l-offsets"]) == ("consumer", "")


# --- DeleteGroups


def test_only_empty_groups_are_deleted(client: WireClient) -> None:
    make_topic(client, "del")
    find_group(client, "del-0")
    members = [ConsumerMember(client, f"del-{i}", "m", names=["del"]).joined() for i in range(3)]
    for member in members:
        codes = commit(client, member.group, {("del", 0): 3}, member_id="m", epoch=member.epoch)
        assert codes == [NONE]
    members[0].leave()
    members[2].leave()
    requested = ["del-2", "del-1", "del-none", "del-0"]
    results = client.request(DeleteGroupsRequest(requested), 2).results
    assert [(result.group_id, result.error_code) for result in results] == [
        ("del-2", 0),
        ("del-1", ErrorCode.NON_EMPTY_GROUP),
        ("del-none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("del-0", 0),
    ]
    assert set(listed(client)) & set(requested) == {"del-1"}
    assert committed(client, "del-0") == {}
    assert committed(client, "del-1") == {("del", 0): 3}
    assert members[0].joined().epoch == 2, "a new group with the old name"


# --- OffsetCommit and OffsetFetch


@pytest.mark.parametrize("version", [9, 10])
def test_commits_and_fetches_require_the_member_epoch(client: WireClient, version: int) -> None:
    name = f"commits-{version}"
    topic = make_topic(client, name, 2)
    find_group(client, name)
    key: Any = name if version == 9 else topic
    first = ConsumerMember(client, name, "one", names=[name]).joined()
    assert commit(
        client,
        name,
        {(key, 0): 4, (key, 1): 5},
        member_id="one",
        epoch=first.epoch,
        version=version,
    ) == [NONE, NONE]

    def commit_as(member_id: str, epoch: int) -> list[ErrorCode]:
        return commit(
            client, name, {(key, 0): 9}, member_id=member_id, epoch=epoch, version=version
        )

    assert commit_as("one", first.epoch + 1) == [STALE]
    assert commit_as("two", first.epoch) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit_as("", -1) == [ErrorCode.UNKNOWN_MEMBER_ID], "only into a group without members"
    assert committed(client, name) == {(name, 0): 4, (name, 1): 5}

    def fetch_as(member_id: str | None, epoch: int) -> Any:
        return fetched_group(
            client, name, {key: [0, 1]}, member_id=member_id, epoch=epoch, version=version
        )

    result = fetch_as("one", first.epoch)
    assert [partition.committed_offset for partition in result.topics[0].partitions] == [4, 5]
    assert fetch_as("one", first.epoch + 1).error_code == STALE
    assert fetch_as("one", first.epoch - 1).error_code == STALE
    assert fetch_as("two", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_as(None, -1).error_code == 0
    first.leave()
    assert commit_as("", -1) == [NONE]
    assert committed(client, name)[name, 0] == 9


def test_a_past_epoch_may_commit_partitions_the_member_still_owns(client: WireClient) -> None:
    """KIP-1251: the commit was in flight when the member received a new epoch."""
    topic = make_topic(client, "past", 2)
    find_group(client, "past")
    first = ConsumerMember(client, "past", "one", names=["past"]).joined()
    before = first.epoch
    second = ConsumerMember(client, "past", "two", names=["past"]).joined()
    reconcile(first, second)
    (retained,) = first.assigned[topic]
    (revoked,) = second.assigned[topic]
    assert first.epoch > before

    def commit_partition(partition: int) -> list[ErrorCode]:
        return commit(client, "past", {("past", partition): 1}, member_id="one", epoch=before)

    assert commit_partition(retained) == [NONE]
    assert commit_partition(revoked) == [STALE]


def test_a_commit_version_without_epochs_is_rejected(client: WireClient) -> None:
    make_topic(client, "older")
    find_group(client, "older")
    first = ConsumerMember(client, "older", "one", names=["older"]).joined()
    codes = commit(
        client, "older", {("older", 0): 1}, member_id="one", epoch=first.epoch, version=8
    )
    assert codes == [ErrorCode.UNSUPPORTED_VERSION]


def test_offsets_of_unknown_topics_and_groups_are_rejected(client: WireClient) -> None:
    topic = make_topic(client, "there")
    find_group(client, "there")
    unknown_id = uuid4()
    codes = commit(client, "there", {(unknown_id, 0): 1, (topic, 0): 2, (topic, 7): 3}, version=10)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, NONE, unknown]
    result = fetched_group(client, "there", {unknown_id: [0], topic: [0, 7]}, version=10)
    missing_topic, existing_topic = result.topics
    assert (missing_topic.topic_id, missing_topic.partitions[0].error_code) == (
        unknown_id,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
    assert [partition.committed_offset for partition in existing_topic.partitions] == [2, -1]
    for version, code in ((9, ErrorCode.GROUP_ID_NOT_FOUND), (8, ErrorCode.ILLEGAL_GENERATION)):
        offsets: dict[Any, int] = {("there", 0): 1}
        codes = commit(client, "no-group", offsets, member_id="m", epoch=3, version=version)
        assert codes == [code]


def test_offsets_of_several_groups_are_fetched_in_one_request(client: WireClient) -> None:
    make_topic(client, "many")
    names = [f"many-{index}" for index in range(8)]
    for number, name in enumerate(names):
        find_group(client, name)
        member = ConsumerMember(client, name, "m", names=["many"]).joined()
        commit(client, name, {("many", 0): number}, member_id="m", epoch=member.epoch)
    requested = [OffsetFetchRequestGroup(name, topics=None) for name in [*names, "many-none"]]
    groups = client.request(OffsetFetchRequest(groups=requested), 9).groups
    assert [group.group_id for group in groups] == [*names, "many-none"]
    offsets = [group.topics[0].partitions[0].committed_offset for group in groups[:-1]]
    assert offsets == list(range(8))
    assert (groups[-1].error_code, groups[-1].topics) == (0, [])


# --- OffsetDelete


def delete_offsets(client: WireClient, group: str, *topics: str) -> Any:
    requested = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)]) for topic in topics
    ]
    return client.request(OffsetDeleteRequest(group, requested), 0)


def test_offsets_of_unsubscribed_topics_are_deleted(client: WireClient) -> None:
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
