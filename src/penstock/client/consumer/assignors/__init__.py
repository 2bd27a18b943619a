"""Assignors, which distribute partitions to the members of a group (C4): Kafka's and yours."""

from penstock.client.consumer.assignors.model import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscription,
    TopicRacks,
)
from penstock.client.consumer.assignors.range import RangeAssignor
from penstock.client.consumer.assignors.registry import (
    AssignorChoice,
    assignors_of,
    common_protocol,
)
from penstock.client.consumer.assignors.roundrobin import RoundRobinAssignor
from penstock.client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "Assignment",
    "Assignor",
    "AssignorChoice",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "TopicRacks",
    "assignors_of",
    "common_protocol",
]
