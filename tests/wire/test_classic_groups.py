"""Classic groups over the wire: members join, the leader assigns, members leave (C3)."""

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
    """One connection per member, because a waiting join blocks its connection."""
    with ExitStack() as stack:
        yield [stack.enter_context(broker.connect(client_id=name)) for name in ("a", "b", "c")]


def group_of_two(
    clients: list[WireClient], group: str, topic: str
) -> tuple[ClassicMember, ClassicMember]:
    """A leader with all partitions except the last, and a follower with the last."""
    find_group(clients[0], group)
    leader = ClassicMember(clients[0], group, [topic]).joined({topic: [0, 1]})
    follower = ClassicMember(clients[1], group, [topic])
    rebalance(leader, [follower], topic)
    return leader, follower


def rebalance(leader: ClassicMember, followers: list[ClassicMember], topic: str) -> Any:
    """All members join, the leader last; every member gets the partition with its index."""
    requests = []
    for member in followers:
        if not member.member_id and member.instance is None:
            member.member_id = member.client.request(member.join_request(), 9).member_id
        requests.append(member.send_join())
    wait_until(lambda: leader.beat() is ErrorCode.REBALANCE_IN_PROGRESS)
    joined = leader.join()
    assert (joined.error_code, joined.leader) == (0, leader.member_id)
    for member, request in zip(followers, requests, strict=True):
        response = member.receive_join(request)
        assert response.error_code == 0
        assert response.members == [], "only the leader gets the members"
        assert (response.leader, response.generation_id) == (leader.member_id, joined.generation_id)
    plan = {item.member_id: {topic: [n]} for n, item in enumerate([leader, *followers])}
    assert leader.sync(plan).error_code == 0
    for number, member in enumerate(followers, 1):
        assert member.sync().error_code == 0
        assert member.assigned == {topic: [number]}
    return joined


def test_the_leader_assigns_partitions(clients: list[WireClient]) -> None:
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
    follower_request = follower.send_join()
    joined = leader.join()
    members = {leader.member_id, follower.member_id, third.member_id}
    assert {member.member_id for member in joined.members} == members
    for member, sent in ((third, request), (follower, follower_request)):
        assert member.receive_join(sent).error_code == 0
    plan = {member: {"plan": [n]} for n, member in enumerate(sorted(members))}
    assert leader.sync(plan).error_code == 0
    for member in (follower, third):
        assert member.sync().error_code == 0
        assert member.assigned == plan[member.member_id]
    assert follower.leave() is ErrorCode.NONE
    assert leader.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_wrong_generations_and_unknown_members_are_rejected(clients: list[WireClient]) -> None:
    make_topic(clients[0], "fenced", 2)
    leader, follower = group_of_two(clients, "fenced", "fenced")

    def commit_as(member_id: str, generation: int) -> list[ErrorCode]:
        offsets = {("fenced", 0): 1}
        return commit(clients[0], "fenced", offsets, member_id=member_id, epoch=generation)

    assert commit_as(leader.member_id, 2) == [ErrorCode.NONE]
    assert commit_as(leader.member_id, 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit_as("nobody", 2) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit_as("", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    follower.generation = 1
    assert follower.beat() is ErrorCode.ILLEGAL_GENERATION
    assert follower.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    follower.member_id = "nobody"
    assert follower.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert follower.join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert follower.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(clients[0], "fenced") == {("fenced", 0): 1}


def test_a_member_without_heartbeats_is_removed(
    broker: RunningBroker, clients: list[WireClient]
) -> None:
    make_topic(clients[0], "silence", 2)
    leader, follower = group_of_two(clients, "silence", "silence")
    pass_time(broker, SESSION_MS - 1000)
    assert leader.beat() is ErrorCode.NONE
    pass_time(broker, 2000)
    assert leader.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    joined = leader.join()
    assert [member.member_id for member in joined.members] == [leader.member_id]
    assert follower.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_rejoins_without_a_rebalance(clients: list[WireClient]) -> None:
    make_topic(clients[0], "still", 2)
    find_group(clients[0], "still")
    leader = ClassicMember(clients[0], "still", ["still"]).joined({"still": [0]})
    static = ClassicMember(clients[1], "still", ["still"], instance="i")
    rebalance(leader, [static], "still")
    returned = ClassicMember(clients[2], "still", ["still"], instance="i")
    response = returned.join()
    assert (response.error_code, response.generation_id) == (0, leader.generation)
    assert returned.member_id != static.member_id
    assert returned.sync().error_code == 0
    assert returned.assigned == {"still": [1]}
    assert leader.beat() is ErrorCode.NONE
    assert static.beat() is ErrorCode.FENCED_INSTANCE_ID
    # An administrator removes the static member by its instance id.
    leave_request = LeaveGroupRequest(
        "still", members=[MemberIdentity("", "i"), MemberIdentity("x", None)]
    )
    response = clients[0].request(leave_request, 5)
    codes = [member.error_code for member in response.members]
    assert (response.error_code, codes) == (0, [0, ErrorCode.UNKNOWN_MEMBER_ID])
    assert returned.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_invalid_joins_are_rejected(client: WireClient) -> None:
    make_topic(client, "cannot")
    find_group(client, "cannot")
    ClassicMember(client, "cannot", ["cannot"]).joined()

    def join_code(**changes: Any) -> ErrorCode:
        request = ClassicMember(client, "cannot", ["cannot"]).join_request()
        for name, value in changes.items():
            setattr(request, name, value)
        return ErrorCode(client.request(request, 9).error_code)

    assert join_code(session_timeout_ms=10) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert join_code(session_timeout_ms=1 << 30) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert join_code(group_id="") is ErrorCode.INVALID_GROUP_ID
    assert join_code(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other_protocols = [JoinGroupRequestProtocol("sticky", b"")]
    assert join_code(protocols=other_protocols) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join_code(protocols=[]) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join_code(member_id="nobody") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_size_of_a_group_is_limited(tmp_path: Path) -> None:
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
def test_the_lifecycle_of_a_member_in_every_version(client: WireClient, version: int) -> None:
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

    group_data = client.request(DescribeGroupsRequest([group]), min(version, 6)).groups[0]
    assert (group_data.error_code, group_data.group_state) == (0, "Stable")
    assert (group_data.protocol_type, group_data.protocol_data) == ("any", "one")
    (member,) = group_data.members
    assert (member.member_id, member.client_id) == (member_id, "test")
    assert (member.member_metadata, member.member_assignment) == (b"mine", b"all")

    leave = LeaveGroupRequest(group)
    if version >= 3:
        leave.members = [MemberIdentity(member_id)]
    else:
        leave.member_id = member_id
    leave_response = client.request(leave, min(version, 5))
    assert leave_response.error_code == 0
    assert [member.error_code for member in leave_response.members] == ([0] if version >= 3 else [])
    assert listed(client)[group] == ("Empty", "classic")


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_in_every_version(client: WireClient, version: int) -> None:
    name = f"offsets-{version}"
    topic = make_topic(client, name, 2)
    find_group(client, name)
    key: Any = topic if version >= 10 else name
    assert commit(client, name, {(key, 0): 3, (key, 1): 4}, version=version) == [0, 0]
    assert committed(client, name) == {(name, 0): 3, (name, 1): 4}
