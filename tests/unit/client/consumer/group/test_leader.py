"""Invalid assignments of a custom assignor are refused by the leader (C4)."""

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
    """Returns a fixed assignment."""

    name = "fixed"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(self, assignments: Mapping[str, Assignment]) -> None:
        self._assignments = assignments

    def assign(
        self, topics: TopicRacks, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        return self._assignments


OWNED = {"x": Subscription(["t"], owned_partitions=[T0]), "y": Subscription(["t"])}


def test_a_partition_with_an_owner_may_not_be_assigned_to_another_member() -> None:
    greedy = Fixed({"x": Assignment(()), "y": Assignment([T0])})
    with pytest.raises(IllegalStateError, match="assigns t-0 to a new member while"):
        assign(greedy, RebalanceProtocol.COOPERATIVE, OWNED, {})
    # Eager members have revoked all their partitions before.
    results = assign(greedy, RebalanceProtocol.EAGER, OWNED, {})
    assert results["y"].partitions == [T0]


def test_a_member_without_an_assignment_gets_an_empty_one() -> None:
    results = assign(Fixed({"x": Assignment([T0])}), RebalanceProtocol.COOPERATIVE, OWNED, {})
    assert results == {"x": Assignment([T0]), "y": Assignment(())}


def test_an_assignor_that_the_member_does_not_have_is_refused() -> None:
    with pytest.raises(IllegalStateError, match="'sticky', which this member does not have"):
        find_assignor(assignors_of("range"), "sticky")
