"""The values and the error of external offsets."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import CommitFailedError
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition

Mirror: TypeAlias = Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None]
"""Is called with the positions that a transaction has saved; must neither block nor raise."""


class StoredOffset(NamedTuple):
    """A partition's offset in the database."""

    position: OffsetAndMetadata
    version: int
    """Increases with every change: an update of an older version fails."""


class OffsetUpdate(NamedTuple):
    """A partition was read from a stored offset up to a new position."""

    previous: StoredOffset
    position: OffsetAndMetadata


class OffsetsMovedError(CommitFailedError):
    """Another consumer has saved offsets of the same partitions since this one loaded them.

    The database transaction is rolled back, with its results. A consumer that still owns the
    partitions continues from the stored offsets with the next poll. A consumer that does not own
    them any more has been replaced; none of its work is in the database twice.
    """

    default_code = ErrorCode.STALE_MEMBER_EPOCH
