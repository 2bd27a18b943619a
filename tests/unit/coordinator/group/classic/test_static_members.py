"""Members with a group.instance.id: they rejoin without a rebalance (C3)."""

import pytest

from penstock.coordinator.group.classic.model import ClassicGroupState
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.support.coordinator.groups import (
    REBALANCE_MS,
    SESSION_MS,
    GroupHost,
    commit_errors,
    commit_request,
    join_request,
    stable_group,
    subscription,
    sync_request,
)


@pytest.fixture
def host() -> GroupHost:
    return GroupHost()


def static_of(ids: list[str], instance: str) -> str:
    return next(member for member in ids if member.startswith(f"{instance}-"))


def test_a_static_member_joins_with_one_request(host: GroupHost) -> None:
    waiter = host.send(join_request(instance="i"))
    assert waiter not in host.responses
    host.advance(3_000)
    response = host.response(waiter, JoinGroupResponse)
    assert response.error_code == 0
    assert response.member_id.startswith("i-")
    assert [m.group_instance_id for m in response.members] == ["i"]


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_restarted_follower_gets_its_assignment_back(host: GroupHost, version: int) -> None:
    ids = stable_group(host, 1, instances=["i"])
    old = static_of(ids, "i")
    generation = host.classic().generation
    response = host.request(join_request(instance="i"), JoinGroupResponse, version)
    assert (response.error_code, response.generation_id) == (0, generation)
    assert response.member_id != old
    assert response.leader == ids[0]
    assert not response.skip_assignment
    assert host.classic().state is ClassicGroupState.STABLE
    sync = host.request(
        sync_request(response.member_id, generation, instance="i"), SyncGroupResponse
    )
    assert sync.assignment == old.encode()


def test_the_new_member_id_is_stored(host: GroupHost) -> None:
    stable_group(host, 1, instances=["i"])
    new = host.request(join_request(instance="i"), JoinGroupResponse).member_id
    host.restart()
    beat = host.request(HeartbeatRequest("g", 1, new, "i"), HeartbeatResponse)
    assert beat.error_code == 0


def test_a_restarted_leader_skips_the_assignment(host: GroupHost) -> None:
    """From version 9 on it receives the members, but keeps the assignment."""
    (old,) = stable_group(host, 0, instances=["i"])
    response = host.request(join_request(instance="i"), JoinGroupResponse, 9)
    assert response.leader == response.member_id != old
    assert response.skip_assignment
    assert [m.member_id for m in response.members] == [response.member_id]


def test_a_restarted_leader_of_an_older_version_sees_its_old_id_as_leader(host: GroupHost) -> None:
    (old,) = stable_group(host, 0, instances=["i"])
    response = host.request(join_request(instance="i"), JoinGroupResponse, 8)
    assert response.leader == old
    assert response.members == []
    assert host.classic().leader == response.member_id


def test_every_request_with_the_old_id_is_fenced(host: GroupHost) -> None:
    old = static_of(stable_group(host, 1, instances=["i"]), "i")
    host.request(join_request(instance="i"), JoinGroupResponse)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert host.request(HeartbeatRequest("g", 1, old, "i"), HeartbeatResponse).error_code == fenced
    assert host.request(join_request(old, instance="i"), JoinGroupResponse).error_code == fenced
    sync = host.request(sync_request(old, 1, instance="i"), SyncGroupResponse)
    assert sync.error_code == fenced
    commit = commit_request({("t", 0): 1}, member_id=old, generation=1, instance="i")
    assert commit_errors(host.request(commit, OffsetCommitResponse, 9)) == [fenced]
    assert host.request(HeartbeatRequest("g", 1, old), HeartbeatResponse).error_code == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_duplicate_fences_a_waiting_join(host: GroupHost) -> None:
    first = host.send(join_request(instance="i"))
    second = host.send(join_request(instance="i"))
    assert host.response(first, JoinGroupResponse).error_code == ErrorCode.FENCED_INSTANCE_ID
    host.advance(3_000)
    assert host.response(second, JoinGroupResponse).error_code == 0


def test_a_duplicate_fences_a_waiting_sync(host: GroupHost) -> None:
    waiters = [host.send(join_request(), 3), host.send(join_request(instance="i"))]
    host.advance(6_000)
    static = host.response(waiters[1], JoinGroupResponse).member_id
    waiting = host.send(sync_request(static, 1, instance="i"))
    host.send(join_request(instance="i"))
    assert host.response(waiting, SyncGroupResponse).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert host.classic().state is ClassicGroupState.PREPARING_REBALANCE


def test_a_change_of_the_chosen_protocol_rebalances(host: GroupHost) -> None:
    protocols = {"range": subscription("t"), "sticky": subscription("t")}
    waiters = [host.send(join_request(instance=i, protocols=protocols)) for i in ("i", "j")]
    host.advance(6_000)
    leader = host.response(waiters[0], JoinGroupResponse).leader
    host.send(sync_request(leader, 1))
    waiter = host.send(join_request(instance="i", protocols={"sticky": subscription("t")}))
    assert waiter not in host.responses
    assert host.classic().state is ClassicGroupState.PREPARING_REBALANCE


def test_an_absent_static_member_stays_through_a_rebalance(host: GroupHost) -> None:
    ids = stable_group(host, 1, instances=["i"])
    static = static_of(ids, "i")
    dynamic = next(m for m in ids if m != static)
    waiter = host.send(join_request(dynamic, protocols={"range": subscription("t", "u")}))
    for _ in range(REBALANCE_MS // 5_000):
        host.send(HeartbeatRequest("g", 1, static, "i"))
        host.advance(5_000)
    response = host.response(waiter, JoinGroupResponse)
    assert response.generation_id == 2
    assert static in host.classic().members


def test_a_rebalance_keeps_waiting_for_absent_static_members(host: GroupHost) -> None:
    ids = stable_group(host, 1, instances=["i"])
    static = static_of(ids, "i")
    dynamic = next(m for m in ids if m != static)
    identity = [MemberIdentity(dynamic)]
    host.request(LeaveGroupRequest(group_id="g", members=identity), LeaveGroupResponse)
    for _ in range(REBALANCE_MS // 5_000 + 1):
        host.send(HeartbeatRequest("g", 1, static, "i"))
        host.advance(5_000)
    group = host.classic()
    assert (group.state, group.generation) == (ClassicGroupState.PREPARING_REBALANCE, 1)
    response = host.request(join_request(static, instance="i"), JoinGroupResponse)
    assert (response.generation_id, response.leader) == (2, static)


def test_an_unknown_instance_with_an_id_is_refused(host: GroupHost) -> None:
    (member,) = stable_group(host, 1)
    response = host.request(join_request(member, instance="i"), JoinGroupResponse)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_expires_like_any_other(host: GroupHost) -> None:
    stable_group(host, 0, instances=["i"])
    host.advance(SESSION_MS)
    group = host.classic()
    assert (group.state, group.static_members) == (ClassicGroupState.EMPTY, {})
