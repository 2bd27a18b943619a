"""Many groups at once, and one with many members (C3)."""

from collections.abc import Mapping

import pytest

from penstock.core.errors import ErrorCode
from tests.support.broker.in_process import WireClient
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    commit,
    committed,
    described,
    find_group,
    listed,
)
from tests.support.coordinator.group_members import ConsumerMember, owned_by
from tests.support.protocol.requests import make_topic, receive_response

GROUPS = 200
MEMBERS = 1000
PARTITIONS = 50
WINDOW = 100
"""The number of heartbeats in flight."""


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {**GROUP_SETTINGS, "group.consumer.assignment.interval.ms": "1000"}


def beat_all(members: list[ConsumerMember], *, join: bool = False) -> None:
    """Sends one heartbeat per member, with many in flight."""
    for start in range(0, len(members), WINDOW):
        batch = members[start : start + WINDOW]
        requests = []
        for member in batch:
            request = (
                member.join_request()
                if join
                else member.request(member.epoch, owned=member.assigned)
            )
            member.client.send(request, 1)
            requests.append(request)
        for member, request in zip(batch, requests, strict=True):
            response = receive_response(member.client, request, 1)
            assert response.error_code == 0, (
                ErrorCode(response.error_code),
                response.error_message,
            )
            member.take(response)


def test_two_hundred_groups_on_one_broker(client: WireClient) -> None:
    topic = make_topic(client, "shared", 2)
    names = [f"g{number:03}" for number in range(GROUPS)]
    for name in names[:20]:
        find_group(client, name)
    members = [ConsumerMember(client, name, f"m-{name}", names=["shared"]) for name in names]
    beat_all(members, join=True)
    assert all(member.assigned == {topic: [0, 1]} for member in members)
    for number, member in enumerate(members):
        offsets = {("shared", 0): number}
        assert commit(
            client, member.group, offsets, member_id=member.member_id, epoch=member.epoch
        ) == [0]
    assert listed(client, ["Stable"]) == dict.fromkeys(names, ("Stable", "consumer"))
    assert committed(client, names[123]) == {("shared", 0): 123}
    for member in members:
        assert member.leave().error_code == 0
    assert listed(client, ["Empty"]) == dict.fromkeys(names, ("Empty", "consumer"))


def test_a_group_with_a_thousand_members(client: WireClient) -> None:
    topic = make_topic(client, "wide", PARTITIONS)
    find_group(client, "crowd")
    members = [
        ConsumerMember(client, "crowd", f"member-{number:04}", names=["wide"])
        for number in range(MEMBERS)
    ]
    beat_all(members, join=True)
    rounds = 0
    while sum(len(member.assigned.get(topic, [])) for member in members) < PARTITIONS:
        beat_all(members)
        rounds += 1
        assert rounds < 50, "the group does not become stable"
    assert owned_by(*members) == {topic: list(range(PARTITIONS))}
    group = described(client, "crowd")
    assert len(group.members) == MEMBERS
    assert members[0].leave().error_code == 0
