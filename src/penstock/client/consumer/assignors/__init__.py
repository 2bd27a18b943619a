"""How a group of consumers shares out partitions (C4): Kafka's assignors, and your own."""

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
