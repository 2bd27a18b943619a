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
from tests.support.protocol.requests import make_topic, received

GROUPS = 200
MEMBERS = 1000
PARTITIONS = 50
WINDOW = 100
"""So many heartbeats are under way at once."""


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {**GROUP_SETTINGS, "group.consumer.assignment.interval.ms": "1000"}


def beat_all(members: list[ConsumerMember], *, join: bool = False) -> None:
    """One heartbeat of each, many under way at once."""
    for start in range(0, len(members), WINDOW):
        some = members[start : start + WINDOW]
        requests = []
        for entry in some:
            request = (
                entry.join_request() if join else entry.request(entry.epoch, owned=entry.assigned)
            )
            entry.client.send(request, 1)
            requests.append(request)
        for item, request in zip(some, requests, strict=True):
            response = received(item.client, request, 1)
            assert response.error_code == 0, (
                ErrorCode(response.error_code),
                response.error_message,
            )
            item.take(response)


def test_two_hundred_groups(client: WireClient) -> None:
    topic = make_topic(client, "shared", 2)
    names = [f"g{number:03}" for number in range(GROUPS)]
    for name in names[:20]:
        find_group(client, name)
    members = [ConsumerMember(client, name, f"m-{name}", names=["shared"]) for name in names]
    beat_all(members, join=True)
    assert all(member.assigned == {topic: [0, 1]} for member in members)
    for number, value in enumerate(members):
        offsets = {("shared", 0): number}
        assert commit(
            client, value.group, offsets, member_id=value.member_id, epoch=value.epoch
        ) == [0]
    assert listed(client, ["Stable"]) == dict.fromkeys(names, ("Stable", "consumer"))
    assert committed(client, names[123]) == {("shared", 0): 123}
    for item in members:
        assert item.leave().error_code == 0
    assert listed(client, ["Empty"]) == dict.fromkeys(names, ("Empty", "consumer"))


def test_a_thousand_members(client: WireClient) -> None:
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
        assert rounds < 50, "the group does not come to rest"
    assert owned_by(*members) == {topic: list(range(PARTITIONS))}
    group = described(client, "crowd")
    assert len(group.members) == MEMBERS
    assert members[0].leave().error_code == 0
