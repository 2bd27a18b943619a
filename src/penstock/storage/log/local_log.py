"""The segment files of one partition: append, read, roll, truncate, delete, replace, flush.

`LocalLog` knows offsets and files, but nothing about leaders, producers or watermarks. `Log` has
a `LocalLog` and adds those.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.records.batch import BatchHeader
from penstock.records.fetched import PlainBatches
from penstock.storage.disk import Disk
from penstock.storage.disk_errors import NothingWrittenError
from penstock.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    segment_path,
)
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log.flush_task import FlushTask, flush_segments
from penstock.storage.log.results import FetchData
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.log_segment import LogSegment, LogSlice
from penstock.storage.segment.log_segments import LogSegments
from penstock.storage.staged_operation import Steps


class _DeletedSegment(NamedTuple):
    remove_at_ms: int
    segment: LogSegment


def _undo(segment: LogSegment, error: OSError) -> None:
    """Removes what a failed append has written."""
    if not isinstance(error, NothingWrittenError):
        segment.truncate_torn_write(error)


class LocalLog:
    """The segments in the directory of one partition. `next_offset` is the log end offset."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        segments: LogSegments,
        next_offset: int,
        recovery_point: int,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.segments = segments
        self.next_offset = next_offset
        self.recovery_point = recovery_point
        """Everything below this offset is durable."""
        self._deleted_segments: list[_DeletedSegment] = []
        self._running_flushes = 0
        self._file_locks = 0
        self.may_flush_locked = False
        """Whether flushes may begin although the files are locked: only a move locks them, and the
        disk that it writes to hangs."""

    # --- append and read

    def append(self, segment: LogSegment, data: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Appends the batches to `segment`, which must be the active one."""
        try:
            segment.append(data, headers)
        except OSError as error:
            _undo(segment, error)
            raise
        last = headers[-1]
        self.next_offset = last.base_offset + last.last_offset_delta + 1

    def append_plain(self, segment: LogSegment, data: Buffer, batches: PlainBatches) -> None:
        """Like `append`, for the batches of a follower."""
        try:
            segment.append_plain(data, batches)
        except OSError as error:
            _undo(segment, error)
            raise
        self.next_offset = batches.last_offsets[-1] + 1

    def fetch(
        self, offset: int, max_bytes: int, bound: int, *, min_one: bool, with_aborted: bool
    ) -> FetchData:
        """Returns the batches that `read` returns, on request with the aborted transactions."""
        slice_and_segment = None
        if offset < bound:
            slice_and_segment = self.read(offset, max_bytes, bound, min_one=min_one)
        if slice_and_segment is None:
            return FetchData(None, [] if with_aborted else None)
        records, segment = slice_and_segment
        if not with_aborted:
            return FetchData(records, None)
        upper_bound = segment.indexes.offset_index.fetch_upper_bound(records.position, records.size)
        if upper_bound is not None:
            end_offset = upper_bound.offset
        else:
            next_segment = self.segments.higher(segment.base_offset)
            end_offset = self.next_offset if next_segment is None else next_segment.base_offset
        return FetchData(records, self.aborted_transactions(offset, end_offset))

    def read(
        self, offset: int, max_bytes: int, bound: int, *, min_one: bool
    ) -> tuple[LogSlice, LogSegment] | None:
        """Returns whole batches of one segment, from `offset` on, that start below `bound`."""
        segment = self.segments.floor(offset)
        while segment is not None and segment.base_offset < bound:
            end_position = self._position_of_bound(segment, bound)
            records = segment.read(offset, max_bytes, end_position, min_one=min_one)
            if records is not None:
                return (records, segment) if records.size else None
            # Compaction leaves gaps: the offset may be after the last batch of its segment.
            segment = self.segments.higher(segment.base_offset)
        return None

    def _position_of_bound(self, segment: LogSegment, bound: int) -> int:
        if bound >= self.next_offset:
            return segment.size
        next_segment = self.segments.higher(segment.base_offset)
        if next_segment is not None and bound >= next_segment.base_offset:
            return segment.size
        location = segment.find(bound)
        return segment.size if location is None else location.position

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """Returns the aborted transactions that overlap the offsets `start <= offset < end`."""
        aborted: list[AbortedTxn] = []
        for segment in self.segments.from_floor(start):
            transactions, is_complete = segment.indexes.txn_index.collect_aborted(start, end)
            aborted.extend(transactions)
            if is_complete:
                break
        return aborted

    # --- roll

    def roll(self, base_offset: int, now_ms: int, *, roll_jitter_ms: int = 0) -> LogSegment:
        """Seals the active segment and starts a new one at `base_offset`.

        After an `OSError` it may be called again.
        """
        active = self.segments.active
        if active.base_offset == base_offset and not active.size:
            # Its indexes were full, or `segment.ms` had passed, before it got a record.
            active.restart(self.config, now_ms, roll_jitter_ms)
            return active
        if base_offset < self.next_offset or base_offset <= active.base_offset:
            raise ValueError(
                f"a segment at {base_offset} would overlap {active}, "
                f"which ends at {self.next_offset}"
            )
        active.seal()
        for kind in SEGMENT_SUFFIXES:
            self.disk.remove(segment_path(self.directory, base_offset, kind))
        segment = self._add_active_segment(base_offset, now_ms, roll_jitter_ms)
        self.next_offset = max(self.next_offset, base_offset)
        return segment

    def _add_active_segment(
        self, base_offset: int, now_ms: int, roll_jitter_ms: int = 0
    ) -> LogSegment:
        segment = LogSegment(
            self.disk,
            self.directory,
            base_offset,
            self.config,
            now_ms,
            create=True,
            roll_jitter_ms=roll_jitter_ms,
        )
        try:
            segment.indexes.make_active()
        except OSError:
            segment.close_handlers()
            raise
        self.segments.add(segment)
        return segment

    # --- truncate

    def truncate_to(self, offset: int, now_ms: int) -> Steps[list[LogSegment]]:
        """Drops everything from `offset` on; returns the segments that were removed as a whole.

        Until it has ended, the log may only be read.
        """
        self._require_idle()
        with self.lock_files():
            removed = [segment for segment in self.segments if segment.base_offset > offset]
            # The last segment first, so that a crash in between leaves no gap; and durably, before
            # the segment that becomes active is changed: a removed segment that reappeared would
            # hide that change from recovery.
            self.remove(reversed(removed), now_ms)
            yield self._sync_directory
            self.segments.active.truncate_to(offset, now_ms)
            # Everything is made durable. Otherwise a crash could mix the dropped records with those
            # appended in their place, or recovery could mistake the gap that a cut within a batch
            # leaves for lost records.
            yield partial(flush_segments, self._unflushed_segments())
            self.next_offset = self.recovery_point = offset
        return removed

    def truncate_fully(self, offset: int, now_ms: int) -> Steps[list[LogSegment]]:
        """Drops every segment and starts a new one at `offset`. Otherwise like `truncate_to`."""
        self._require_idle()
        with self.lock_files():
            removed = list(self.segments)
            self.remove(reversed(removed), now_ms)
            self._add_active_segment(offset, now_ms)
            self.next_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            yield self._sync_directory
        return removed

    def _require_idle(self) -> None:
        if self.is_busy:
            raise RuntimeError(
                f"{self.directory} cannot be truncated while a flush or a replacement of segments "
                f"is running; finish it first"
            )

    def _sync_directory(self) -> None:
        self.disk.sync_directory(self.directory)

    # --- delete

    def remove(self, segments: Iterable[LogSegment], now_ms: int, *, wait: bool = True) -> None:
        """Removes segments from the log.

        With `wait` their files are renamed to `.deleted` and stay for `file.delete.delay.ms`,
        because a fetch may still be sending from them. `take_removable_segments` returns them
        after that.
        """
        for segment in list(segments):
            self.segments.remove(segment.base_offset)
            if wait:
                self._rename_deleted(segment, now_ms)
            else:
                segment.delete()

    def _rename_deleted(self, segment: LogSegment, now_ms: int) -> None:
        segment.change_suffix(DELETED_SUFFIX)
        remove_at_ms = now_ms + self.config.file_delete_delay_ms
        self._deleted_segments.append(_DeletedSegment(remove_at_ms, segment))

    def take_removable_segments(self, now_ms: int) -> list[LogSegment]:
        """Returns the deleted segments whose delay has passed, for the caller to remove.

        Returns none while the log is busy: a flush may use their files.
        """
        if self.is_busy or not self._deleted_segments:
            return []
        removable = [
            deleted.segment for deleted in self._deleted_segments if deleted.remove_at_ms <= now_ms
        ]
        self._deleted_segments = [
            deleted for deleted in self._deleted_segments if deleted.remove_at_ms > now_ms
        ]
        return removable

    # --- replace

    def replace(
        self, new: Sequence[LogSegment], old: Sequence[LogSegment], now_ms: int
    ) -> Steps[None]:
        """Replaces the `old` segments with `new` ones, which were written as `.cleaned`.

        A crash leaves either all of the old segments or all of the new ones: while a `.cleaned`
        file exists, recovery drops the new ones; once all are `.swap`, it drops the old ones.

        The log may be read, appended to and rolled while this runs. Its files are locked.
        """
        with self.lock_files():
            yield partial(self._flush_new, new)
            for segment in reversed(new):
                if segment.suffix != CLEANED_SUFFIX:
                    raise ValueError(f"{segment} is not {CLEANED_SUFFIX}")
                segment.change_suffix(SWAP_SUFFIX)
            yield self._sync_directory
            self.remove(old, now_ms)
            for segment in new:
                self.segments.add(segment)
            yield self._sync_directory
            for segment in new:
                segment.change_suffix("")
            yield self._sync_directory

    def _flush_new(self, segments: Sequence[LogSegment]) -> None:
        flush_segments(segments)
        self._sync_directory()

    @contextmanager
    def lock_files(self) -> Iterator[None]:
        """Locks the files: they are about to be renamed or replaced.

        Until the lock is released no flush begins, retention deletes nothing, and truncations are
        refused. A flush that is already running may finish. Locks may be nested.
        """
        self._file_locks += 1
        try:
            yield
        finally:
            self._file_locks -= 1

    @property
    def are_files_locked(self) -> bool:
        return self._file_locks > 0

    @property
    def is_busy(self) -> bool:
        """Whether a flush is running or the files are locked: no other flush may begin."""
        return self._running_flushes > 0 or self._file_locks > 0

    @property
    def can_flush(self) -> bool:
        """Whether a flush may begin."""
        return not self._running_flushes and (not self._file_locks or self.may_flush_locked)

    # --- flush

    @property
    def unflushed(self) -> int:
        """The number of offsets that are not yet durable."""
        return self.next_offset - self.recovery_point

    @property
    def has_unflushed_sealed_segment(self) -> bool:
        return self.recovery_point < self.segments.active.base_offset

    def begin_flush(self, *, with_indexes: bool = False) -> FlushTask | None:
        """Returns a flush up to the log end offset; None if everything is durable.

        `with_indexes` includes those of the active segment, so that its files may be closed.
        """
        if self.next_offset <= self.recovery_point and not with_indexes:
            return None
        self._running_flushes += 1
        *sealed, active = self._unflushed_segments()
        if with_indexes:
            sealed.append(active)
        return FlushTask(self.disk, self.directory, sealed, active, self.next_offset)

    def _unflushed_segments(self) -> list[LogSegment]:
        # Includes the segment that ends at the recovery point: its indexes were not synced while
        # it was the active one.
        return self.segments.from_floor(self.recovery_point - 1)

    def finish_flush(self, task: FlushTask, *, succeeded: bool = True) -> None:
        """Records the end of a flush, on the event loop, after `task.run` returned or raised."""
        self._running_flushes -= 1
        if succeeded:
            self.recovery_point = max(self.recovery_point, task.end_offset)

    # --- rename and close

    def update_directory(self, directory: str) -> None:
        """Uses `directory` from now on: the directory was renamed to it."""
        self.directory = directory
        for segment in (*self.segments, *(deleted.segment for deleted in self._deleted_segments)):
            segment.update_directory(directory)

    def close(self) -> None:
        """Seals and flushes everything and closes the files."""
        self.segments.active.seal()
        flush_segments(self._unflushed_segments())
        self.disk.sync_directory(self.directory)
        self.recovery_point = self.next_offset
        self.close_handlers()

    def close_handlers(self) -> None:
        """Closes the files without flushing them."""
        for segment in self.segments:
            segment.close_handlers()
        for deleted in self._deleted_segments:
            deleted.segment.close_handlers()
