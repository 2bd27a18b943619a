"""The segments of one partition as files: append, read, roll, truncate, delete, replace, flush.

`LocalLog` is what is left of a log without its meaning: it knows offsets and files, nothing of
leaders, producers or watermarks. `Log` puts those on top.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.records.batch import BatchHeader
from penstock.storage.disk import Disk
from penstock.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    segment_path,
)
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.log_segment import LogSegment, LogSlice
from penstock.storage.segment.log_segments import LogSegments
from penstock.storage.staged_operation import Steps

_log = logging.getLogger(__name__)


class FlushTask:
    """A flush that may run on another thread while the log is appended to.

    `run` calls sync and nothing else. LogSegments that are sealed are synced with their indexes; of
    the active one only the `.log` file is, because recovery rebuilds its indexes anyway.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        sealed: Sequence[LogSegment],
        active: LogSegment,
        end_offset: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._sealed = sealed
        self._active = active
        self.end_offset = end_offset
        """The recovery point once `run` has returned."""
        self.also: list[Callable[[], None]] = []
        """Syncs that belong to the flush, such as those of producer snapshots."""

    def run(self) -> None:
        for sync in self.also:
            sync()
        _flush_all(self._sealed)
        self._active.file.sync()
        self._disk.sync_directory(self._directory)


class _DeletedSegment(NamedTuple):
    due_ms: int
    segment: LogSegment


class LocalLog:
    """LogSegments in a directory. `next_offset` is the log end offset."""

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
        """Everything below is durable."""
        self._condemned: list[_DeletedSegment] = []
        self._flushes = 0
        self._holds = 0

    # --- append, read

    def append(self, segment: LogSegment, data: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Adds the batches to `segment`, which is the active one."""
        try:
            segment.append(data, headers)
        except OSError:
            self._cut_torn_write(segment)
            raise
        last = headers[-1]
        self.next_offset = last.base_offset + last.last_offset_delta + 1

    def _cut_torn_write(self, segment: LogSegment) -> None:
        # Readers never look past segment.size, and recovery would cut the rest off too; but a
        # full disk is mended without a restart only if the half batch does not stay.
        try:
            segment.file.truncate(segment.size)
        except OSError as error:
            _log.warning("could not cut a torn write off %s: %s", segment, error)

    def read(
        self, offset: int, max_bytes: int, bound: int, *, min_one: bool
    ) -> tuple[LogSlice, LogSegment] | None:
        """Whole batches from `offset` on that start below the offset `bound`, of one segment."""
        segment = self.segments.floor(offset)
        while segment is not None and segment.base_offset < bound:
            end_position = self._position_of_bound(segment, bound)
            found = segment.read(offset, max_bytes, end_position, min_one=min_one)
            if found is not None:
                return (found, segment) if found.size else None
            # Compaction leaves holes: the offset may lie after the last batch of its segment.
            segment = self.segments.higher(segment.base_offset)
        return None

    def _position_of_bound(self, segment: LogSegment, bound: int) -> int:
        if bound >= self.next_offset:
            return segment.size
        following = self.segments.higher(segment.base_offset)
        if following is not None and bound >= following.base_offset:
            return segment.size
        found = segment.find(bound)
        return segment.size if found is None else found.position

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """The transactions that were aborted and touch the offsets `start <= offset < end`."""
        aborted: list[AbortedTxn] = []
        for segment in self.segments.from_floor(start):
            found, complete = segment.txn_index.collect_aborted(start, end)
            aborted.extend(found)
            if complete:
                break
        return aborted

    # --- roll

    def roll(self, base_offset: int, now_ms: int, *, roll_jitter_ms: int = 0) -> LogSegment:
        """Starts a new active segment at `base_offset`."""
        active = self.segments.active
        if active.base_offset == base_offset and not active.size:
            # Its indexes were full, or its clock ran out, before it had a record.
            self.remove([active], now_ms, wait=self.is_busy)
        elif base_offset < self.next_offset or base_offset <= active.base_offset:
            raise ValueError(
                f"a segment at {base_offset} would overlap {active}, "
                f"which ends at {self.next_offset}"
            )
        else:
            active.seal()
        for kind in SEGMENT_SUFFIXES:
            self.disk.remove(segment_path(self.directory, base_offset, kind))
        segment = LogSegment(
            self.disk,
            self.directory,
            base_offset,
            self.config,
            now_ms,
            create=True,
            roll_jitter_ms=roll_jitter_ms,
        )
        segment.make_active()
        self.segments.add(segment)
        self.next_offset = max(self.next_offset, base_offset)
        return segment

    # --- truncate

    def truncate_to(self, offset: int, now_ms: int) -> Steps[list[LogSegment]]:
        """Drops everything from `offset` on; returns the segments that went as a whole.

        The log may be read meanwhile, but nothing else.
        """
        self._not_while_busy()
        with self.held():
            gone = [segment for segment in self.segments if segment.base_offset > offset]
            # From the last one on, so that a crash in between leaves no hole; and for good, before
            # the one that becomes active is changed: one that came back would hide that from
            # recovery.
            self.remove(reversed(gone), now_ms)
            yield self._sync_directory
            self.segments.active.truncate_to(offset, now_ms)
            # Everything is made durable. Otherwise a crash could mix what was cut off with what is
            # appended in its place, or take the hole that a cut within a batch leaves for a loss.
            yield partial(_flush_all, self._not_flushed())
            self.next_offset = self.recovery_point = offset
        return gone

    def truncate_fully(self, offset: int, now_ms: int) -> Steps[list[LogSegment]]:
        """Drops every segment and starts anew at `offset`. As `truncate_to` otherwise."""
        self._not_while_busy()
        with self.held():
            gone = list(self.segments)
            self.remove(reversed(gone), now_ms)
            segment = LogSegment(
                self.disk, self.directory, offset, self.config, now_ms, create=True
            )
            segment.make_active()
            self.segments.add(segment)
            self.next_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            yield self._sync_directory
        return gone

    def _not_while_busy(self) -> None:
        if self.is_busy:
            raise RuntimeError("finish the flush or the replacement that runs, then truncate")

    def _sync_directory(self) -> None:
        self.disk.sync_directory(self.directory)

    # --- delete

    def remove(self, gone: Iterable[LogSegment], now_ms: int, *, wait: bool = True) -> None:
        """Takes segments out of the log.

        With `wait` their files stay, renamed `.deleted`, for `file.delete.delay.ms`, because a
        reader may still be sending from them; `purge` removes them then.
        """
        for segment in list(gone):
            self.segments.remove(segment.base_offset)
            self._condemn(segment, now_ms, wait=wait)

    def _condemn(self, segment: LogSegment, now_ms: int, *, wait: bool) -> None:
        if not wait:
            segment.delete()
            return
        segment.change_suffix(DELETED_SUFFIX)
        self._condemned.append(_DeletedSegment(now_ms + self.config.file_delete_delay_ms, segment))

    def purge(self, now_ms: int) -> int:
        """Removes the files whose delay has passed; returns of how many segments.

        None while a flush runs: it may hold them.
        """
        due = self.take_due(now_ms)
        for segment in due:
            segment.delete()
        return len(due)

    def take_due(self, now_ms: int) -> list[LogSegment]:
        """Takes out the segments whose delay has passed, for the caller to remove."""
        if self.is_busy or not self._condemned:
            return []
        due = [item.segment for item in self._condemned if item.due_ms <= now_ms]
        self._condemned = [item for item in self._condemned if item.due_ms > now_ms]
        return due

    # --- replace

    def replace(
        self, new: Sequence[LogSegment], old: Sequence[LogSegment], now_ms: int
    ) -> Steps[None]:
        """Puts `new` segments, written as `.cleaned`, in the place of `old` ones.

        A crash leaves either all of the old or all of the new: while a `.cleaned` file is there,
        recovery drops the new ones; once all are `.swap`, it drops the old ones.

        The log may be read, appended to and rolled meanwhile. It is held: a flush, a truncation
        or retention could meet files that are about to get another name.
        """
        with self.held():
            yield partial(self._flush_new, new)
            for segment in reversed(new):
                if segment.suffix != CLEANED_SUFFIX:
                    raise ValueError(f"{segment} is not {CLEANED_SUFFIX}")
                segment.change_suffix(SWAP_SUFFIX)
            yield self._sync_directory
            for segment in old:
                self.segments.remove(segment.base_offset)
                self._condemn(segment, now_ms, wait=True)
            for segment in new:
                self.segments.add(segment)
            yield self._sync_directory
            for segment in new:
                segment.change_suffix("")
            yield self._sync_directory

    def _flush_new(self, new: Sequence[LogSegment]) -> None:
        _flush_all(new)
        self._sync_directory()

    # --- flush

    @property
    def unflushed(self) -> int:
        """How many offsets are not yet durable."""
        return self.next_offset - self.recovery_point

    @property
    def has_unflushed_sealed_segment(self) -> bool:
        return self.recovery_point < self.segments.active.base_offset

    @property
    def are_files_locked(self) -> bool:
        """Whether files are about to get other names: no flush, retention or truncation."""
        return self._holds > 0

    @property
    def is_busy(self) -> bool:
        """Whether a flush is under way, or the log is held: no other flush may begin."""
        return self._flushes > 0 or self._holds > 0

    @property
    def is_flushing(self) -> bool:
        return self._flushes > 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the log, see `are_files_locked`; a flush that runs already is let finish."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def begin_flush(self) -> FlushTask | None:
        """A flush of all that is there now; None where everything is durable."""
        if self.next_offset <= self.recovery_point:
            return None
        self._flushes += 1
        *sealed, active = self._not_flushed()
        return FlushTask(self.disk, self.directory, sealed, active, self.next_offset)

    def _not_flushed(self) -> list[LogSegment]:
        # Also the segment that ends at the recovery point: its indexes were not synced while it
        # was the active one.
        return self.segments.from_floor(self.recovery_point - 1)

    def finish_flush(self, task: FlushTask, *, done: bool = True) -> None:
        """To be called on the log's own thread after `task.run` returned, or failed."""
        self._flushes -= 1
        if done:
            self.recovery_point = max(self.recovery_point, task.end_offset)

    # --- end

    def moved_to(self, directory: str) -> None:
        """Takes note that the directory was renamed."""
        self.directory = directory
        for segment in (*self.segments, *(item.segment for item in self._condemned)):
            segment.moved_to(directory)

    def close(self) -> None:
        """Seals and flushes everything and lets go of the files."""
        self.segments.active.seal()
        _flush_all(self._not_flushed())
        self.disk.sync_directory(self.directory)
        self.recovery_point = self.next_offset
        self.close_handlers()

    def close_handlers(self) -> None:
        """Lets go of the files as they are."""
        for segment in self.segments:
            segment.close_handlers()
        for item in self._condemned:
            item.segment.close_handlers()


def _flush_all(segments: Iterable[LogSegment]) -> None:
    for segment in segments:
        segment.flush()
