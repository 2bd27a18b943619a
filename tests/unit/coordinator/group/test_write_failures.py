"""Records that cannot be written, or are not committed in time: every request gets a response."""

import pytest

from penstock.coordinator.group.classic.model import ClassicGroupState
from penstock.coordinator.group.config import WRITE_RETRY_MS
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
    SESSION_MS,
    GroupHost,
    commit_errors,
    commit_request,
    committed,
    join_request,
    stable_group,
    sync_all,
    sync_request,
)


@pytest.fixture
def host() -> GroupHost:
    return GroupHost()


@pytest.mark.parametrize(
    ("error", "expected_error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_an_assignment_that_cannot_be_stored_fails_all_syncs(
    host: GroupHost, error: ErrorCode, expected_error: ErrorCode
) -> None:
    """All waiting members receive the error, and the group rebalances."""
    waiters = [host.send(join_request(), 3) for _ in range(2)]
    host.advance(6_000)
    leader = host.response(waiters[0], JoinGroupResponse).leader
    (follower,) = set(host.shard.groups["g"].members) - {leader}
    waiting = host.send(sync_request(follower, 1))
    host.append_error = error
    leader_response = host.request(sync_request(leader, 1, {leader: b"x"}), SyncGroupResponse)
    assert leader_response.error_code == expected_error
    assert host.response(waiting, SyncGroupResponse).error_code == expected_error
    assert host.shard.groups["g"].state is ClassicGroupState.PREPARING_REBALANCE
    waiters = [host.send(join_request(m)) for m in (leader, follower)]
    assert {host.response(w, JoinGroupResponse).generation_id for w in waiters} == {2}
    assert {r.error_code for r in sync_all(host, [leader, follower], 2)} == {0}


def test_an_assignment_that_is_not_committed_in_time_fails_all_syncs(host: GroupHost) -> None:
    waiters = [host.send(join_request(), 3) for _ in range(2)]
    host.advance(6_000)
    leader = host.response(waiters[0], JoinGroupResponse).leader
    (follower,) = set(host.shard.groups["g"].members) - {leader}
    host.commits = False
    syncing = [host.send(sync_request(follower, 1)), host.send(sync_request(leader, 1))]
    assert not set(syncing) & set(host.responses)
    host.commit_fails()
    errors = [host.response(w, SyncGroupResponse).error_code for w in syncing]
    assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert host.shard.groups["g"].state is ClassicGroupState.PREPARING_REBALANCE


def test_a_response_waits_for_the_commit(host: GroupHost) -> None:
    stable_group(host, 1)
    host.commits = False
    waiter = host.send(commit_request({("t", 0): 5}, group="other"), 9)
    assert waiter not in host.responses
    host.commit()
    assert commit_errors(host.response(waiter, OffsetCommitResponse)) == [0]


def test_an_offset_that_cannot_be_stored_is_an_error(host: GroupHost) -> None:
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    request = commit_request({("t", 0): 5, ("t", 1): 6})
    response = host.request(request, OffsetCommitResponse, 9)
    assert commit_errors(response) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert committed(host) == {}


def test_a_first_join_that_cannot_be_stored_creates_no_group(host: GroupHost) -> None:
    """The JoinGroup gets an error at once instead of waiting."""
    host.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    response = host.request(join_request(), JoinGroupResponse, 3)
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    assert not host.shard.groups
    assert len(host.timers) == 1


def test_a_join_keeps_waiting_if_its_group_is_not_committed_in_time(host: GroupHost) -> None:
    host.commits = False
    waiter = host.send(join_request(), 3)
    host.commit_fails()
    assert waiter not in host.responses
    host.advance(3_000)
    assert host.response(waiter, JoinGroupResponse).generation_id == 1


def test_a_leave_that_cannot_be_stored_has_no_effect(host: GroupHost) -> None:
    (member,) = stable_group(host, 1)
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member)])
    response = host.request(request, LeaveGroupResponse)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.request(HeartbeatRequest("g", 1, member), HeartbeatResponse).error_code == 0


def test_a_static_member_that_cannot_be_replaced_stays(host: GroupHost) -> None:
    (old,) = stable_group(host, 0, instances=["i"])
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    response = host.request(join_request(instance="i"), JoinGroupResponse)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.request(HeartbeatRequest("g", 1, old, "i"), HeartbeatResponse).error_code == 0


def test_a_timer_whose_records_cannot_be_stored_is_retried(host: GroupHost) -> None:
    stable_group(host, 1)
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    host.advance(SESSION_MS)
    assert host.shard.groups["g"].members
    host.advance(WRITE_RETRY_MS)
    assert host.shard.groups["g"].state is ClassicGroupState.EMPTY


def test_a_failure_writes_no_record(host: GroupHost) -> None:
    (member,) = stable_group(host, 1)
    log = list(host.log)
    host.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    host.send(commit_request({("t", 0): 1}, member_id=member, generation=1), 9)
    assert host.log == log


def test_losing_the_leadership_rejects_waiting_requests(host: GroupHost) -> None:
    leader, follower = stable_group(host, 2)
    joining = host.send(join_request(leader))
    other_waiter = host.send(join_request(group="h"), 3)
    host.advance(3_000)
    second = host.response(other_waiter, JoinGroupResponse).member_id
    host.send(join_request(group="h"), 3)
    responses = {response.waiter: response.message for response in host.shard.unload()}
    assert set(responses) == set(host.waiters)
    response = responses[joining]
    assert isinstance(response, JoinGroupResponse)
    assert (response.error_code, response.member_id) == (ErrorCode.NOT_COORDINATOR, leader)
    assert follower != second
