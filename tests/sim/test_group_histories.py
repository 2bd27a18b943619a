"""Random histories of groups that migrate between both protocols (C3).

`tests/compat` compares the same histories with Kafka's coordinator; these tests check invariants at
every step. The name of a failed test contains its seed.
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
    """Checks for one owner per partition, and no member with an epoch above its group's."""
    owners: dict[UUID, dict[int, str]] = {}
    for member in group.members.values():
        for epochs in (member.assigned, member.pending_revocation):
            for topic_id, partitions in epochs.items():
                for partition in partitions:
                    owner = owners.setdefault(topic_id, {}).setdefault(partition, member.member_id)
                    assert owner == member.member_id, f"{owner} and {member.member_id}"
        assert member.member_epoch <= group.assignment_epoch <= group.group_epoch
    assert owners == group.owners
    assert group.target.keys() <= group.members.keys()


def check_replay(host: GroupHost) -> None:
    """Checks that the log alone restores the same groups, except for unrecorded fields."""
    replayed = GroupShard(host.config, host.topics)
    for key, value in host.log:
        record = decode_record(key, value)
        assert not isinstance(record, Skipped)
        replayed.apply(record)
    assert replayed.groups.keys() == host.shard.groups.keys()
    for group_id, live in host.shard.groups.items():
        stored = replayed.groups[group_id]
        assert type(stored) is type(live)
        if isinstance(stored, ConsumerGroup) and isinstance(live, ConsumerGroup):
            stored.metadata_checked = live.metadata_checked
            stored.topics_created_ms = live.topics_created_ms
            stored.resolving = live.resolving
            stored.rejoining = live.rejoining
            assert stored == live


@pytest.mark.parametrize("seed", range(1_000, 1_030))
def test_invariants_hold_at_every_step(seed: int) -> None:
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
