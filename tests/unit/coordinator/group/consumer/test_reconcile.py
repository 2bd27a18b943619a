"""Reconciliation of members with the target assignment (C3)."""

from penstock.coordinator.group.consumer.model import ConsumerGroupState, MemberState
from penstock.coordinator.group.consumer.records import ConsumerGroupRecord
from penstock.coordinator.group.events import RevocationTimer
from penstock.core.errors import ErrorCode
from penstock.protocol.stored.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from tests.support.coordinator.consumer_groups import (
    REBALANCE_MS,
    Consumer,
    consumer_host,
    kinds,
    reconcile,
)
from tests.support.coordinator.groups import GroupHost, id_of


def two(host: GroupHost) -> tuple[Consumer, Consumer]:
    """Returns a member that owns all partitions and one that has just joined."""
    first, second = Consumer(host, "a"), Consumer(host, "b")
    first.join()
    reconcile(first)
    second.join()
    return first, second


def state(host: GroupHost, member_id: str) -> MemberState:
    return host.consumer().members[member_id].state


def test_a_partition_is_revoked_before_it_is_reassigned() -> None:
    host = consumer_host({"t": 4})
    first, second = two(host)
    assert second.assigned == {}
    assert state(host, "b") is MemberState.UNRELEASED_PARTITIONS
    old_epoch = first.epoch
    first.beat()
    assert state(host, "a") is MemberState.UNREVOKED_PARTITIONS
    assert first.epoch == old_epoch, "it stays in its epoch until it has let go"
    assert first.assigned == {"t": [0, 1]}
    assert host.consumer().state is ConsumerGroupState.RECONCILING
    second.beat()
    assert second.assigned == {}
    first.beat({"t": [0, 1, 2]})
    second.beat()
    assert second.assigned == {}, "one of them is still there"
    first.obey()
    assert first.epoch == old_epoch + 1
    second.beat()
    assert second.assigned == {"t": [2, 3]}
    assert host.consumer().state is ConsumerGroupState.STABLE


def test_partitions_store_the_epoch_of_their_assignment() -> None:
    host = consumer_host({"t": 4})
    first, second = two(host)
    reconcile(first, second)
    members = host.consumer().members
    topic = id_of("t")
    assert members["a"].assigned == {topic: {0: 2, 1: 2}}
    assert members["b"].assigned == {topic: {2: 3, 3: 3}}


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    host = consumer_host({"t": 4})
    first, second = two(host)
    first.beat()
    host.advance(REBALANCE_MS - 1)
    first.beat()
    second.beat()
    host.advance(1)
    assert set(host.consumer().members) == {"b"}
    assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    second.beat()
    assert second.assigned == {"t": [0, 1, 2, 3]}


def test_a_member_that_revokes_in_time_stays() -> None:
    host = consumer_host({"t": 4})
    first, second = two(host)
    first.beat()
    host.advance(REBALANCE_MS - 1)
    first.obey()
    second.obey()
    assert RevocationTimer("g", "a") not in host.timers
    host.advance(2)
    assert set(host.consumer().members) == {"a", "b"}


def test_the_revocation_timeout_restarts_with_the_coordinator() -> None:
    host = consumer_host({"t": 4})
    first, _ = two(host)
    first.beat()
    host.advance(REBALANCE_MS - 1)
    host.restart()
    assert RevocationTimer("g", "a") in host.timers
    host.advance(REBALANCE_MS - 1)
    assert "a" in host.consumer().members
    host.advance(1)
    assert "a" not in host.consumer().members


def test_a_removed_member_releases_its_partitions() -> None:
    host = consumer_host({"t": 4})
    first, second = two(host)
    first.beat()
    first.leave()
    second.beat()
    assert second.assigned == {"t": [0, 1, 2, 3]}
    assert not host.consumer().target.keys() - {"b"}


def test_an_unsubscribed_topic_is_revoked_at_once() -> None:
    """Without waiting for the next target assignment."""
    host = consumer_host({"t": 1, "u": 1})
    member = Consumer(host, "a", names=["t", "u"])
    member.join()
    member.beat({"t": [0], "u": [0]}, names=["t"])
    assert member.assigned == {"t": [0]}
    assert state(host, "a") is MemberState.UNREVOKED_PARTITIONS
    member.obey()
    assert state(host, "a") is MemberState.STABLE


def test_a_rejoining_member_gets_its_old_assignment() -> None:
    host = consumer_host({"t": 2})
    member = Consumer(host, "a")
    member.join()
    epoch = member.epoch
    since = len(host.log)
    member.join()
    assert (member.epoch, member.assigned) == (epoch, {"t": [0, 1]})
    assert kinds(host, since) == []


def test_an_unknown_member_state_is_fenced() -> None:
    """A newer coordinator may have stored other states: the member must rejoin."""
    host = consumer_host({"t": 1})
    key = ConsumerGroupMemberMetadataKey("g", "a")
    host.shard.apply(
        ConsumerGroupRecord(
            key,
            ConsumerGroupMemberMetadataValue(
                None, None, "c", "/h", ["t"], "", 1, None, classic_member_metadata=None
            ),
        )
    )
    host.shard.apply(
        ConsumerGroupRecord(
            ConsumerGroupCurrentMemberAssignmentKey("g", "a"),
            ConsumerGroupCurrentMemberAssignmentValue(1, 1, 9),
        )
    )
    assert state(host, "a") is MemberState.UNKNOWN
    member = Consumer(host, "a")
    member.epoch = 1
    assert member.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.join().error_code == ErrorCode.NONE
    assert member.assigned == {"t": [0]}
