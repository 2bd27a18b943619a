"""SyncGroup, Heartbeat and expired sessions (C3)."""

import pytest

from penstock.coordinator.group.classic.model import ClassicGroupState
from penstock.coordinator.group.classic.records import ClassicGroupRecord
from penstock.coordinator.group.events import SessionTimer, SyncTimer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupResponse
from tests.support.coordinator.groups import (
    REBALANCE_MS,
    SESSION_MS,
    GroupHost,
    join_request,
    stable_group,
    subscription,
    sync_all,
    sync_request,
)


@pytest.fixture
def host() -> GroupHost:
    return GroupHost()


def joined(host: GroupHost, size: int) -> list[str]:
    """Forms a group that waits for its assignment; returns the member ids, leader first."""
    waiters = [host.send(join_request(), 3) for _ in range(size)]
    host.advance(6_000)
    responses = [host.response(w, JoinGroupResponse) for w in waiters]
    ids = [response.member_id for response in responses]
    return sorted(ids, key=lambda member_id: member_id != responses[0].leader)


def sync_error(
    host: GroupHost,
    member: str,
    generation: int,
    *,
    group: str = "g",
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> int:
    request = sync_request(
        member,
        generation,
        group=group,
        instance=instance,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
    )
    return host.request(request, SyncGroupResponse).error_code


def test_followers_wait_for_the_leader(host: GroupHost) -> None:
    leader, follower = joined(host, 2)
    waiting = host.send(sync_request(follower, 1))
    assert waiting not in host.responses
    assignments = {leader: b"one", follower: b"two"}
    leader_response = host.request(sync_request(leader, 1, assignments), SyncGroupResponse)
    assert (leader_response.error_code, leader_response.assignment) == (0, b"one")
    assert (leader_response.protocol_type, leader_response.protocol_name) == ("consumer", "range")
    assert host.response(waiting, SyncGroupResponse).assignment == b"two"
    assert host.classic().state is ClassicGroupState.STABLE
    assert SyncTimer("g") not in host.timers


def test_a_late_follower_gets_its_assignment_at_once(host: GroupHost) -> None:
    leader, follower = joined(host, 2)
    host.send(sync_request(leader, 1, {follower: b"two"}))
    assert host.request(sync_request(follower, 1), SyncGroupResponse).assignment == b"two"
    assert SyncTimer("g") not in host.timers


def test_a_member_missing_from_the_assignment_gets_an_empty_one(host: GroupHost) -> None:
    leader, follower = joined(host, 2)
    host.send(sync_request(leader, 1, {leader: b"all"}))
    assert host.request(sync_request(follower, 1), SyncGroupResponse).assignment == b""


def test_the_generation_is_stored(host: GroupHost) -> None:
    """C3: members, their metadata for the chosen protocol and their assignments."""
    ids = stable_group(host, 2)
    record = host.records()[-1]
    assert isinstance(record, ClassicGroupRecord)
    value = record.value
    assert value is not None
    assert (value.generation, value.protocol_type, value.protocol) == (1, "consumer", "range")
    assert value.leader == ids[0]
    assert {m.member_id: m.assignment for m in value.members} == {m: m.encode() for m in ids}
    assert {m.subscription for m in value.members} == {subscription("t")}
    member = value.members[0]
    assert (member.session_timeout, member.rebalance_timeout) == (SESSION_MS, REBALANCE_MS)
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")


def test_sync_checks_errors_in_kafkas_order(host: GroupHost) -> None:
    assert sync_error(host, "x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    leader, _ = joined(host, 2)
    assert sync_error(host, "x", 9) == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync_error(host, leader, 9, protocol_name="z") == ErrorCode.ILLEGAL_GENERATION
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync_error(host, leader, 1, protocol_name="z") == inconsistent
    assert sync_error(host, leader, 1, protocol_type="connect") == inconsistent
    assert sync_error(host, leader, 1, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync_error(host, leader, 1, protocol_name=None, protocol_type=None) == 0
    assert sync_error(host, "", 1, group="") == ErrorCode.INVALID_GROUP_ID


def test_a_sync_during_a_rebalance_is_rejected(host: GroupHost) -> None:
    leader, follower = stable_group(host, 2)
    host.send(join_request(leader))
    assert sync_error(host, follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_rejects_waiting_syncs(host: GroupHost) -> None:
    _, follower = joined(host, 2)
    waiting = host.send(sync_request(follower, 1))
    host.send(join_request(), 3)
    assert host.response(waiting, SyncGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_syncing_twice_ends_the_first_wait(host: GroupHost) -> None:
    _, follower = joined(host, 2)
    old = host.send(sync_request(follower, 1))
    host.send(sync_request(follower, 1))
    assert host.response(old, SyncGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_does_not_sync_in_time_is_removed(host: GroupHost) -> None:
    leader, follower = joined(host, 2)
    waiting = host.send(sync_request(follower, 1))
    for _ in range(REBALANCE_MS // 5_000):
        beat = host.request(HeartbeatRequest("g", 1, leader), HeartbeatResponse)
        assert beat.error_code == 0
        host.advance(5_000)
    assert host.response(waiting, SyncGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(host.classic().members) == [follower]


def test_the_sync_timeout_applies_to_a_stable_group(host: GroupHost) -> None:
    leader, follower = joined(host, 2)
    host.send(sync_request(leader, 1))
    for _ in range(REBALANCE_MS // 5_000):
        for member in (leader, follower):
            host.request(HeartbeatRequest("g", 1, member), HeartbeatResponse)
        host.advance(5_000)
    group = host.classic()
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    assert list(group.members) == [leader]


def test_heartbeat_checks_errors_in_kafkas_order(host: GroupHost) -> None:
    def beat(member: str, generation: int, instance: str | None = None, group: str = "g") -> int:
        request = HeartbeatRequest(group, generation, member, instance)
        return host.request(request, HeartbeatResponse).error_code

    assert beat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat("x", 1, group="") == ErrorCode.INVALID_GROUP_ID
    ids = stable_group(host, 1, instances=["i"])
    static = next(m for m in ids if m.startswith("i-"))
    assert beat("x", 9) == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat("x", 9, "i") == ErrorCode.FENCED_INSTANCE_ID
    assert beat(static, 9, "other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(static, 9, "i") == ErrorCode.ILLEGAL_GENERATION
    assert beat(static, 1, "i") == 0


def test_heartbeats_keep_a_session_alive(host: GroupHost) -> None:
    (member,) = stable_group(host, 1)
    for _ in range(10):
        host.advance(SESSION_MS - 1)
        assert host.request(HeartbeatRequest("g", 1, member), HeartbeatResponse).error_code == 0
    host.advance(SESSION_MS)
    assert not host.classic().members


def test_heartbeats_succeed_before_the_assignment(host: GroupHost) -> None:
    leader, _ = joined(host, 2)
    assert host.request(HeartbeatRequest("g", 1, leader), HeartbeatResponse).error_code == 0


def test_a_member_that_waits_for_its_assignment_does_not_expire(host: GroupHost) -> None:
    leader, follower = joined(host, 2)
    waiting = host.send(sync_request(follower, 1))
    host.advance(SESSION_MS - 1)
    host.request(HeartbeatRequest("g", 1, leader), HeartbeatResponse)
    host.advance(2)
    assert follower in host.classic().members
    host.send(sync_request(leader, 1, {follower: b"two"}))
    assert host.response(waiting, SyncGroupResponse).assignment == b"two"
    assert SessionTimer("g", follower) in host.timers


def test_an_expired_member_triggers_a_rebalance(host: GroupHost) -> None:
    leader, follower = stable_group(host, 2)
    host.advance(SESSION_MS - 1)
    host.request(HeartbeatRequest("g", 1, leader), HeartbeatResponse)
    host.advance(1)
    beat = host.request(HeartbeatRequest("g", 1, leader), HeartbeatResponse)
    assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower not in host.classic().members
    response = host.request(join_request(leader), JoinGroupResponse)
    assert response.generation_id == 2


def test_a_stored_group_survives_a_restart(host: GroupHost) -> None:
    """C3: a new coordinator loads members, generation and assignments from the log."""
    ids = stable_group(host, 2)
    host.restart()
    for member in ids:
        assert host.request(HeartbeatRequest("g", 1, member), HeartbeatResponse).error_code == 0
        response = host.request(sync_request(member, 1), SyncGroupResponse)
        assert response.assignment == member.encode()
    host.advance(SESSION_MS)
    assert not host.classic().members


def test_an_unstored_generation_is_lost_in_a_restart(host: GroupHost) -> None:
    leader, follower = stable_group(host, 2)
    waiters = [host.send(join_request(m)) for m in (leader, follower)]
    assert host.response(waiters[0], JoinGroupResponse).generation_id == 2
    host.restart()
    assert sync_error(host, leader, 2) == ErrorCode.ILLEGAL_GENERATION
    waiters = [host.send(join_request(m)) for m in (leader, follower)]
    generation = host.response(waiters[0], JoinGroupResponse).generation_id
    assert [r.error_code for r in sync_all(host, [leader, follower], generation)] == [0, 0]


def test_a_restart_keeps_only_the_chosen_protocol(host: GroupHost) -> None:
    protocols = {"range": subscription("t"), "sticky": subscription("t")}
    waiter = host.send(join_request(protocols=protocols), 3)
    host.advance(3_000)
    member = host.response(waiter, JoinGroupResponse).member_id
    sync_all(host, [member], 1)
    host.restart()
    response = host.request(join_request(member, protocols={"sticky": b""}), JoinGroupResponse)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    response = host.request(join_request(member, protocols=protocols), JoinGroupResponse)
    assert response.generation_id == 2
