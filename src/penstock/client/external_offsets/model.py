"""The values that offsets outside are made of, and what goes wrong with them."""

from typing import NamedTuple

from penstock.client.consumer.record import OffsetAndMetadata
from penstock.client.errors import CommitFailedError
from penstock.core.errors import ErrorCode


class StoredOffset(NamedTuple):
    """What the database knows of a partition: where to read on, and which version of that it is."""

    position: OffsetAndMetadata
    version: int
    """Rises with every change, so that nobody overwrites what he has not seen."""


class Move(NamedTuple):
    """A partition was read from what is stored up to a new position."""

    start: StoredOffset
    end: OffsetAndMetadata


class OffsetsMovedError(CommitFailedError):
    """Another consumer has saved offsets of the same partitions meanwhile.

    The database transaction is rolled back, results and all. A consumer that still owns the
    partitions reads on from what the other one saved: just go on with the loop. One that does not
    has been replaced, and nothing of its work is in the database twice.
    """

    default_code = ErrorCode.STALE_MEMBER_EPOCH
