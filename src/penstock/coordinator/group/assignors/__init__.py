"""The assignors that a broker runs for consumer groups (KIP-848), by name.

`uniform` balances the number of partitions and moves as few as possible; `range` assigns every
member a run of consecutive partitions, the same one for topics with equal partition counts.
"""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.coordinator.group.assignors.range import assign_range
from penstock.coordinator.group.assignors.spec import (
    Assignment,
    Assignor,
    MemberSpec,
    PartitionAssignorError,
)
from penstock.coordinator.group.assignors.uniform import assign_uniform

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
"""In Kafka's order: the first is the default of members that request none."""

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSpec", "PartitionAssignorError"]
