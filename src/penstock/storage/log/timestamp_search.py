"""Searches for records by their timestamps (Q5), which read and decode batches.

`Log.offset_for_timestamp` does it here and now. A `TimestampSearch` does it on another thread,
while the log is appended to, rolled, compacted or deleted: it has handles of its own.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.records.read import read_records
from penstock.storage.disk import File
from penstock.storage.segment.batch_scan import scan_batches


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_record_since(
    file: File, position: int, end: int, timestamp: int, start_offset: int
) -> TimestampAndOffset | None:
    """The first record from `position` on that is not before `timestamp` and `start_offset`."""
    for found in scan_batches(file, position, end):
        header = found.header
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in read_records(found.data, found.start):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                epoch = header.partition_leader_epoch
                return TimestampAndOffset(record.timestamp, record.offset, epoch)
    return None


def first_record_of(
    file: File, position: int, end: int, timestamp: int
) -> TimestampAndOffset | None:
    """The first record that has `timestamp`, in a batch that has no later one."""
    for found in scan_batches(file, position, end):
        if found.header.max_timestamp == timestamp:
            for record in read_records(found.data, found.start):
                if record.timestamp == timestamp:
                    epoch = found.header.partition_leader_epoch
                    return TimestampAndOffset(timestamp, record.offset, epoch)
    return None


class SearchedFile(NamedTuple):
    """Where to look in a segment."""

    file: File
    position: int
    end: int


class TimestampSearch:
    """A search in some files. `run` it on any thread, then hand it to `Log.finish_search`."""

    def __init__(
        self, files: Sequence[SearchedFile], timestamp: int, start_offset: int, *, latest: bool
    ) -> None:
        self.timestamp = timestamp
        self.latest = latest
        """Whether `timestamp` is the log's largest one."""
        self.found: TimestampAndOffset | None = None
        self.failed = False
        """Whether the files could not be read, or not be understood."""
        self._files = list(files)
        self._start_offset = start_offset

    def run(self) -> None:
        try:
            while self._files and self.found is None:
                each = self._files.pop(0)
                try:
                    self.found = self._look(each)
                finally:
                    each.file.close()
        except Exception:  # noqa: BLE001 - the log may have been cut: it is asked again
            self.failed = True
        finally:
            self.close()

    def _look(self, each: SearchedFile) -> TimestampAndOffset | None:
        file, position, end = each
        if self.latest:
            return first_record_of(file, position, end, self.timestamp)
        return first_record_since(file, position, end, self.timestamp, self._start_offset)

    def close(self) -> None:
        """Lets go of the files; needed only where `run` is never called."""
        while self._files:
            self._files.pop().file.close()
