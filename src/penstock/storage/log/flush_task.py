"""A flush of a log, which runs on a worker thread while the log is appended to."""

import errno
from collections.abc import Callable, Iterable, Sequence

from penstock.storage.disk import Disk
from penstock.storage.disk_errors import is_lack_of_room
from penstock.storage.segment.log_segment import LogSegment


class FlushTask:
    """The syncs that make a log durable up to `end_offset`.

    Sealed segments are synced with their indexes. Of the active segment only the `.log` file is
    synced, because recovery rebuilds its indexes anyway.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        sealed_segments: Sequence[LogSegment],
        active_segment: LogSegment,
        end_offset: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._sealed_segments = sealed_segments
        self._active_segment = active_segment
        self.end_offset = end_offset
        """The recovery point once `run` has returned."""
        self.additional_syncs: list[Callable[[], None]] = []
        """Syncs that come first, such as those of producer snapshots."""
        self.has_epochs = False
        """Whether the leader epochs are among `additional_syncs`."""
        self.snapshots: list[int] = []
        """The offsets of the producer snapshots among `additional_syncs`."""
        self._has_begun_records = False

    def run(self) -> None:
        """Syncs the files. After any exception the flush has failed; changes nothing in memory."""
        for sync in self.additional_syncs:
            sync()
        self._has_begun_records = True
        flush_segments(self._sealed_segments)
        self._active_segment.file.sync()
        self._disk.sync_directory(self._directory)

    def is_repeatable_after(self, error: OSError) -> bool:
        """Returns whether another flush may succeed after this error of `run`.

        Without descriptors nothing was synced. Without space, the sync of a `.log` file may have
        lost records that the kernel could not write, and reports that only once.
        """
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and self._has_begun_records:
            return False
        return is_lack_of_room(error)


def flush_segments(segments: Iterable[LogSegment]) -> None:
    """Makes the segments durable with their indexes."""
    for segment in segments:
        segment.flush()
