"""The leader epochs of a partition and their start offsets (R4): `leader-epoch-checkpoint`.

A follower that returns requests the end offset of its last epoch and truncates to it. After a
crash, every epoch that has records in the log must therefore be known. An additional one does no
harm, because loading a log truncates the cache to the log's start and end. The file is written
with the next flush, before the recovery point advances: recovery reads the batches above the
recovery point and finds their epochs.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.ids import NO_LEADER_EPOCH, NO_OFFSET
from penstock.storage.checkpoint.checkpoint_files import (
    CorruptCheckpointError,
    EpochEntry,
    decode_leader_epochs,
    encode_leader_epochs,
)
from penstock.storage.checkpoint.latest_files import FileWrite, LatestFiles
from penstock.storage.disk import Disk, write_temporary

logger = logging.getLogger(__name__)

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

__all__ = [
    "LEADER_EPOCH_CHECKPOINT",
    "EpochEndOffset",
    "EpochEntry",
    "LeaderEpochCache",
]


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


_UNDEFINED = EpochEndOffset(NO_LEADER_EPOCH, NO_OFFSET)


class LeaderEpochCache:
    """Epochs with start offsets, both increasing; loaded from the file in `directory`.

    An invalid file is ignored like a missing one: loading the log finds its epochs in the batches.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self.directory = directory
        self.is_stale = False
        """Whether the file must be written with the next flush."""
        self._disk = disk
        self._file = LatestFiles(disk)
        self._entries: list[EpochEntry] = []
        if disk.exists(self.path):
            try:
                entries = decode_leader_epochs(disk.read_file(self.path), self.path)
            except CorruptCheckpointError as error:
                logger.error("%s. The epochs are read from the batches", error.message)
                self.is_stale = True
                entries = []
            for entry in entries:
                self._put(entry)

    @property
    def path(self) -> str:
        return f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"

    def entries(self) -> list[EpochEntry]:
        return list(self._entries)

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def latest_epoch(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Adds an epoch with its start offset and writes the file.

        Entries that contradict it are dropped. The epoch is durable on return, so that no crash
        leaves records without their epoch. An `OSError` takes the partition offline.
        """
        if self._put(EpochEntry(epoch, start_offset)):
            self.flush()

    def assign_unsynced(self, epoch: int, start_offset: int) -> None:
        """Adds an epoch like `assign`, but the next flush of the log makes it durable."""
        if self._put(EpochEntry(epoch, start_offset)):
            self.is_stale = True

    def create_unsynced(self, epoch: int) -> None:
        """Writes the file of a new log, whose records begin in `epoch`.

        Call `replace_by_temporary` then.
        """
        self._put(EpochEntry(epoch, 0))
        write_temporary(self._disk, self.path, encode_leader_epochs(self._entries))

    def begin_write(self) -> FileWrite:
        """Returns the write of the current entries, for any thread."""
        self.is_stale = False
        return self._file.begin_write({self.path: encode_leader_epochs(self._entries)})

    def assign_all(self, entries: Iterable[EpochEntry]) -> None:
        """Adds several epochs like `assign`, with one write."""
        entries = list(entries)
        for entry in entries:
            self._put(entry)
        if entries:
            self.flush()

    def _put(self, entry: EpochEntry) -> bool:
        if entry.epoch < 0 or entry.start_offset < 0:
            raise ValueError(f"leader epoch {entry.epoch} cannot start at {entry.start_offset}")
        latest = self.latest_entry
        if latest and latest.epoch == entry.epoch and latest.start_offset <= entry.start_offset:
            return False
        while self._entries and (
            self._entries[-1].epoch >= entry.epoch
            or self._entries[-1].start_offset >= entry.start_offset
        ):
            self._entries.pop()
        self._entries.append(entry)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Returns the largest known epoch up to `epoch` and its end offset, or (-1, -1).

        An epoch older than all known ones ends where the first known one starts: its records have
        been deleted, and a follower continues from there.
        """
        if epoch == NO_LEADER_EPOCH:
            return _UNDEFINED
        if epoch == self.latest_epoch:
            return EpochEndOffset(epoch, log_end_offset)
        next_index = bisect_right(self._entries, epoch, key=_epoch_of)
        if next_index == len(self._entries):
            return _UNDEFINED
        end_offset = self._entries[next_index].start_offset
        return EpochEndOffset(
            self._entries[next_index - 1].epoch if next_index else epoch, end_offset
        )

    def epoch_for_offset(self, offset: int) -> int | None:
        """Returns the epoch of the record at the offset; None below the first epoch."""
        after = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[after - 1].epoch if after else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that start at or above the offset, in memory.

        The file must be written before anything is appended: recovery does not look for epochs
        in the batches that are lower than the last one in the file.
        """
        if end_offset < 0:
            return
        count = len(self._entries)
        while count and self._entries[count - 1].start_offset >= end_offset:
            count -= 1
        self._replace(self._entries[:count])

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs that end at or before the offset, in memory.

        The epoch that contains the offset then starts there. The file is written with the next
        flush or when the log is closed. After a crash before that, the next load truncates the
        entries in the same way, to the log start offset that it reads, which may be lower.
        """
        after = bisect_right(self._entries, start_offset, key=_start_of)
        if after:
            first = EpochEntry(self._entries[after - 1].epoch, start_offset)
            self._replace([first, *self._entries[after:]])

    def replace_all(self, entries: Iterable[EpochEntry]) -> None:
        """Replaces all entries, in memory; the next flush writes the file."""
        self._replace(list(entries))

    def clear(self) -> None:
        """Drops all epochs, in memory. See `truncate_from_end`."""
        self._replace([])

    def flush(self) -> None:
        """Writes the file on this thread; a crash leaves the old or the new one."""
        self.begin_write().write()

    def _replace(self, entries: list[EpochEntry]) -> None:
        if entries != self._entries:
            self._entries = entries
            self.is_stale = True


def _epoch_of(entry: EpochEntry) -> int:
    return entry.epoch


def _start_of(entry: EpochEntry) -> int:
    return entry.start_offset
