"""LeaveGroup: by one member, in batches, by an administrator (C3)."""

import pytest

from penstock.coordinator.group.classic.model import ClassicGroupState
from penstock.coordinator.group.classic.records import ClassicGroupRecord
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.support.coordinator.groups import GroupHost, join_request, stable_group, sync_request


@pytest.fixture
def host() -> GroupHost:
    return GroupHost()


def leave(host: GroupHost, *members: tuple[str, str | None], group: str = "g") -> list[int]:
    identities = [MemberIdentity(member, instance, "done") for member, instance in members]
    request = LeaveGroupRequest(group_id=group, members=identities)
    response = host.request(request, LeaveGroupResponse, 5)
    assert response.error_code == 0
    return [member.error_code for member in response.members]


def test_a_leaving_member_triggers_a_rebalance(host: GroupHost) -> None:
    leader, follower = stable_group(host, 2)
    assert leave(host, (leader, None)) == [0]
    group = host.classic()
    assert (group.state, group.leader) == (ClassicGroupState.PREPARING_REBALANCE, follower)
    assert host.request(join_request(follower), JoinGroupResponse).generation_id == 2


def test_the_last_leaving_member_stores_an_empty_generation(host: GroupHost) -> None:
    (member,) = stable_group(host, 1)
    leave(host, (member, None))
    group = host.classic()
    assert (group.state, group.generation, group.protocol_name) == (
        ClassicGroupState.EMPTY,
        2,
        None,
    )
    assert group.protocol_type == "consumer"
    record = host.records()[-1]
    assert isinstance(record, ClassicGroupRecord)
    assert record.value is not None
    assert (record.value.generation, record.value.members) == (2, [])
    assert record.value.current_state_timestamp == host.now


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_versions_remove_one_member(host: GroupHost, version: int) -> None:
    (member,) = stable_group(host, 1)
    request = LeaveGroupRequest(group_id="g", member_id="x")
    response = host.request(request, LeaveGroupResponse, version)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request = LeaveGroupRequest(group_id="g", member_id=member)
    assert host.request(request, LeaveGroupResponse, version).error_code == 0
    assert not host.classic().members


def test_an_unknown_group_is_an_error_of_each_member(host: GroupHost) -> None:
    assert leave(host, ("a", None), ("b", None)) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    request = LeaveGroupRequest(group_id="g", member_id="a")
    response = host.request(request, LeaveGroupResponse, 2)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_id_is_refused(host: GroupHost) -> None:
    response = host.request(LeaveGroupRequest(group_id=""), LeaveGroupResponse, 5)
    assert response.error_code == ErrorCode.INVALID_GROUP_ID


def test_each_member_of_a_batch_has_its_own_error(host: GroupHost) -> None:
    ids = stable_group(host, 1, instances=["i", "j"])
    static = {m.split("-")[0]: m for m in ids}
    errors = leave(
        host,
        ("", "i"),
        ("", "nobody"),
        ("", None),
        ("wrong", "j"),
        (static["j"], "j"),
        ("unknown", None),
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors == [0, unknown, unknown, ErrorCode.FENCED_INSTANCE_ID, 0, unknown]
    assert list(host.classic().members) == [static["client"]]


def test_a_pending_member_id_can_leave(host: GroupHost) -> None:
    (leader,) = stable_group(host, 1)
    pending = host.request(join_request(), JoinGroupResponse).member_id
    waiter = host.send(join_request(leader))
    assert waiter not in host.responses
    assert leave(host, (pending, None)) == [0]
    assert host.response(waiter, JoinGroupResponse).generation_id == 2


def test_leaving_completes_a_waiting_join(host: GroupHost) -> None:
    first, second = stable_group(host, 2)
    waiting = host.send(join_request(first))
    leave(host, (first, None))
    response = host.response(waiting, JoinGroupResponse)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(host.classic().members) == [second]


def test_leaving_completes_a_waiting_sync(host: GroupHost) -> None:
    waiters = [host.send(join_request(), 3) for _ in range(2)]
    host.advance(6_000)
    responses = [host.response(w, JoinGroupResponse) for w in waiters]
    follower = next(r.member_id for r in responses if r.member_id != r.leader)
    waiting = host.send(sync_request(follower, 1))
    leave(host, (follower, None))
    assert host.response(waiting, SyncGroupResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_leaves_while_the_first_generation_forms(host: GroupHost) -> None:
    waiter = host.send(join_request(), 3)
    (member,) = host.classic().members
    assert leave(host, (member, None)) == [0]
    assert host.response(waiter, JoinGroupResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    host.advance(3_000)
    assert host.classic().state is ClassicGroupState.EMPTY
