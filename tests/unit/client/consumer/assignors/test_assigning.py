"""The assignors on groups that can be checked by hand (C4)."""

from collections.abc import Sequence

import pytest

from penstock.client.consumer.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
)
from penstock.client.consumer.assignors.java_order import in_hash_order
from penstock.core.ids import TopicPartition
from penstock.core.java_hash import string_hash
from tests.support.client.assignments import NO_RACKS, GroupCase, assigned


def topics(**counts: int) -> dict[str, list[frozenset[str]]]:
    return {name: [NO_RACKS] * count for name, count in counts.items()}


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def members(*topics: str, **subscriptions: Subscription | None) -> dict[str, Subscription]:
    return {name: value or Subscription(topics) for name, value in subscriptions.items()}


def test_range() -> None:
    """Members get consecutive partitions; the first members get one more."""
    case = GroupCase(topics(a=5, b=2), members("a", "b", x=None, y=None, z=None))
    assert assigned(RangeAssignor(), case) == {
        "x": [*partitions("a", 0, 1), *partitions("b", 0)],
        "y": [*partitions("a", 2, 3), *partitions("b", 1)],
        "z": partitions("a", 4),
    }


def test_static_members_come_first() -> None:
    """In the order of instance ids, so that a new member id does not change the assignment."""
    static = Subscription(["a"], group_instance_id="i1")
    case = GroupCase(topics(a=3), {"x": Subscription(["a"]), "z": static})
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        assert assigned(assignor, case)["z"][0] == TopicPartition("a", 0)


def test_range_prefers_the_members_rack() -> None:
    racks = [frozenset({"r1"}), frozenset({"r2"}), frozenset({"r1"}), frozenset({"r2"})]
    subscriptions = {"x": Subscription(["a"], rack_id="r2"), "y": Subscription(["a"], rack_id="r1")}
    assert assigned(RangeAssignor(), GroupCase({"a": racks}, subscriptions)) == {
        "x": partitions("a", 1, 3),
        "y": partitions("a", 0, 2),
    }


def test_range_keeps_topics_together() -> None:
    """Equal partition numbers of several topics go to one member, with racks too."""
    racks = [frozenset({"r1"}), frozenset({"r2"})]
    subscriptions = {
        "x": Subscription(["a", "b"], rack_id="r2"),
        "y": Subscription(["a", "b"], rack_id="r1"),
    }
    results = assigned(RangeAssignor(), GroupCase({"a": racks, "b": racks}, subscriptions))
    assert results == {
        "x": [TopicPartition("a", 1), TopicPartition("b", 1)],
        "y": [TopicPartition("a", 0), TopicPartition("b", 0)],
    }


def test_roundrobin() -> None:
    case = GroupCase(topics(a=3, b=2), members("a", "b", x=None, y=None))
    assert assigned(RoundRobinAssignor(), case) == {
        "x": [*partitions("a", 0, 2), *partitions("b", 1)],
        "y": [*partitions("a", 1), *partitions("b", 0)],
    }


def test_roundrobin_skips_members_that_do_not_subscribe_to_the_topic() -> None:
    subscriptions = {"x": Subscription(["a"]), "y": Subscription(["b"])}
    results = assigned(RoundRobinAssignor(), GroupCase(topics(a=2, b=1), subscriptions))
    assert results == {"x": partitions("a", 0, 1), "y": partitions("b", 0)}


def test_nothing_to_assign() -> None:
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor()):
        case = GroupCase({}, members("missing", x=None))
        assert assigned(assignor, case) == {"x": []}


def sticky_member(generation: int, *owned: TopicPartition) -> Subscription:
    memory = StickyAssignor()
    memory.on_assignment(Assignment(owned), generation)
    return Subscription(["a"], memory.subscription_user_data(["a"]))


def test_sticky_reads_owned_partitions_from_the_user_data() -> None:
    """A partition that two members claim belongs to the one of the later generation."""
    subscriptions = {
        "x": sticky_member(3, *partitions("a", 0, 1)),
        "y": sticky_member(4, *partitions("a", 2, 3)),
    }
    results = assigned(StickyAssignor(), GroupCase(topics(a=4), subscriptions))
    assert {m: sorted(p) for m, p in results.items()} == {
        "x": partitions("a", 0, 1),
        "y": partitions("a", 2, 3),
    }
    assert StickyAssignor().subscription_user_data(["a"]) is None


@pytest.mark.parametrize("garbage", [b"", b"\x01", b"\x00\x00\x00\x05\x00"])
def test_invalid_user_data_is_ignored(garbage: bytes) -> None:
    subscriptions = {"x": Subscription(["a"], garbage), "y": Subscription(["a"])}
    results = assigned(StickyAssignor(), GroupCase(topics(a=2), subscriptions))
    assert sorted(map(len, results.values())) == [1, 1]


def test_sticky_reads_the_user_data_of_old_clients() -> None:
    """Version 0 of the user data has no generation."""
    old = b"\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x01"
    subscriptions = {"x": Subscription(["a"]), "y": Subscription(["a"], old)}
    results = assigned(StickyAssignor(), GroupCase(topics(a=2), subscriptions))
    assert results == {"x": partitions("a", 0), "y": partitions("a", 1)}


def cooperative(owned: Sequence[TopicPartition], generation: int = 1) -> Subscription:
    return Subscription(["a"], None, owned, generation)


def test_cooperative_does_not_assign_partitions_that_another_member_owns() -> None:
    """The new member gets them in the next generation, after their owner has revoked them."""
    subscriptions = {"x": cooperative(partitions("a", 0, 1, 2, 3)), "y": cooperative([], -1)}
    assignor = CooperativeStickyAssignor()
    first = assigned(assignor, GroupCase(topics(a=4), subscriptions))
    assert first == {"x": partitions("a", 0, 1), "y": []}
    subscriptions = {"x": cooperative(first["x"], 2), "y": cooperative([], 2)}
    assert assigned(assignor, GroupCase(topics(a=4), subscriptions)) == {
        "x": partitions("a", 0, 1),
        "y": partitions("a", 2, 3),
    }


def test_a_partition_with_two_owners_in_one_generation_is_not_assigned() -> None:
    """Both revoke it before it is assigned again."""
    subscriptions = {"x": cooperative(partitions("a", 0, 1)), "y": cooperative(partitions("a", 0))}
    results = assigned(CooperativeStickyAssignor(), GroupCase(topics(a=2), subscriptions))
    assert TopicPartition("a", 0) not in [
        p for assigned_partitions in results.values() for p in assigned_partitions
    ]


def test_cooperative_generation_of_old_subscriptions() -> None:
    """Before version 2 of the subscription, the user data contains the generation."""
    assignor = CooperativeStickyAssignor()
    assert assignor.protocols == (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
    assignor.on_assignment(Assignment(()), 9)
    data = assignor.subscription_user_data([])
    assert data == b"\x00\x00\x00\x09"
    old = Subscription(["a"], data, partitions("a", 0))
    assert assignor.member_data(old).generation == 9
    assert assignor.member_data(old._replace(user_data=b"\x00")).generation == -1
    assert assignor.member_data(old._replace(user_data=None)).generation is None


def test_different_subscriptions_are_balanced() -> None:
    """A topic that one member subscribes to stays with it; other topics even out the load."""
    subscriptions = {
        "x": Subscription(["a", "b"], None, partitions("a", 0, 1, 2), 1),
        "y": Subscription(["a"], None, [], 1),
    }
    results = assigned(CooperativeStickyAssignor(), GroupCase(topics(a=3, b=2), subscriptions))
    assert set(results["x"]) > set(partitions("b", 0, 1))
    assert len(results["x"]) == 3
    assert results["y"] == []


def test_java_order() -> None:
    """As in `String.hashCode` and `HashMap`; the compat tests compare whole assignments."""
    assert string_hash("abc") == 96354
    assert string_hash("Aa") == string_hash("BB") == 2112
    assert string_hash("😀") == 1772899
    assert in_hash_order(["b", "q", "a", "BB", "Aa"]) == ["BB", "Aa", "q", "a", "b"]
