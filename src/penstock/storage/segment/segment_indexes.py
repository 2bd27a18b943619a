"""The indexes of one segment: when batches get entries in them, and how much space is left."""

from collections.abc import Callable, Sequence

from penstock.core.ids import NO_TIMESTAMP
from penstock.storage.disk import Disk
from penstock.storage.disk_errors import NothingWrittenError, is_lack_of_room
from penstock.storage.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from penstock.storage.index.offset_index import OffsetIndex
from penstock.storage.index.time_index import TimeIndex
from penstock.storage.index.transaction_index import TransactionIndex
from penstock.storage.log_config import LogConfig


class SegmentIndexes:
    """The offset, time and transaction index of a segment; `path_of` returns a path by suffix."""

    __slots__ = (
        "bytes_since_entry",
        "indexed_timestamp",
        "interval",
        "is_full",
        "offset_index",
        "space",
        "time_index",
        "txn_index",
    )

    def __init__(
        self, disk: Disk, path_of: Callable[[str], str], base_offset: int, config: LogConfig
    ) -> None:
        max_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(disk, path_of(INDEX_SUFFIX), base_offset, max_bytes)
        self.time_index = TimeIndex(disk, path_of(TIME_INDEX_SUFFIX), base_offset, max_bytes)
        self.txn_index = TransactionIndex(disk, path_of(TXN_INDEX_SUFFIX), base_offset)
        self.interval = config.index_interval_bytes
        """`index.interval.bytes`: a batch gets entries after more bytes than that."""
        self.bytes_since_entry = 0
        """The size of the batches since the last entries; the segment adds each batch to it."""
        self.is_full = False
        """Whether an index has no space for another entry, as in every sealed segment."""
        self.space = 0
        """How many entries can be added before the indexes are full."""
        self.indexed_timestamp: int = NO_TIMESTAMP
        """Batches up to this timestamp need no entry in the time index."""
        self._update_space()

    def _update_space(self) -> None:
        # The time index reserves its last slot for the entry that sealing the segment adds.
        offsets = self.offset_index.max_entries - self.offset_index.entries
        times = self.time_index.max_entries - 1 - self.time_index.entries
        self.space = min(offsets, times)
        self.indexed_timestamp = NO_TIMESTAMP
        self.is_full = self.space <= 0

    # --- entries

    @property
    def have_reserved_entries(self) -> bool:
        """Whether one more entry can be written without new space on the disk."""
        return self.offset_index.has_reserved_entry and self.time_index.has_reserved_entry

    def reserve_entries(self, size: int, batches: int, max_timestamp: int) -> bool:
        """Reserves space for the entries of an append, before anything is written.

        Otherwise a batch whose entry could not be written would be refused, and be in the file.
        Returns False if there is no room: the batches get no entries then.
        """
        if self.is_full:
            return False
        count = min((self.bytes_since_entry + size) // (self.interval + 1) + 1, batches)
        try:
            self.offset_index.reserve_entries(count)
            if max_timestamp > self.indexed_timestamp:
                self.time_index.reserve_entries(count)
        except OSError as error:
            if is_lack_of_room(error):
                return False
            raise NothingWrittenError(error.errno, error.strerror, error.filename) from error
        return True

    def add_entries(
        self, last_offset: int, position: int, max_timestamp: int, max_timestamp_offset: int
    ) -> None:
        """Adds entries for the batch at `position`; without room the next batch gets them."""
        try:
            self.offset_index.append(last_offset, position)
            try:
                if max_timestamp > self.indexed_timestamp:
                    self.time_index.maybe_append(max_timestamp, max_timestamp_offset)
                    self.indexed_timestamp = max_timestamp
            finally:
                self.bytes_since_entry = 0
                self.space -= 1
                if self.space <= 0:
                    self._update_space()
        except OSError as error:
            # The batch is in the log already.
            if not is_lack_of_room(error):
                raise

    def add_offset_entries(self, last_offsets: Sequence[int], positions: Sequence[int]) -> None:
        """Adds entries for several batches, for which `reserve_entries` has returned True."""
        self.offset_index.extend(last_offsets, positions)
        self.space -= len(positions)
        if self.space <= 0:
            self._update_space()

    def add_time_entry(self, max_timestamp: int, max_timestamp_offset: int) -> None:
        """Adds an entry to the time index if there is none for this timestamp yet."""
        if max_timestamp > self.indexed_timestamp:
            self.time_index.maybe_append(max_timestamp, max_timestamp_offset)
            self.indexed_timestamp = max_timestamp

    # --- lifecycle

    def restart(self, config: LogConfig) -> None:
        """Empties the offset and time index, which get the sizes of new settings."""
        self.interval = config.index_interval_bytes
        for index in (self.offset_index, self.time_index):
            index.max_bytes = config.segment_index_bytes
            index.reset()
        self.bytes_since_entry = 0
        self._update_space()

    def reset(self) -> None:
        """Removes all entries, before recovery adds them again."""
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self.bytes_since_entry = 0
        self._update_space()

    def truncate_to(self, offset: int) -> None:
        """Removes the entries from `offset` on; others can be added afterwards."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.make_active()
        self.bytes_since_entry = 0

    def make_active(self) -> None:
        """Extends the files to their full size, so that entries can be added."""
        for index in (self.offset_index, self.time_index):
            # It may have more entries than allowed: segment.index.bytes was lowered.
            index.resize(max(index.max_bytes, index.size_in_bytes))
        self._update_space()

    def seal(self, max_timestamp: int, max_timestamp_offset: int) -> None:
        """Indexes the segment's largest timestamp and truncates the files to their entries."""
        if max_timestamp >= 0:
            self.time_index.maybe_append(max_timestamp, max_timestamp_offset, skip_full_check=True)
        self.offset_index.trim()
        self.time_index.trim()
        self.is_full = True

    def flush(self) -> None:
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def rename(self, path_of: Callable[[str], str]) -> None:
        """Renames the files."""
        self.offset_index.rename_to(path_of(INDEX_SUFFIX))
        self.time_index.rename_to(path_of(TIME_INDEX_SUFFIX))
        self.txn_index.rename_to(path_of(TXN_INDEX_SUFFIX))

    def update_paths(self, path_of: Callable[[str], str]) -> None:
        """Uses other paths from now on: the segment's directory was renamed."""
        self.offset_index.path = path_of(INDEX_SUFFIX)
        self.time_index.path = path_of(TIME_INDEX_SUFFIX)
        self.txn_index.update_path(path_of(TXN_INDEX_SUFFIX))

    def close(self) -> None:
        self.offset_index.close_handle()
        self.time_index.close_handle()
        self.txn_index.close()
