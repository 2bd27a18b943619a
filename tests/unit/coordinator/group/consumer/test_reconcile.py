"""Members of a consumer group on their way to the target assignment (C3)."""

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
    settle,
)
from tests.support.coordinator.groups import GroupHost, id_of


def two(host: GroupHost) -> tuple[Consumer, Consumer]:
    """One that has everything, and one that has just joined."""
    first, second = Consumer(host, "a"), Consumer(host, "b")
    first.join()
    settle(first)
    second.join()
    return first, second


def state(host: GroupHost, member_id: str) -> MemberState:
    return host.consumer().members[member_id].state


def test_a_partition_is_let_go_before_another_member_gets_it() -> None:
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


def test_partitions_remember_the_epoch_in_which_they_came() -> None:
    host = consumer_host({"t": 4})
    first, second = two(host)
    settle(first, second)
    members = host.consumer().members
    topic = id_of("t")
    assert members["a"].assigned == {topic: {0: 2, 1: 2}}
    assert members["b"].assigned == {topic: {2: 3, 3: 3}}


def test_a_member_that_does_not_let_go_is_fenced() -> None:
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


def test_a_member_that_lets_go_in_time_stays() -> None:
    host = consumer_host({"t": 4})
    first, second = two(host)
    first.beat()
    host.advance(REBALANCE_MS - 1)
    first.obey()
    second.obey()
    assert RevocationTimer("g", "a") not in host.timers
    host.advance(2)
    assert set(host.consumer().members) == {"a", "b"}


def test_the_time_to_let_go_starts_anew_with_the_coordinator() -> None:
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


def test_a_member_that_is_gone_lets_go_of_everything() -> None:
    host = consumer_host({"t": 4})
    first, second = two(host)
    first.beat()
    first.leave()
    second.beat()
    assert second.assigned == {"t": [0, 1, 2, 3]}
    assert not host.consumer().target.keys() - {"b"}


def test_a_topic_that_is_no_longer_wanted_is_taken_away_at_once() -> None:
    """Without waiting for the next target assignment."""
    host = consumer_host({"t": 1, "u": 1})
    member = Consumer(host, "a", names=["t", "u"])
    member.join()
    member.beat({"t": [0], "u": [0]}, names=["t"])
    assert member.assigned == {"t": [0]}
    assert state(host, "a") is MemberState.UNREVOKED_PARTITIONS
    member.obey()
    assert state(host, "a") is MemberState.STABLE


def test_who_joins_again_gets_what_it_had() -> None:
    host = consumer_host({"t": 2})
    member = Consumer(host, "a")
    member.join()
    epoch = member.epoch
    since = len(host.log)
    member.join()
    assert (member.epoch, member.assigned) == (epoch, {"t": [0, 1]})
    assert kinds(host, since) == []


def test_a_state_of_the_future() -> None:
    """A later coordinator knew more states: the member has to start again."""
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
