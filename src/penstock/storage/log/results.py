"""What a log is asked for, and what it answers."""

from enum import Enum, auto
from typing import NamedTuple

from msgspec import Struct

from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.segment.log_segment import LogSlice


class FetchIsolation(Enum):
    """How far a reader may see."""

    LOG_END = auto()
    """Followers: everything that was appended."""
    HIGH_WATERMARK = auto()
    """`read_uncommitted`: what is replicated."""
    TXN_COMMITTED = auto()
    """`read_committed`: what is replicated and decided."""


class LogAppendInfo(Struct, frozen=True, gc=False):
    """What became of an append."""

    first_offset: int
    last_offset: int
    log_append_time: int
    """-1 where the producer's timestamps were kept; of a duplicate always its latest timestamp."""
    log_start_offset: int
    duplicate: bool
    """The batch was in the log already; the offsets are those of the first time."""
    flush_due: bool
    """`flush.messages` asks for a flush before the append is acknowledged."""
    rolled: bool
    """A segment was sealed; it should be flushed soon, on another thread."""


class FetchData(Struct, frozen=True, gc=False):
    """What a read found: whole batches of one segment, or nothing (`records` is None)."""

    records: LogSlice | None
    aborted_transactions: list[AbortedTxn] | None
    """With `FetchIsolation.TXN_COMMITTED`: the aborted transactions among the records."""

    @property
    def size(self) -> int:
        return self.records.size if self.records else 0


class OffsetAndEpoch(NamedTuple):
    offset: int
    leader_epoch: int
