"""What a leader refuses of an assignor of the user's own (C4)."""

from collections.abc import Mapping

import pytest

from penstock.client.consumer.assignors import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscription,
    TopicRacks,
    assignors_of,
)
from penstock.client.consumer.group.leader import assign, find_assignor
from penstock.client.errors import IllegalStateError
from penstock.core.ids import TopicPartition

T0 = TopicPartition("t", 0)


class Fixed(Assignor):
    """Gives what it was told to give."""

    name = "fixed"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(self, value: Mapping[str, Assignment]) -> None:
        self._given = value

    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        return self._given


OWNED = {"x": Subscription(["t"], owned_partitions=[T0]), "y": Subscription(["t"])}


def test_a_partition_that_still_has_an_owner() -> None:
    greedy = Fixed({"x": Assignment(()), "y": Assignment([T0])})
    with pytest.raises(IllegalStateError, match="assigns t-0 to a new member while"):
        assign(greedy, RebalanceProtocol.COOPERATIVE, OWNED, {})
    # Eager members have given up everything before.
    results = assign(greedy, RebalanceProtocol.EAGER, OWNED, {})
    assert results["y"].partitions == [T0]


def test_who_is_left_out_gets_nothing() -> None:
    results = assign(Fixed({"x": Assignment([T0])}), RebalanceProtocol.COOPERATIVE, OWNED, {})
    assert results == {"x": Assignment([T0]), "y": Assignment(())}


def test_an_assignor_that_was_not_offered() -> None:
    with pytest.raises(IllegalStateError, match="'sticky', which this member does not have"):
        find_assignor(assignors_of("range"), "sticky")
