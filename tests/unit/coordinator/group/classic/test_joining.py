"""JoinGroup: which members are accepted, their ids, and when the response is sent (C3)."""

import pytest

from penstock.coordinator.group.classic.model import ClassicGroupState
from penstock.coordinator.group.classic.records import ClassicGroupRecord
from penstock.coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from penstock.coordinator.group.events import JoinTimer, SessionTimer
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupResponse
from tests.support.coordinator.groups import (
    REBALANCE_MS,
    SESSION_MS,
    GroupHost,
    join_request,
    stable_group,
    subscription,
    sync_all,
)

RANGE_AND_STICKY = {"range": b"r", "sticky": b"s"}


@pytest.fixture
def host() -> GroupHost:
    return GroupHost()


def test_an_empty_group_id_is_refused(host: GroupHost) -> None:
    response = host.request(join_request(group=""), JoinGroupResponse)
    assert response.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(("session_ms", "ok"), [(5_999, False), (6_000, True), (1_800_001, False)])
def test_the_session_timeout_is_bounded(host: GroupHost, session_ms: int, ok: bool) -> None:
    response = host.request(join_request(session_ms=session_ms), JoinGroupResponse)
    refused = response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert refused != ok


def test_an_unknown_member_of_an_unknown_group_is_refused(host: GroupHost) -> None:
    response = host.request(join_request("somebody"), JoinGroupResponse)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert response.member_id == "somebody"
    assert not host.shard.groups


@pytest.mark.parametrize("version", [4, 5, 9])
def test_a_new_member_gets_its_id_before_it_joins(host: GroupHost, version: int) -> None:
    waiter = host.send(join_request(), version, client_id="app")
    response = host.response(waiter, JoinGroupResponse)
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id.startswith("app-")
    assert len(response.member_id) == len("app-") + 36
    assert host.classic().pending_joins == {response.member_id}
    assert SessionTimer("g", response.member_id) in host.timers


def test_the_first_join_stores_the_empty_group(host: GroupHost) -> None:
    host.send(join_request())
    (record,) = host.records()
    assert isinstance(record, ClassicGroupRecord)
    assert record.value is not None
    assert (record.value.generation, record.value.members) == (0, [])
    host.send(join_request())
    assert len(host.log) == 1


def test_an_unused_member_id_expires(host: GroupHost) -> None:
    member = host.request(join_request(), JoinGroupResponse).member_id
    host.advance(SESSION_MS)
    assert not host.classic().pending_joins
    late = host.request(join_request(member), JoinGroupResponse)
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_versions_join_at_once(host: GroupHost, version: int) -> None:
    waiter = host.send(join_request(), version)
    assert waiter not in host.responses
    host.advance(3_000)
    response = host.response(waiter, JoinGroupResponse)
    assert response.error_code == 0
    assert response.generation_id == 1
    assert response.leader == response.member_id
    assert [m.metadata for m in response.members] == [subscription("t")]


def test_version_0_uses_the_session_timeout_as_rebalance_timeout(host: GroupHost) -> None:
    host.send(join_request(rebalance_ms=-1), 0)
    (member,) = host.classic().members.values()
    assert member.rebalance_timeout_ms == SESSION_MS


def test_a_new_member_requests_an_id_and_then_joins(host: GroupHost) -> None:
    """C3: it becomes the leader of generation 1."""
    member = host.request(join_request(), JoinGroupResponse).member_id
    waiter = host.send(join_request(member))
    host.advance(2_999)
    assert waiter not in host.responses
    host.advance(1)
    response = host.response(waiter, JoinGroupResponse)
    assert (response.error_code, response.generation_id, response.leader) == (0, 1, member)
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert host.classic().state is ClassicGroupState.COMPLETING_REBALANCE


def test_each_newcomer_extends_the_first_delay_up_to_the_rebalance_timeout() -> None:
    host = GroupHost(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    waiters = [host.send(join_request(rebalance_ms=8_000), 3)]
    for _ in range(2):
        host.advance(2_999)
        waiters.append(host.send(join_request(rebalance_ms=8_000), 3))
    # Members joined before 3000 and 6000; then 8000 - 3000 - 3000 ms remain.
    host.advance(2_001)
    assert not host.responses
    host.advance(1)
    assert {host.response(w, JoinGroupResponse).generation_id for w in waiters} == {1}


def test_without_newcomers_the_first_delay_is_not_extended(host: GroupHost) -> None:
    waiter = host.send(join_request(), 3)
    host.advance(3_000)
    assert waiter in host.responses


def test_an_initial_delay_of_0_completes_the_join_at_once() -> None:
    host = GroupHost(GroupConfig(group_initial_rebalance_delay_ms=0))
    waiter = host.send(join_request(), 3)
    host.advance(0)
    assert host.response(waiter, JoinGroupResponse).generation_id == 1


def test_only_the_leader_receives_the_member_list(host: GroupHost) -> None:
    waiters = [host.send(join_request(), 3) for _ in range(3)]
    host.advance(6_000)
    responses = [host.response(w, JoinGroupResponse) for w in waiters]
    leaders = [r for r in responses if r.member_id == r.leader]
    assert len(leaders) == 1
    assert {m.member_id for m in leaders[0].members} == {r.member_id for r in responses}
    assert all(not r.members for r in responses if r is not leaders[0])


def test_the_common_protocol_with_most_votes_is_chosen(host: GroupHost) -> None:
    waiters = [
        host.send(join_request(protocols=protocols), 3)
        for protocols in (
            {"a": b"1", "b": b"1", "c": b"1"},
            {"b": b"2", "c": b"2", "a": b"2"},
            {"b": b"3", "a": b"3"},
        )
    ]
    host.advance(6_000)
    assert {host.response(w, JoinGroupResponse).protocol_name for w in waiters} == {"b"}


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": b""}), ("consumer", {"other": b""}), ("consumer", {})],
)
def test_a_member_without_a_common_protocol_is_rejected(
    host: GroupHost, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    stable_group(host, 1)
    request = join_request(protocols=protocols, protocol_type=protocol_type)
    response = host.request(request, JoinGroupResponse)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", {"x": b""}), ("consumer", {})])
def test_a_first_member_needs_a_type_and_a_protocol(
    host: GroupHost, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    request = join_request(protocols=protocols, protocol_type=protocol_type)
    response = host.request(request, JoinGroupResponse)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not host.log


def test_any_protocol_type_is_accepted(host: GroupHost) -> None:
    waiter = host.send(join_request(protocol_type="connect", protocols={"v1": b"\xff"}), 3)
    host.advance(3_000)
    response = host.response(waiter, JoinGroupResponse)
    assert (response.protocol_type, response.protocol_name) == ("connect", "v1")


def test_a_new_member_triggers_a_rebalance(host: GroupHost) -> None:
    first, second = stable_group(host, 2)
    newcomer = host.send(join_request(), 3)
    beat = host.request(HeartbeatRequest("g", 1, second), HeartbeatResponse)
    assert beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    waiters = [host.send(join_request(m)) for m in (first, second)]
    generations = {host.response(w, JoinGroupResponse).generation_id for w in (newcomer, *waiters)}
    assert generations == {2}


def test_a_member_that_does_not_rejoin_in_time_is_removed(host: GroupHost) -> None:
    first, second = stable_group(host, 2)
    waiter = host.send(join_request(first))
    for _ in range(REBALANCE_MS // 5_000):
        host.request(HeartbeatRequest("g", 1, second), HeartbeatResponse)
        host.advance(5_000)
    response = host.response(waiter, JoinGroupResponse)
    assert response.generation_id == 2
    assert [m.member_id for m in response.members] == [first]
    heartbeat = host.request(HeartbeatRequest("g", 1, second), HeartbeatResponse)
    assert heartbeat.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_replaced(host: GroupHost) -> None:
    leader, follower = stable_group(host, 2)
    waiter = host.send(join_request(follower, protocols={"range": subscription("u", "t")}))
    host.advance(SESSION_MS)
    response = host.response(waiter, JoinGroupResponse)
    assert response.leader == follower
    assert leader not in host.classic().members


def test_an_unchanged_follower_that_rejoins_gets_the_current_generation(
    host: GroupHost,
) -> None:
    leader, follower = stable_group(host, 2)
    response = host.request(join_request(follower), JoinGroupResponse)
    assert (response.generation_id, response.leader, response.members) == (1, leader, [])
    assert host.classic().state is ClassicGroupState.STABLE


def test_a_leader_that_rejoins_starts_a_rebalance(host: GroupHost) -> None:
    leader, _ = stable_group(host, 2)
    waiter = host.send(join_request(leader))
    assert waiter not in host.responses
    assert host.classic().state is ClassicGroupState.PREPARING_REBALANCE


def test_a_repeated_join_gets_the_same_response_while_the_group_syncs(host: GroupHost) -> None:
    waiters = [host.send(join_request(), 3) for _ in range(2)]
    host.advance(6_000)
    for waiter in waiters:
        first = host.response(waiter, JoinGroupResponse)
        repeated = host.request(join_request(first.member_id), JoinGroupResponse)
        assert repeated == first


def test_changed_metadata_while_the_group_syncs_rebalances(host: GroupHost) -> None:
    waiter = host.send(join_request(), 3)
    host.advance(3_000)
    member = host.response(waiter, JoinGroupResponse).member_id
    response = host.request(
        join_request(member, protocols={"range": subscription("u")}), JoinGroupResponse
    )
    assert response.generation_id == 2


def test_joining_twice_ends_the_first_wait(host: GroupHost) -> None:
    """Every JoinGroup gets a response, although Kafka drops the first."""
    first, _ = stable_group(host, 2)
    old = host.send(join_request(first))
    host.send(join_request(first))
    assert host.response(old, JoinGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_new_member_that_waits_too_long_is_removed() -> None:
    host = GroupHost(GroupConfig(group_initial_rebalance_delay_ms=NEW_MEMBER_JOIN_TIMEOUT_MS + 1))
    waiter = host.send(join_request(rebalance_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS), 3)
    host.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert host.response(waiter, JoinGroupResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not host.classic().members


def test_a_known_member_may_wait_longer_than_its_session(host: GroupHost) -> None:
    first, second = stable_group(host, 2)
    waiter = host.send(join_request(first))
    for _ in range(4):
        host.request(HeartbeatRequest("g", 1, second), HeartbeatResponse)
        host.advance(SESSION_MS - 1)
    assert first in host.classic().members
    host.send(join_request(second))
    assert host.response(waiter, JoinGroupResponse).error_code == 0


def test_a_full_group_rejects_new_members() -> None:
    host = GroupHost(GroupConfig(group_max_size=2))
    stable_group(host, 2)
    response = host.request(join_request(), JoinGroupResponse)
    assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert response.member_id == ""


def test_a_forming_group_counts_waiting_members_towards_its_size() -> None:
    host = GroupHost(GroupConfig(group_max_size=2))
    waiters = [host.send(join_request(), 3) for _ in range(3)]
    refused = host.response(waiters[2], JoinGroupResponse)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    host.advance(6_000)
    assert [host.response(w, JoinGroupResponse).error_code for w in waiters[:2]] == [0, 0]


def test_a_group_that_is_too_large_when_loaded_rebalances() -> None:
    host = GroupHost()
    ids = stable_group(host, 3)
    host.config = GroupConfig(group_max_size=2)
    host.restart()
    assert host.classic().state is ClassicGroupState.PREPARING_REBALANCE
    waiters = [host.send(join_request(member)) for member in ids]
    errors = sorted(host.response(w, JoinGroupResponse).error_code for w in waiters)
    assert errors == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_rebalance_waits_for_pending_member_ids(host: GroupHost) -> None:
    (leader,) = stable_group(host, 1)
    pending = host.request(join_request(), JoinGroupResponse).member_id
    waiter = host.send(join_request(leader))
    assert waiter not in host.responses
    newcomer = host.send(join_request(pending))
    assert host.response(waiter, JoinGroupResponse).generation_id == 2
    assert host.response(newcomer, JoinGroupResponse).generation_id == 2


def test_a_rebalance_completes_when_a_pending_id_expires(host: GroupHost) -> None:
    (leader,) = stable_group(host, 1)
    host.send(join_request())
    waiter = host.send(join_request(leader))
    host.advance(SESSION_MS)
    assert host.response(waiter, JoinGroupResponse).generation_id == 2


def test_a_pending_id_is_never_static(host: GroupHost) -> None:
    member = host.request(join_request(), JoinGroupResponse).member_id
    response = host.request(join_request(member, instance="i"), JoinGroupResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_an_empty_group_has_no_timers(host: GroupHost) -> None:
    stable_group(host, 3)
    host.advance(SESSION_MS)
    group = host.classic()
    assert (group.state, group.generation) == (ClassicGroupState.EMPTY, 2)
    assert JoinTimer("g") not in host.timers
    assert len(host.timers) == 1


def test_an_emptied_group_uses_the_initial_delay_again(host: GroupHost) -> None:
    stable_group(host, 1)
    host.advance(SESSION_MS)
    waiter = host.send(join_request(), 3)
    assert waiter not in host.responses
    host.advance(3_000)
    response = host.response(waiter, JoinGroupResponse)
    assert response.generation_id == 3
    sync_all(host, [response.member_id], 3)
    assert host.classic().state is ClassicGroupState.STABLE


@pytest.mark.parametrize("version", range(10))
def test_responses_encode_in_each_version(version: int) -> None:
    """The host encodes each response in the version of its request."""
    host = GroupHost()
    first = host.send(join_request(protocols=RANGE_AND_STICKY), version)
    if version >= 4:
        member = host.response(first, JoinGroupResponse).member_id
        first = host.send(join_request(member, protocols=RANGE_AND_STICKY), version)
    host.advance(3_000)
    assert host.response(first, JoinGroupResponse).generation_id == 1
