"""Parameters and results of a log's operations."""

from enum import Enum, auto
from typing import NamedTuple

from msgspec import Struct

from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.segment.log_segment import LogSlice


class FetchIsolation(Enum):
    """Up to which offset a reader may read."""

    LOG_END = auto()
    """Followers: up to the log end offset."""
    HIGH_WATERMARK = auto()
    """`read_uncommitted`: up to the high watermark."""
    TXN_COMMITTED = auto()
    """`read_committed`: up to the last stable offset."""


class LogAppendInfo(Struct, frozen=True, gc=False):
    """The result of an append."""

    first_offset: int
    last_offset: int
    log_append_time: int
    """-1 if the producer's timestamps were kept; for a duplicate its largest timestamp."""
    log_start_offset: int
    is_duplicate: bool
    """The batch was in the log already; the offsets are those of its first append."""
    needs_flush: bool
    """`flush.messages` requires a flush before the append is acknowledged."""
    has_rolled: bool
    """A segment was sealed; it should be flushed soon, on a worker thread."""


class FetchData(Struct, frozen=True, gc=False):
    """The result of a read: whole batches of one segment, or None for `records`."""

    records: LogSlice | None
    aborted_transactions: list[AbortedTxn] | None
    """With `FetchIsolation.TXN_COMMITTED`: the aborted transactions among the records."""

    @property
    def size(self) -> int:
        return self.records.size if self.records else 0


class OffsetAndEpoch(NamedTuple):
    offset: int
    leader_epoch: int
