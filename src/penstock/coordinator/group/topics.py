"""The topics of the cluster, as groups look them up."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID


class Topics(Protocol):
    """The topics as they are now. The host implements it."""

    def topic_id(self, name: str) -> UUID | None: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def has_partition(self, name: str, partition: int) -> bool: ...

    def partition_count(self, name: str) -> int:
        """Returns 0 if there is no such topic."""
        ...

    def partition_racks(self, name: str, partition: int) -> Sequence[str]:
        """Returns the `broker.rack` of the replicas' brokers, of those that have one."""
        ...
