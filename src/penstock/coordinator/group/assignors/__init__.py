"""The assignors that a broker runs for consumer groups (KIP-848), by the names clients ask for.

`uniform` balances the number of partitions and moves as few as it can; `range` gives every member
a run of neighbouring partitions, the same one of topics with the same number of partitions.
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
"""In Kafka's order: the first is the default of a member that asks for none."""

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSpec", "PartitionAssignorError"]
