"""Distinct types for ids, offsets and epochs, which must not be mixed up.

They are `NewType`s: mypy distinguishes them, and they cost nothing at run time.
"""

from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Position of a record in its partition, from 0."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Number of the leadership of a partition, rising with each election; -1 if unknown."""

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)
"""Number of a record among those of its producer in a partition; wraps after 2**31 - 1."""

BrokerId = NewType("BrokerId", int)
TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970-01-01 UTC; -1 if there is none."""

TopicId = UUID

NO_OFFSET = Offset(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = Sequence(-1)
NO_TIMESTAMP = TimestampMs(-1)


class TopicPartition(NamedTuple):
    """A partition of a topic; printed like the name of its directory, `topic-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
