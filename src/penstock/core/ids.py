"""The numbers and names that must not be mixed up, each as a type of its own.

They are `NewType`s: free at run time, told apart by mypy.
"""

from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""Position of a record in its partition, from 0."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition; -1 where unknown."""

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Sequence = NewType("Sequence", int)
"""Number of a record in its producer's stream to one partition; wraps from 2**31 - 1 to 0."""

BrokerId = NewType("BrokerId", int)
TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970-01-01 UTC; -1 where there is none."""

TopicId = UUID

NO_OFFSET = Offset(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = Sequence(-1)
NO_TIMESTAMP = TimestampMs(-1)


class TopicPartition(NamedTuple):
    """A partition, printed the way its folder is named: `topic-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
