"""The values that a consumer gives out and takes."""

from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple

from penstock.core.ids import TopicPartition


class ConsumerRecord(NamedTuple):
    """A record as it was read.

    `key` and `value` are bytes or None, or whatever the deserializers make of them.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970-01-01 UTC, -1 where there is none."""

    timestamp_type: int
    """0: the producer's time, 1: the broker's, -1: a message of a format that has none."""

    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1
    """The epoch of the leader that appended it, -1 where unknown."""

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key if it is still bytes, -1 otherwise."""
        return len(self.key) if isinstance(self.key, bytes) else -1

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value if it is still bytes, -1 otherwise."""
        return len(self.value) if isinstance(self.value, bytes) else -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read, and a note of the caller's."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """The epoch of the last record that was read: finds out about lost records. -1: unknown."""


class OffsetAndTimestamp(NamedTuple):
    """What `offsets_for_times` found: the first record at or after the time asked for."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """Which member of which generation a consumer is: for `send_offsets_to_transaction`."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class SubscriptionPattern(NamedTuple):
    """A regular expression (RE2) that the broker resolves: with `group_protocol="consumer"`."""

    pattern: str


class RebalanceListener:
    """What to do when partitions come and go. Its methods are called within `poll`.

    With the aio consumer they may be coroutine functions.
    """

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        """These are new; nothing of them has been read yet. The place to `seek`."""
        return None

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These go to another member once this returns. The place to finish and commit."""
        return None

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are gone already, to another member perhaps: do not commit for them."""
        return self.on_partitions_revoked(partitions)
