"""The leader epochs of a partition and where each starts (R4): `leader-epoch-checkpoint`.

A returning follower asks for the end of its last epoch and truncates to it. So after a crash no
epoch may be lacking that has records in the log; one too many does no harm, because loading a log
cuts the cache to the log's start and end. The file is written with the next flush, before the
recovery point moves: what lies above that is read again after a crash, and recovery finds in the
batches which epochs they have.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.ids import NO_LEADER_EPOCH, NO_OFFSET
from penstock.storage.checkpoint.checkpoint_files import (
    EpochEntry,
    decode_leader_epochs,
    encode_leader_epochs,
)
from penstock.storage.checkpoint.latest_files import FileWrite, LatestFiles
from penstock.storage.disk import Disk

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
    """Epochs and start offsets, both increasing; loaded from the file in `directory`."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.directory = directory
        self.is_stale = False
        """Whether the file must be written with the next flush."""
        self._file = LatestFiles(disk)
        self._entries: list[EpochEntry] = []
        if disk.exists(self.path):
            for entry in decode_leader_epochs(disk.read_file(self.path), self.path):
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
        """Takes note that an epoch starts at an offset; entries that contradict it go.

        The epoch is put into memory first and is durable on return: the caller appends the
        epoch's first batch only after that, so no crash leaves records whose epoch the file
        lacks. Where the write fails, the error takes the partition offline, and what is in
        memory is not asked again.
        """
        if self._put(EpochEntry(epoch, start_offset)):
            self.flush()

    def assign_unsynced(self, epoch: int, start_offset: int) -> None:
        """`assign` without a wait: the epoch is durable with the next flush of the log."""
        if self._put(EpochEntry(epoch, start_offset)):
            self.is_stale = True

    def begin_write(self) -> FileWrite:
        """The file as it should be now, to be written on any thread."""
        self.is_stale = False
        return self._file.take({self.path: encode_leader_epochs(self._entries)})

    def assign_all(self, entries: Iterable[EpochEntry]) -> None:
        """As `assign` for each, with one write."""
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
        """The largest epoch known up to `epoch`, and where it ends; (-1, -1) where unknown.

        An epoch older than all that are known ends where the first known one starts: its records
        are gone from the log, and a follower goes on from there.
        """
        if epoch == NO_LEADER_EPOCH:
            return _UNDEFINED
        if epoch == self.latest_epoch:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(self._entries, epoch, key=_epoch_of)
        if higher == len(self._entries):
            return _UNDEFINED
        end_offset = self._entries[higher].start_offset
        return EpochEndOffset(self._entries[higher - 1].epoch if higher else epoch, end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that holds the offset; None below the first one."""
        after = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[after - 1].epoch if after else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that start at the offset or above, in memory.

        The file must be written before anything is appended in their place: an epoch that the
        file has keeps recovery from looking for lower ones in the batches.
        """
        if end_offset < 0:
            return
        kept = len(self._entries)
        while kept and self._entries[kept - 1].start_offset >= end_offset:
            kept -= 1
        self._replace(self._entries[:kept])

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs that end at or before the offset; the one that holds it starts there.

        In memory: the file follows with the next flush, or when the log is closed. A crash before
        that leaves epochs too many, which the next load cuts off in the same way, by the log start
        offset that it finds. That one may be lower, too, if it was not stored either.
        """
        after = bisect_right(self._entries, start_offset, key=_start_of)
        if after:
            first = EpochEntry(self._entries[after - 1].epoch, start_offset)
            self._replace([first, *self._entries[after:]])

    def replace_all(self, entries: Iterable[EpochEntry]) -> None:
        """Takes over the epochs of a log with the same records; the next flush stores them."""
        self._replace(list(entries))

    def clear(self) -> None:
        """Forgets all epochs, in memory. See `truncate_from_end`."""
        self._replace([])

    def flush(self) -> None:
        """Writes the file, here and now; a crash leaves the old or the new one."""
        self.begin_write().write()

    def _replace(self, entries: list[EpochEntry]) -> None:
        if entries != self._entries:
            self._entries = entries
            self.is_stale = True


def _epoch_of(entry: EpochEntry) -> int:
    return entry.epoch


def _start_of(entry: EpochEntry) -> int:
    return entry.start_offset
