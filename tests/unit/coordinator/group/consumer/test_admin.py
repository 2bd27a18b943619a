"""Describing, listing and deleting consumer groups, and their members' offsets (C3)."""

import pytest

from penstock.coordinator.group.config import ConsumerGroupConfig, GroupConfig
from penstock.coordinator.group.multi_group_requests import merge, split
from penstock.coordinator.group.responses import error_response
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeTopicPartitions,
)
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.support.coordinator.consumer_groups import Consumer, consumer_host, kinds, reconcile
from tests.support.coordinator.groups import (
    GroupHost,
    commit_errors,
    commit_request,
    committed,
    id_of,
)

DAY_MS = 24 * 60 * 60 * 1000


def one_member(host: GroupHost, *, names: list[str] | None = None) -> Consumer:
    member = Consumer(host, "a", names=names or ["t"])
    member.join()
    reconcile(member)
    return member


# --- ConsumerGroupDescribe


def described(host: GroupHost, group: str = "g") -> ConsumerGroupDescribeDescribedGroup:
    request = ConsumerGroupDescribeRequest([group])
    (result,) = host.request(request, ConsumerGroupDescribeResponse, 1).groups
    return result


def partitions(topic: str, *numbers: int) -> ConsumerGroupDescribeAssignment:
    return ConsumerGroupDescribeAssignment(
        [ConsumerGroupDescribeTopicPartitions(id_of(topic), topic, list(numbers))]
    )


def test_a_group_is_described() -> None:
    host = consumer_host({"t": 4})
    first = Consumer(host, "a", instance="i", assignor="range")
    first.join()
    reconcile(first)
    Consumer(host, "b").join()
    first.beat()
    group = described(host)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Reconciling", "range")
    assert (group.group_epoch, group.assignment_epoch) == (3, 3)
    member = next(member for member in group.members if member.member_id == "a")
    assert (member.member_epoch, member.instance_id, member.member_type) == (2, "i", 1)
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
    assert member.assignment == partitions("t", 0, 1, 2, 3), "with what it has to let go"
    assert member.target_assignment == partitions("t", 0, 1)


def test_deleted_topics_are_omitted() -> None:
    host = consumer_host({"t": 1})
    one_member(host)
    host.make_topics({"t": 0})
    (member,) = described(host).members
    assert not member.assignment.topic_partitions
    assert not member.target_assignment.topic_partitions


def test_describing_other_group_types_is_an_error() -> None:
    host = consumer_host()
    host.request(commit_request({("t", 0): 1}, group="simple"), OffsetCommitResponse, 9)
    for group in ("simple", "nobody"):
        result = described(host, group)
        assert result.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group in (result.error_message or "")
    assert described(host, "").error_code == ErrorCode.INVALID_GROUP_ID


def test_the_groups_of_several_shards_are_described_in_order() -> None:
    request = ConsumerGroupDescribeRequest(["a", "b", "c"], include_authorized_operations=True)
    parts = split(request, 1, 2)
    responses = []
    for part in parts:
        assert isinstance(part.request, ConsumerGroupDescribeRequest)
        assert part.request.include_authorized_operations
        groups = [ConsumerGroupDescribeDescribedGroup(group_id=g) for g in part.request.group_ids]
        responses.append(ConsumerGroupDescribeResponse(groups=groups))
    merged = merge(request, 1, responses)
    assert isinstance(merged, ConsumerGroupDescribeResponse)
    assert [group.group_id for group in merged.groups] == ["a", "b", "c"]
    assert len(parts) == 2


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ErrorCode.NOT_COORDINATOR, "look for its coordinator again"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "retry"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "retry"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's own log"),
    ],
)
def test_error_messages_contain_the_remedy(error: ErrorCode, says: str) -> None:
    beat = error_response(ConsumerGroupHeartbeatRequest(), 1, error)
    assert isinstance(beat, ConsumerGroupHeartbeatResponse)
    assert beat.error_code == error
    assert beat.error_message is not None
    assert says in beat.error_message
    described = ConsumerGroupDescribeDescribedGroup(error, beat.error_message, "g")
    assert error_response(
        ConsumerGroupDescribeRequest(["g"]), 1, error
    ) == ConsumerGroupDescribeResponse(groups=[described])


# --- other admin requests


def test_groups_are_listed_with_their_types() -> None:
    host = consumer_host()
    one_member(host)
    host.request(commit_request({("t", 0): 1}, group="simple"), OffsetCommitResponse, 9)

    def listed(states: list[str], types: list[str]) -> list[ListedGroup]:
        return host.request(ListGroupsRequest(states, types), ListGroupsResponse, 5).groups

    consumer = ListedGroup("g", "consumer", "Stable", "consumer")
    simple = ListedGroup("simple", "", "Empty", "classic")
    assert listed([], []) == [consumer, simple]
    assert listed(["stable"], []) == [consumer]
    assert listed([], ["Consumer"]) == [consumer]
    assert listed(["empty"], ["classic"]) == [simple]
    assert listed(["empty"], ["consumer"]) == []


def test_describe_groups_does_not_find_a_consumer_group() -> None:
    host = consumer_host()
    one_member(host)
    (result,) = host.request(DescribeGroupsRequest(["g"]), DescribeGroupsResponse, 6).groups
    assert (result.error_code, result.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    (result,) = host.request(DescribeGroupsRequest(["g"]), DescribeGroupsResponse, 5).groups
    assert (result.error_code, result.group_state) == (ErrorCode.NONE, "Dead")


def test_a_group_is_deleted_with_all_its_records() -> None:
    host = consumer_host({"t": 2})
    member = one_member(host)

    def delete() -> int:
        (result,) = host.request(DeleteGroupsRequest(["g"]), DeleteGroupsResponse, 2).results
        return result.error_code

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    commit = commit_request({("t", 1): 5}, member_id="a", generation=member.epoch)
    host.request(commit, OffsetCommitResponse, 9)
    member.leave()
    since = len(host.log)
    assert delete() == ErrorCode.NONE
    assert kinds(host, since) == [-1, -6, -4, -3]
    assert not host.shard.groups
    host.restart()
    assert not host.shard.groups


# --- offsets


def errors(
    host: GroupHost, member_id: str, epoch: int, *, partition: int = 0, version: int = 9
) -> list[int]:
    request = commit_request({("t", partition): 1}, member_id=member_id, generation=epoch)
    return commit_errors(host.request(request, OffsetCommitResponse, version))


def test_commits_are_accepted_from_current_members_only() -> None:
    host = consumer_host({"t": 4})
    member = one_member(host)
    assert errors(host, "a", member.epoch) == [ErrorCode.NONE]
    assert errors(host, "a", member.epoch + 1) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert errors(host, "b", member.epoch) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert errors(host, "", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert errors(host, "a", member.epoch, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    member.leave()
    assert errors(host, "", -1) == [ErrorCode.NONE]


def test_an_older_epoch_may_commit_partitions_that_the_member_still_owns() -> None:
    """One partition that was reassigned fails the whole commit."""
    host = consumer_host({"t": 4})
    first = one_member(host)
    second = Consumer(host, "b")
    second.join()
    old = first.epoch
    reconcile(first, second)
    assert first.epoch == old + 1
    assert errors(host, "a", old, partition=0) == [ErrorCode.NONE]
    assert errors(host, "a", old, partition=3) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert errors(host, "b", old, partition=3) == [ErrorCode.STALE_MEMBER_EPOCH]
    request = commit_request({("t", 0): 9, ("t", 3): 9}, member_id="a", generation=old)
    responses = commit_errors(host.request(request, OffsetCommitResponse, 9))
    assert responses == [ErrorCode.STALE_MEMBER_EPOCH] * 2
    assert committed(host) == {("t", 0): 1}


def test_partitions_pending_revocation_may_still_be_committed() -> None:
    host = consumer_host({"t": 4})
    first = one_member(host)
    Consumer(host, "b").join()
    first.beat()
    assert first.assigned == {"t": [0, 1]}
    assert errors(host, "a", first.epoch, partition=3) == [ErrorCode.NONE]


def fetched(host: GroupHost, member_id: str | None, epoch: int) -> OffsetFetchResponseGroup:
    requested_group = OffsetFetchRequestGroup("g", member_id, epoch, None)
    (group,) = host.request(
        OffsetFetchRequest(groups=[requested_group]), OffsetFetchResponse, 9
    ).groups
    return group


@pytest.mark.parametrize(
    ("member_id", "step", "error"),
    [
        ("a", 0, ErrorCode.NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offsets_are_fetched_by_current_members_only(
    member_id: str | None, step: int, error: ErrorCode
) -> None:
    host = consumer_host()
    member = one_member(host)
    errors(host, "a", member.epoch)
    group = fetched(host, member_id, member.epoch + step)
    assert group.error_code == error
    assert bool(group.topics) == (error is ErrorCode.NONE)
    assert fetched(host, None, -1).topics


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    host = consumer_host({"t": 1, "u": 1})
    member = one_member(host, names=["t", "u"])
    commit = commit_request({("t", 0): 1, ("u", 0): 1}, member_id="a", generation=member.epoch)
    host.request(commit, OffsetCommitResponse, 9)
    member.beat(names=["t"])
    topics = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("t", "u")
    ]
    response = host.request(OffsetDeleteRequest("g", topics), OffsetDeleteResponse, 0)
    assert [topic.partitions[0].error_code for topic in response.topics] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]
    assert committed(host) == {("t", 0): 1}


def test_offsets_of_unsubscribed_topics_expire() -> None:
    """The group is removed with the last offset, once it is empty."""
    config = GroupConfig(
        offsets_retention_minutes=60,
        consumer=ConsumerGroupConfig(session_timeout_ms=2 * DAY_MS),
    )
    host = consumer_host({"t": 1, "u": 1}, config)
    member = one_member(host, names=["t", "u"])
    commit = commit_request({("t", 0): 1, ("u", 0): 1}, member_id="a", generation=member.epoch)
    host.request(commit, OffsetCommitResponse, 9)
    member.beat({"t": [0]}, names=["t"])
    host.advance(DAY_MS)
    assert committed(host) == {("t", 0): 1}
    member.leave()
    since = len(host.log)
    host.advance(600_000)
    assert kinds(host, since) == [-1, -6, -4, -3]
    assert not host.shard.groups
