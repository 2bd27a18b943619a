"""The values that a consumer returns and takes."""

from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple

from penstock.core.ids import TopicPartition


class ConsumerRecord(NamedTuple):
    """A record of a topic.

    `key` and `value` are bytes or None, or the results of the deserializers.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970-01-01 UTC, or -1 without a timestamp."""

    timestamp_type: int
    """0: set by the producer, 1: by the broker, -1: the message format has no timestamps."""

    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1
    """The epoch of the leader that appended the record, -1 if unknown."""

    @property
    def serialized_key_size(self) -> int:
        """The size of the key if it was not deserialized, else -1."""
        return len(self.key) if isinstance(self.key, bytes) else -1

    @property
    def serialized_value_size(self) -> int:
        """The size of the value if it was not deserialized, else -1."""
        return len(self.value) if isinstance(self.value, bytes) else -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read, and a note."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """The leader epoch of the last record that was read, -1 if unknown: detects lost records."""


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after the time that `offsets_for_times` was called with."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """The membership of a consumer in its group, for `send_offsets_to_transaction`."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class SubscriptionPattern(NamedTuple):
    """A regular expression (RE2) that the broker resolves; for `group_protocol="consumer"`."""

    pattern: str


class RebalanceListener:
    """Is notified of changes of the assignment. `poll` calls its methods.

    With `penstock.client.aio.Consumer` they may be coroutine functions.
    """

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called for new partitions, before they are read: `seek` here."""
        return None

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions go to other members: finish and commit here."""
        return None

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Called for partitions that other members may own already: do not commit them.

        It calls `on_partitions_revoked` unless it is overridden.
        """
        return self.on_partitions_revoked(partitions)
