"""Groups of both protocols, which go over from one to the other, in random histories (C3).

`tests/compat` compares the same histories with Kafka's coordinator; here is checked what must hold
at every step. A failing seed is in the name of the test.
"""

from uuid import UUID

import pytest

from penstock.coordinator.group.consumer.model import ConsumerGroup
from penstock.coordinator.group.records import decode_record
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.machine import Skipped
from tests.support.coordinator.group_histories import GroupHistory
from tests.support.coordinator.groups import GroupHost


def check_owners(group: ConsumerGroup) -> None:
    """One owner per partition, and no member ahead of its group."""
    owners: dict[UUID, dict[int, str]] = {}
    for member in group.members.values():
        for epochs in (member.assigned, member.pending_revocation):
            for topic_id, partitions in epochs.items():
                for partition in partitions:
                    other = owners.setdefault(topic_id, {}).setdefault(partition, member.member_id)
                    assert other == member.member_id, f"{other} and {member.member_id}"
        assert member.member_epoch <= group.assignment_epoch <= group.group_epoch
    assert owners == group.owners
    assert group.target.keys() <= group.members.keys()


def check_replay(host: GroupHost) -> None:
    """The log alone leads to the same consumer groups, but for what no record keeps."""
    again = GroupShard(host.config, host.topics)
    for key, value in host.log:
        record = decode_record(key, value)
        assert not isinstance(record, Skipped)
        again.apply(record)
    assert again.groups.keys() == host.shard.groups.keys()
    for group_id, live in host.shard.groups.items():
        stored = again.groups[group_id]
        assert type(stored) is type(live)
        if isinstance(stored, ConsumerGroup) and isinstance(live, ConsumerGroup):
            stored.metadata_checked = live.metadata_checked
            stored.topics_created_ms = live.topics_created_ms
            stored.resolving = live.resolving
            stored.rejoining = live.rejoining
            assert stored == live


@pytest.mark.parametrize("seed", range(1_000, 1_030))
def test_a_history(seed: int) -> None:
    history = GroupHistory(seed, classic=True)
    host = history.host
    for step in range(150):
        history.step()
        for group in host.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                check_owners(group)
        if step % 10 == 0:
            check_replay(host)
    check_replay(host)
    assert len(host.log) > 50
