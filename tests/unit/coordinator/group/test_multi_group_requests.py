"""Requests that name groups of several shards (C3)."""

import pytest

from penstock.coordinator.group.multi_group_requests import merge, split
from penstock.coordinator.group.responses import error_response
from penstock.coordinator.partitioning import partition_for
from penstock.core.errors import ErrorCode
from penstock.protocol.codec import encode
from penstock.protocol.fields import Message
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest
from tests.support.coordinator.groups import GroupHost, commit_request, fetch_request

GROUPS = [f"group-{number}" for number in range(8)]
PARTITIONS = 3


def hosts() -> list[GroupHost]:
    """One shard per partition; each group has committed its number in t-0."""
    shard_hosts = [GroupHost() for _ in range(PARTITIONS)]
    for number, group in enumerate(GROUPS):
        host = shard_hosts[partition_for(group, PARTITIONS)]
        host.send(commit_request({("t", 0): number}, group=group), 9)
    return shard_hosts


def request_from_all(request: Message, version: int) -> Message:
    shard_hosts = hosts()
    responses: list[Message] = []
    for partition, part in split(request, version, PARTITIONS):
        # Requests to a shard have the form of version 8 or later.
        at = max(version, 8) if isinstance(part, OffsetFetchRequest) else version
        response = shard_hosts[partition].responses[shard_hosts[partition].send(part, at)]
        assert isinstance(
            response,
            OffsetFetchResponse
            | DescribeGroupsResponse
            | DeleteGroupsResponse
            | ListGroupsResponse,
        )
        responses.append(response)
    merged = merge(request, version, responses)
    assert encode(merged, version)
    return merged


def test_several_groups_are_fetched_at_once_in_order() -> None:
    requested_groups = [OffsetFetchRequestGroup(group, topics=None) for group in GROUPS]
    response = request_from_all(OffsetFetchRequest(groups=requested_groups), 9)
    assert isinstance(response, OffsetFetchResponse)
    assert [group.group_id for group in response.groups] == GROUPS
    offsets = [group.topics[0].partitions[0].committed_offset for group in response.groups]
    assert offsets == list(range(8))


@pytest.mark.parametrize("version", range(8))
def test_old_versions_fetch_one_group(version: int) -> None:
    topics = [OffsetFetchRequestTopic("t", [0, 1])]
    response = request_from_all(OffsetFetchRequest(group_id=GROUPS[5], topics=topics), version)
    assert isinstance(response, OffsetFetchResponse)
    assert [p.committed_offset for p in response.topics[0].partitions] == [5, -1]


@pytest.mark.parametrize("version", range(2, 8))
def test_old_versions_fetch_all_offsets_of_one_group(version: int) -> None:
    response = request_from_all(OffsetFetchRequest(group_id=GROUPS[5], topics=None), version)
    assert isinstance(response, OffsetFetchResponse)
    assert [topic.name for topic in response.topics] == ["t"]


@pytest.mark.parametrize("version", [1, 2, 8])
def test_each_version_has_its_own_error_field(version: int) -> None:
    request = (
        fetch_request({"t": [0]})
        if version == 8
        else OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])])
    )
    ((_, part),) = split(request, version, PARTITIONS)
    refused = error_response(part, version, ErrorCode.NOT_COORDINATOR)
    assert isinstance(refused, OffsetFetchResponse)
    response = merge(request, version, [refused])
    assert isinstance(response, OffsetFetchResponse)
    assert encode(response, version)
    places = (
        [response.error_code]
        + [group.error_code for group in response.groups]
        + [p.error_code for topic in response.topics for p in topic.partitions]
    )
    assert [error for error in places if error] == [ErrorCode.NOT_COORDINATOR]


def test_groups_are_described_and_deleted_in_order() -> None:
    described = request_from_all(DescribeGroupsRequest([*GROUPS, "nobody"]), 6)
    assert isinstance(described, DescribeGroupsResponse)
    assert [group.group_id for group in described.groups] == [*GROUPS, "nobody"]
    deleted = request_from_all(DeleteGroupsRequest(GROUPS[::-1]), 2)
    assert isinstance(deleted, DeleteGroupsResponse)
    assert [result.group_id for result in deleted.results] == GROUPS[::-1]


def test_groups_of_all_shards_are_listed() -> None:
    response = request_from_all(ListGroupsRequest(), 5)
    assert isinstance(response, ListGroupsResponse)
    assert sorted(group.group_id for group in response.groups) == GROUPS


def test_a_failed_shard_fails_the_whole_list() -> None:
    fine = ListGroupsResponse()
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    response = merge(ListGroupsRequest(), 5, [fine, loading])
    assert isinstance(response, ListGroupsResponse)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    "request_",
    [
        JoinGroupRequest(member_id="m"),
        SyncGroupRequest(),
        HeartbeatRequest(),
        LeaveGroupRequest(members=[MemberIdentity("m")]),
        commit_request({("t", 0): 1}),
        fetch_request({"t": [0]}),
        OffsetDeleteRequest(),
        DescribeGroupsRequest(["g"]),
        ListGroupsRequest(),
        DeleteGroupsRequest(["g"]),
    ],
)
def test_every_request_has_an_error_response(request_: Message) -> None:
    version = type(request_).INFO.max_stable_version
    encoded = encode(error_response(request_, version, ErrorCode.NOT_COORDINATOR), version)
    assert ErrorCode.NOT_COORDINATOR.to_bytes(2, "big") in encoded


def test_a_heartbeat_succeeds_while_the_group_loads() -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert error_response(HeartbeatRequest(), 4, loading) == HeartbeatResponse()


def test_requests_for_other_handlers_raise() -> None:
    with pytest.raises(TypeError, match="ApiVersionsRequest"):
        error_response(ApiVersionsRequest(), 0, ErrorCode.NOT_COORDINATOR)
    with pytest.raises(TypeError, match="ApiVersionsRequest"):
        GroupHost().send(ApiVersionsRequest())
