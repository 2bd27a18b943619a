"""Classic groups over the wire: members join, their leader assigns, they come and go (C3)."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    commit,
    committed,
    find_group,
    listed,
    pass_time,
    wait_until,
)
from tests.support.coordinator.group_members import ClassicMember
from tests.support.protocol.requests import make_topic

SESSION_MS = 45_000


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return GROUP_SETTINGS


@pytest.fixture
def clients(broker: RunningBroker) -> Iterator[list[WireClient]]:
    """Connections for members: one that waits to join holds up its own only."""
    with ExitStack() as stack:
        yield [stack.enter_context(broker.connect(client_id=name)) for name in ("a", "b", "c")]


def group_of_two(
    clients: list[WireClient], group: str, topic: str
) -> tuple[ClassicMember, ClassicMember]:
    """A leader that has all partitions but the last, and a follower that has the last."""
    find_group(clients[0], group)
    leader = ClassicMember(clients[0], group, [topic]).joined({topic: [0, 1]})
    follower = ClassicMember(clients[1], group, [topic])
    rebalance(leader, [follower], topic)
    return leader, follower


def rebalance(leader: ClassicMember, others: list[ClassicMember], topic: str) -> Any:
    """Everybody joins, the leader last; each gets the partition of its number."""
    requests = []
    for entry in others:
        if not entry.member_id and entry.instance is None:
            entry.member_id = entry.client.request(entry.join_request(), 9).member_id
        requests.append(entry.send_join())
    wait_until(lambda: leader.beat() is ErrorCode.REBALANCE_IN_PROGRESS)
    joined = leader.join()
    assert (joined.error_code, joined.leader) == (0, leader.member_id)
    for each, request in zip(others, requests, strict=True):
        response = each.receive_join(request)
        assert response.error_code == 0
        assert response.members == [], "only the leader is told who is there"
        assert (response.leader, response.generation_id) == (leader.member_id, joined.generation_id)
    plan = {item.member_id: {topic: [n]} for n, item in enumerate([leader, *others])}
    assert leader.sync(plan).error_code == 0
    for number, value in enumerate(others, 1):
        assert value.sync().error_code == 0
        assert value.assigned == {topic: [number]}
    return joined


def test_the_leader_assigns(clients: list[WireClient]) -> None:
    make_topic(clients[0], "plan", 3)
    leader, follower = group_of_two(clients, "plan", "plan")
    assert (leader.assigned, follower.assigned) == ({"plan": [0]}, {"plan": [1]})
    assert leader.generation == follower.generation == 2
    third = ClassicMember(clients[2], "plan", ["plan"])
    joining = third.client.request(third.join_request(), 9)
    assert joining.error_code == ErrorCode.MEMBER_ID_REQUIRED
    third.member_id = joining.member_id
    request = third.send_join()
    wait_until(lambda: leader.beat() is ErrorCode.REBALANCE_IN_PROGRESS)
    again = follower.send_join()
    joined = leader.join()
    members = {leader.member_id, follower.member_id, third.member_id}
    assert {member.member_id for member in joined.members} == members
    for member, sent in ((third, request), (follower, again)):
        assert member.receive_join(sent).error_code == 0
    plan = {member: {"plan": [n]} for n, member in enumerate(sorted(members))}
    assert leader.sync(plan).error_code == 0
    for member in (follower, third):
        assert member.sync().error_code == 0
        assert member.assigned == plan[member.member_id]
    assert follower.leave() is ErrorCode.NONE
    assert leader.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_generations_and_members_that_are_not_of_the_group(clients: list[WireClient]) -> None:
    make_topic(clients[0], "fenced", 2)
    leader, follower = group_of_two(clients, "fenced", "fenced")

    def committing(member_id: str, generation: int) -> list[ErrorCode]:
        offsets = {("fenced", 0): 1}
        return commit(clients[0], "fenced", offsets, member_id=member_id, epoch=generation)

    assert committing(leader.member_id, 2) == [ErrorCode.NONE]
    assert committing(leader.member_id, 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert committing("nobody", 2) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert committing("", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    follower.generation = 1
    assert follower.beat() is ErrorCode.ILLEGAL_GENERATION
    assert follower.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    follower.member_id = "nobody"
    assert follower.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert follower.join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert follower.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(clients[0], "fenced") == {("fenced", 0): 1}


def test_who_is_not_heard_of_makes_room(broker: RunningBroker, clients: list[WireClient]) -> None:
    make_topic(clients[0], "silence", 2)
    leader, follower = group_of_two(clients, "silence", "silence")
    pass_time(broker, SESSION_MS - 1000)
    assert leader.beat() is ErrorCode.NONE
    pass_time(broker, 2000)
    assert leader.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    joined = leader.join()
    assert [member.member_id for member in joined.members] == [leader.member_id]
    assert follower.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_comes_back_without_a_rebalance(clients: list[WireClient]) -> None:
    make_topic(clients[0], "still", 2)
    find_group(clients[0], "still")
    leader = ClassicMember(clients[0], "still", ["still"]).joined({"still": [0]})
    static = ClassicMember(clients[1], "still", ["still"], instance="i")
    rebalance(leader, [static], "still")
    back = ClassicMember(clients[2], "still", ["still"], instance="i")
    response = back.join()
    assert (response.error_code, response.generation_id) == (0, leader.generation)
    assert back.member_id != static.member_id
    assert back.sync().error_code == 0
    assert back.assigned == {"still": [1]}
    assert leader.beat() is ErrorCode.NONE
    assert static.beat() is ErrorCode.FENCED_INSTANCE_ID
    # An administrator takes it out of the group by its instance.
    gone = LeaveGroupRequest("still", members=[MemberIdentity("", "i"), MemberIdentity("x", None)])
    response = clients[0].request(gone, 5)
    codes = [member.error_code for member in response.members]
    assert (response.error_code, codes) == (0, [0, ErrorCode.UNKNOWN_MEMBER_ID])
    assert back.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_cannot_join(client: WireClient) -> None:
    make_topic(client, "cannot")
    find_group(client, "cannot")
    ClassicMember(client, "cannot", ["cannot"]).joined()

    def code(**changes: Any) -> ErrorCode:
        request = ClassicMember(client, "cannot", ["cannot"]).join_request()
        for name, value in changes.items():
            setattr(request, name, value)
        return ErrorCode(client.request(request, 9).error_code)

    assert code(session_timeout_ms=10) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert code(session_timeout_ms=1 << 30) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert code(group_id="") is ErrorCode.INVALID_GROUP_ID
    assert code(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = [JoinGroupRequestProtocol("sticky", b"")]
    assert code(protocols=other) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(protocols=[]) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(member_id="nobody") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_has_room_for_so_many(tmp_path: Path) -> None:
    settings = {**GROUP_SETTINGS, "group.max.size": "1"}
    with watching(), running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t")
        find_group(client, "g")
        first = ClassicMember(client, "g", ["t"]).joined()
        second = ClassicMember(client, "g", ["t"])
        assert second.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert first.leave() is ErrorCode.NONE
        assert second.join().error_code == 0


# --- all versions


@pytest.mark.parametrize("version", range(10))
def test_a_life_in_every_version(client: WireClient, version: int) -> None:
    """JoinGroup 0 to 9, SyncGroup 0 to 5, Heartbeat 0 to 4, LeaveGroup 0 to 5."""
    group = f"life-{version}"
    find_group(client, group)
    join = JoinGroupRequest(
        group,
        10_000,
        member_id="",
        protocol_type="any",
        protocols=[JoinGroupRequestProtocol("one", b"mine")],
    )
    if version >= 1:
        join.rebalance_timeout_ms = 60_000
    joined = client.request(join, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert joined.protocol_name == (None if version >= 7 else "")
        join.member_id = joined.member_id
        joined = client.request(join, version)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("test-")
    assert joined.protocol_name == "one"
    assert [member.metadata for member in joined.members] == [b"mine"]
    member_id = joined.member_id

    sync = SyncGroupRequest(
        group, 1, member_id, assignments=[SyncGroupRequestAssignment(member_id, b"all")]
    )
    if version >= 5:
        assert client.request(sync, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        sync.protocol_type, sync.protocol_name = "any", "one"
    synced = client.request(sync, min(version, 5))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert client.request(HeartbeatRequest(group, 1, member_id), min(version, 4)).error_code == 0

    shown = client.request(DescribeGroupsRequest([group]), min(version, 6)).groups[0]
    assert (shown.error_code, shown.group_state) == (0, "Stable")
    assert (shown.protocol_type, shown.protocol_data) == ("any", "one")
    (member,) = shown.members
    assert (member.member_id, member.client_id) == (member_id, "test")
    assert (member.member_metadata, member.member_assignment) == (b"mine", b"all")

    leave = LeaveGroupRequest(group)
    if version >= 3:
        leave.members = [MemberIdentity(member_id)]
    else:
        leave.member_id = member_id
    left = client.request(leave, min(version, 5))
    assert left.error_code == 0
    assert [member.error_code for member in left.members] == ([0] if version >= 3 else [])
    assert listed(client)[group] == ("Empty", "classic")


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_in_every_version(client: WireClient, version: int) -> None:
    name = f"offsets-{version}"
    topic = make_topic(client, name, 2)
    find_group(client, name)
    key: Any = topic if version >= 10 else name
    assert commit(client, name, {(key, 0): 3, (key, 1): 4}, version=version) == [0, 0]
    assert committed(client, name) == {(name, 0): 3, (name, 1): 4}
