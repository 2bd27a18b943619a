"""Migration of groups between the classic and the consumer protocol (C3)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    commit,
    committed,
    described,
    find_group,
    listed,
    pass_time,
    wait_until,
)
from tests.support.coordinator.group_members import (
    ClassicMember,
    ConsumerMember,
    reconcile,
    reconcile_to,
)
from tests.support.protocol.requests import make_topic

SESSION_MS = 45_000
ALL = [0, 1, 2, 3]


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return GROUP_SETTINGS


def classic_group(client: WireClient, group: str) -> ClassicMember:
    """Creates a group with one member that reads the topic of the same name and has committed."""
    find_group(client, group)
    member = ClassicMember(client, group, [group]).joined({group: ALL})
    assert member.assigned == {group: ALL}
    offsets = {(group, 0): 10}
    codes = commit(client, group, offsets, member_id=member.member_id, epoch=member.generation)
    assert codes == [ErrorCode.NONE]
    return member


def beat_and_rejoin(member: ClassicMember) -> None:
    """Sends a heartbeat, and joins again if the response requires it."""
    if member.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
        response = member.join()
        assert response.error_code == 0, ErrorCode(response.error_code)
        assert response.leader != member.member_id or not response.members
        assert member.sync().error_code == 0


def test_a_group_is_upgraded_and_downgraded_online(client: WireClient) -> None:
    """A rolling change of all members to the consumer protocol and back."""
    topic = make_topic(client, "roll", 4)
    old = classic_group(client, "roll")
    assert listed(client)["roll"] == ("Stable", "classic")
    new = ConsumerMember(client, "roll", "new", names=["roll"]).joined()
    assert listed(client)["roll"][1] == "consumer"
    assert new.assigned == {}, "the classic member still owns all partitions"
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(3):
        beat_and_rejoin(old)
        new.obey()
    assert len(old.assigned["roll"]) == len(new.assigned[topic]) == 2
    assert sorted(old.assigned["roll"] + new.assigned[topic]) == ALL
    kinds = {member.member_id: member.member_type for member in described(client, "roll").members}
    assert kinds == {old.member_id: 0, "new": 1}
    assert committed(client, "roll") == {("roll", 0): 10}
    offsets = {("roll", 1): 11}
    codes = commit(client, "roll", offsets, member_id=old.member_id, epoch=old.generation)
    assert codes == [ErrorCode.NONE]

    # After the last classic member has left, all members use the consumer protocol.
    assert old.leave() is ErrorCode.NONE
    reconcile_to([{topic: ALL}], new)

    # A classic member joins; when the last consumer member leaves, the group is classic again.
    returned = ClassicMember(client, "roll", ["roll"]).joined()
    for _ in range(3):
        new.obey()
        beat_and_rejoin(returned)
    assert sorted(returned.assigned["roll"] + new.assigned[topic]) == ALL
    assert new.leave().error_code == 0
    assert listed(client)["roll"][1] == "classic"
    assert returned.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    response = returned.join()
    assert (response.error_code, response.leader) == (0, returned.member_id)
    assert returned.sync({returned.member_id: {"roll": ALL}}).error_code == 0
    assert returned.assigned == {"roll": ALL}
    group_data = client.request(DescribeGroupsRequest(["roll"]), 5).groups[0]
    assert (group_data.group_state, len(group_data.members)) == ("Stable", 1)
    assert committed(client, "roll") == {("roll", 0): 10, ("roll", 1): 11}


def test_a_consumer_member_replaces_the_classic_member_with_its_id(client: WireClient) -> None:
    """A client restarts with the consumer protocol while its classic member still exists."""
    topic = make_topic(client, "same", 4)
    old = classic_group(client, "same")
    new = ConsumerMember(client, "same", old.member_id, names=["same"]).joined()
    reconcile_to([{topic: ALL}], new)
    assert old.beat() in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


def test_static_members_keep_their_instance_id(client: WireClient) -> None:
    topic = make_topic(client, "inst", 4)
    find_group(client, "inst")
    old = ClassicMember(client, "inst", ["inst"], instance="i").joined({"inst": ALL})
    new = ConsumerMember(client, "inst", "new", names=["inst"], instance="i").joined()
    reconcile_to([{topic: ALL}], new)
    assert old.beat() is ErrorCode.FENCED_INSTANCE_ID
    (member,) = described(client, "inst").members
    assert (member.member_id, member.instance_id) == ("new", "i")
    returned = ClassicMember(client, "inst", ["inst"], instance="i")
    response = returned.join()
    assert response.error_code == 0
    assert listed(client)["inst"][1] == "classic"
    assert new.beat().error_code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND)


def test_a_pending_join_is_rejected_by_the_upgrade(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "waits", 4)
    old = classic_group(client, "waits")
    with broker.connect() as second_client, broker.connect() as third:
        late = ClassicMember(second_client, "waits", ["waits"])
        late.member_id = second_client.request(late.join_request(), 9).member_id
        request = late.send_join()
        wait_until(lambda: listed(client)["waits"] == ("PreparingRebalance", "classic"))
        ConsumerMember(third, "waits", "new", names=["waits"]).joined()
        response = late.receive_join(request)
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        for member in (old, late):
            assert member.join().error_code == 0
            assert member.sync().error_code == 0


def test_the_session_of_a_classic_member_ends_in_a_consumer_group(
    broker: RunningBroker, client: WireClient
) -> None:
    topic = make_topic(client, "ends", 4)
    old = classic_group(client, "ends")
    new = ConsumerMember(client, "ends", "new", names=["ends"]).joined()
    pass_time(broker, SESSION_MS - 1000)
    new.obey()
    pass_time(broker, 2000)
    reconcile_to([{topic: ALL}], new)
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_changes_its_type_with_any_policy(client: WireClient) -> None:
    topic = make_topic(client, "empty", 4)
    classic_group(client, "empty").leave()
    new = ConsumerMember(client, "empty", "new", names=["empty"]).joined()
    assert new.assigned == {topic: ALL}
    new.leave()
    assert listed(client)["empty"] == ("Empty", "consumer")
    ClassicMember(client, "empty", ["empty"]).joined({"empty": ALL})
    assert listed(client)["empty"] == ("Stable", "classic")
    assert committed(client, "empty") == {("empty", 0): 10}


def test_a_group_of_another_protocol_type_is_not_migrated(client: WireClient) -> None:
    make_topic(client, "connect")
    find_group(client, "connect")
    worker = ClassicMember(client, "connect", ["connect"])
    request = worker.join_request()
    request.protocol_type = "connect"
    worker.member_id = client.request(request, 9).member_id
    request.member_id = worker.member_id
    assert client.request(request, 9).error_code == 0
    response = ConsumerMember(client, "connect", "m", names=["connect"]).join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message
    assert listed(client)["connect"][1] == "classic"


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "downgrade", "disabled", "UPGRADE"])
def test_the_migration_policy(tmp_path: Path, policy: str) -> None:
    settings = {**GROUP_SETTINGS, "group.consumer.migration.policy": policy}
    up = policy.lower() in ("bidirectional", "upgrade")
    down = policy.lower() in ("bidirectional", "downgrade")
    with watching(), running_broker(tmp_path, settings) as broker, broker.connect() as client:
        make_topic(client, "t", 4)
        find_group(client, "up")
        old = ClassicMember(client, "up", ["t"]).joined({"t": ALL})
        response = ConsumerMember(client, "up", "new", names=["t"]).join()
        if up:
            assert response.error_code == 0
            assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        else:
            assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert "up" in response.error_message
            assert old.beat() is ErrorCode.NONE

        new = ConsumerMember(client, "down", "new", names=["t"]).joined()
        returned = ClassicMember(client, "down", ["t"])
        if policy == "disabled":
            assert returned.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return
        returned.joined()
        reconcile(new)
        new.leave()
        # Without downgrade, the classic member stays in a consumer group.
        assert listed(client)["down"][1] == ("classic" if down else "consumer")
        assert returned.beat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
