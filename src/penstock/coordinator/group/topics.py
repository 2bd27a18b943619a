"""What the machine asks about the topics of the cluster."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID


class Topics(Protocol):
    """The topics as they are now."""

    def topic_id(self, name: str) -> UUID | None: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def has_partition(self, name: str, partition: int) -> bool: ...

    def partition_count(self, name: str) -> int:
        """0 where there is no such topic."""
        ...

    def partition_racks(self, name: str, partition: int) -> Sequence[str]:
        """`broker.rack` of the brokers with a replica, those that have one."""
        ...
