"""Expiration of unused offsets, in groups of both types (C3)."""

from collections.abc import Mapping

import pytest

from penstock.core.errors import ErrorCode
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    commit,
    committed,
    find_group,
    listed,
    pass_time,
)
from tests.support.coordinator.group_members import ClassicMember, ConsumerMember
from tests.support.protocol.requests import make_topic

MINUTE_MS = 60_000
RETENTION_MS = 2 * MINUTE_MS
"""Short, because the log rejects records that are an hour ahead of the clock of the broker."""
BEAT_MS = 40_000


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        **GROUP_SETTINGS,
        "offsets.retention.minutes": "2",
        "offsets.retention.check.interval.ms": "1000",
    }


def pass_time_with_heartbeats(
    broker: RunningBroker, milliseconds: int, *members: ConsumerMember | ClassicMember
) -> None:
    """Advances the clock while the members send heartbeats."""
    while milliseconds > 0:
        pass_time(broker, min(BEAT_MS, milliseconds))
        milliseconds -= BEAT_MS
        for member in members:
            if isinstance(member, ConsumerMember):
                member.obey()
            else:
                assert member.beat() is ErrorCode.NONE


@pytest.mark.parametrize("kind", ["consumer", "classic"])
def test_offsets_of_subscribed_topics_do_not_expire(
    broker: RunningBroker, client: WireClient, kind: str
) -> None:
    """Offsets of topics that are no longer subscribed expire individually, by age."""
    name = f"reads-{kind}"
    for topic in ("a", "b", "c"):
        make_topic(client, f"{name}-{topic}")
    find_group(client, name)
    assert commit(client, name, {(f"{name}-{topic}", 0): 1 for topic in "ab"}) == [0, 0]
    member: ConsumerMember | ClassicMember
    if kind == "consumer":
        member = ConsumerMember(client, name, "m", names=[f"{name}-a"]).joined()
        epoch = member.epoch
    else:
        member = ClassicMember(client, name, [f"{name}-a"]).joined()
        epoch = member.generation
    pass_time_with_heartbeats(broker, RETENTION_MS // 2, member)
    new_offsets = {(f"{name}-c", 0): 2}
    assert commit(client, name, new_offsets, member_id=member.member_id, epoch=epoch) == [0]
    pass_time_with_heartbeats(broker, RETENTION_MS // 2 + 2000, member)
    assert committed(client, name) == {(f"{name}-a", 0): 1, (f"{name}-c", 0): 2}
    pass_time_with_heartbeats(broker, RETENTION_MS // 2, member)
    assert committed(client, name) == {(f"{name}-a", 0): 1}
    assert listed(client)[name] == ("Stable", kind)


def test_a_classic_group_expires_after_its_last_member_left(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "after")
    find_group(client, "after")
    member = ClassicMember(client, "after", ["after"]).joined()
    offsets = {("after", 0): 1}
    assert commit(
        client, "after", offsets, member_id=member.member_id, epoch=member.generation
    ) == [0]
    pass_time_with_heartbeats(broker, 2 * RETENTION_MS, member)
    assert member.leave() is ErrorCode.NONE
    pass_time(broker, RETENTION_MS - 5000)
    assert committed(client, "after") == offsets
    pass_time(broker, 7000)
    assert committed(client, "after") == {}
    assert "after" not in listed(client), "the group is removed with its last offset"


def test_an_empty_consumer_group_expires_after_its_commits(
    broker: RunningBroker, client: WireClient
) -> None:
    """As in Kafka: these groups do not store when they became empty."""
    make_topic(client, "count")
    find_group(client, "count")
    member = ConsumerMember(client, "count", "m", names=["count"]).joined()
    offsets = {("count", 0): 1}
    assert commit(client, "count", offsets, member_id="m", epoch=member.epoch) == [0]
    pass_time_with_heartbeats(broker, RETENTION_MS - 5000, member)
    member.leave()
    pass_time(broker, 1000)
    assert committed(client, "count") == offsets
    assert listed(client)["count"] == ("Empty", "consumer")
    pass_time(broker, 7000)
    assert committed(client, "count") == {}
    assert "count" not in listed(client)


def test_offsets_without_members_expire_after_the_commit(
    broker: RunningBroker, client: WireClient
) -> None:
    make_topic(client, "tool")
    find_group(client, "tool")
    commit(client, "tool", {("tool", 0): 1})
    pass_time(broker, RETENTION_MS - 5000)
    assert committed(client, "tool") == {("tool", 0): 1}
    commit(client, "tool", {("tool", 0): 2})
    pass_time(broker, RETENTION_MS - 5000)
    assert committed(client, "tool") == {("tool", 0): 2}
    pass_time(broker, 7000)
    assert "tool" not in listed(client)
