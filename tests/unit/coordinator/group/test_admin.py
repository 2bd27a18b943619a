"""DescribeGroups, ListGroups and DeleteGroups (C3)."""

import pytest

from penstock.coordinator.group.classic.records import ClassicGroupRecord
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.support.coordinator.groups import (
    SESSION_MS,
    GroupHost,
    commit_request,
    committed,
    join_request,
    stable_group,
    subscription,
)


@pytest.fixture
def host() -> GroupHost:
    return GroupHost()


def describe(host: GroupHost, group: str, version: int = 6) -> DescribeGroupsDescribedGroup:
    response = host.request(DescribeGroupsRequest([group]), DescribeGroupsResponse, version)
    (described,) = response.groups
    return described


def listed(host: GroupHost, states: list[str], types: list[str]) -> list[str]:
    response = host.request(ListGroupsRequest(states, types), ListGroupsResponse)
    return sorted(group.group_id for group in response.groups)


def deleted(host: GroupHost, *groups: str) -> list[int]:
    response = host.request(DeleteGroupsRequest(list(groups)), DeleteGroupsResponse)
    assert [result.group_id for result in response.results] == list(groups)
    return [result.error_code for result in response.results]


def test_a_stable_group_is_described_with_its_members(host: GroupHost) -> None:
    ids = stable_group(host, 1, instances=["i"])
    group = describe(host, "g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert {m.member_id for m in group.members} == set(ids)
    for member in group.members:
        assert member.member_metadata == subscription("t")
        assert member.member_assignment == member.member_id.encode()
        assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert {m.group_instance_id for m in group.members} == {None, "i"}


def test_a_rebalancing_group_is_described_without_metadata(host: GroupHost) -> None:
    stable_group(host, 1)
    host.send(join_request(), 3)
    group = describe(host, "g")
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert {m.member_metadata for m in group.members} == {b""}


def test_a_simple_group_is_empty(host: GroupHost) -> None:
    host.send(commit_request({("t", 0): 1}), 9)
    group = describe(host, "g")
    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "", [])


@pytest.mark.parametrize(("version", "error"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_an_unknown_group_is_dead(host: GroupHost, version: int, error: int) -> None:
    group = describe(host, "g", version)
    assert (group.group_state, group.error_code) == ("Dead", error)


def test_groups_are_listed_by_state_and_type(host: GroupHost) -> None:
    stable_group(host, 1)
    host.send(commit_request({("t", 0): 1}, group="simple"), 9)
    host.send(join_request(group="new"), 3)
    assert listed(host, [], []) == ["g", "new", "simple"]
    assert listed(host, ["Stable"], []) == ["g"]
    assert listed(host, ["empty ", "PREPARINGREBALANCE"], []) == ["new", "simple"]
    assert listed(host, ["Nonsense"], []) == []
    assert listed(host, [], ["Classic"]) == ["g", "new", "simple"]
    assert listed(host, [], ["consumer"]) == []
    assert listed(host, ["Stable"], ["consumer", "classic"]) == ["g"]


def test_a_listed_group_has_protocol_type_state_and_type(host: GroupHost) -> None:
    stable_group(host, 1)
    (group,) = host.request(ListGroupsRequest(), ListGroupsResponse).groups
    assert (group.protocol_type, group.group_state, group.group_type) == (
        "consumer",
        "Stable",
        "classic",
    )


def test_an_empty_group_is_deleted_with_its_offsets(host: GroupHost) -> None:
    host.send(commit_request({("t", 0): 1, ("u", 1): 2}), 9)
    record_count = len(host.log)
    assert deleted(host, "g") == [0]
    records = host.records(record_count)
    assert [type(record) for record in records] == [OffsetRecord, OffsetRecord, ClassicGroupRecord]
    assert all(record.value is None for record in records)
    assert committed(host) == {}
    host.restart()
    assert not host.shard.groups
    assert not host.shard.offsets.groups


def test_each_group_has_its_own_error(host: GroupHost) -> None:
    stable_group(host, 1)
    host.send(commit_request({("t", 0): 1}, group="simple"), 9)
    errors = deleted(host, "g", "nobody", "simple")
    assert errors == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND, 0]


def test_a_deleted_group_can_be_recreated(host: GroupHost) -> None:
    stable_group(host, 1)
    host.advance(SESSION_MS)
    assert deleted(host, "g") == [0]
    waiter = host.send(join_request(protocol_type="connect"), 3)
    host.advance(3_000)
    assert host.response(waiter, JoinGroupResponse).generation_id == 1
