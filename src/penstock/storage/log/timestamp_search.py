"""Lookup of offsets by timestamp in a log (Q5), for ListOffsets.

A search reads and decodes batches, so the event loop begins it, a worker thread runs it, and the
event loop finishes it::

    search = begin_search(log, timestamp)
    await loop.run_in_executor(pool, search.run)
    record = finish_search(log, search)

The log may be appended to, rolled, compacted or deleted while it runs: a search that misses its
files is repeated by `finish_search`.
"""

from collections.abc import Sequence

from penstock.storage.log.log import Log
from penstock.storage.segment.timestamp_scan import (
    SearchRange,
    TimestampAndOffset,
    first_record_of,
    first_record_since,
)


class TimestampSearch:
    """A search in the ranges of files that `begin_search` has chosen."""

    def __init__(
        self,
        ranges: Sequence[SearchRange],
        timestamp: int,
        start_offset: int,
        *,
        is_for_latest: bool,
    ) -> None:
        self.timestamp = timestamp
        self.is_for_latest = is_for_latest
        """Whether `timestamp` is the largest one of the log."""
        self.match: TimestampAndOffset | None = None
        self.has_failed = False
        """Whether the files could not be read or decoded."""
        self._ranges = list(ranges)
        self._start_offset = start_offset

    def run(self) -> None:
        """Searches the files, on any thread. An error is kept for `finish_search`."""
        try:
            while self._ranges and self.match is None:
                self.match = self._search(self._ranges.pop(0))
        except Exception:  # noqa: BLE001 - the log may have been truncated: it is searched again
            self.has_failed = True

    def _search(self, search_range: SearchRange) -> TimestampAndOffset | None:
        if self.is_for_latest:
            return first_record_of(search_range, self.timestamp)
        return first_record_since(search_range, self.timestamp, self._start_offset)


def begin_search(log: Log, timestamp: int | None) -> TimestampSearch | None:
    """Returns a search for the first record at or after `timestamp`.

    With None it searches for the first record that has the log's largest timestamp. Returns None
    if the log has no timestamps.
    """
    return log.guard.attempt(lambda: _begin_search(log, timestamp))


def _begin_search(log: Log, timestamp: int | None) -> TimestampSearch | None:
    is_for_latest = timestamp is None
    if timestamp is None:
        timestamp = max(segment.max_timestamp for segment in log.local.segments)
        if timestamp < 0:
            return None
    # The first segment has the record, unless that is below the log start offset.
    segments = [segment for segment in log.local.segments if segment.max_timestamp >= timestamp][:2]
    start_offset = log.log_start_offset
    ranges = [segment.search_range(timestamp, start_offset) for segment in segments]
    return TimestampSearch(ranges, timestamp, start_offset, is_for_latest=is_for_latest)


def finish_search(log: Log, search: TimestampSearch) -> TimestampAndOffset | None:
    """Returns the record that `search` has found, or None if there is none.

    Searches again on this thread if the record is not in the log any more.
    """
    match = search.match
    if match is not None and log.log_start_offset <= match.offset < log.log_end_offset:
        return match
    if search.is_for_latest:
        return offset_of_max_timestamp(log)
    return offset_for_timestamp(log, search.timestamp)


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampAndOffset | None:
    """Returns the first record at or after `timestamp`, or None. Reads on this thread."""
    return log.guard.attempt(lambda: _find_timestamp(log, timestamp))


def _find_timestamp(log: Log, timestamp: int) -> TimestampAndOffset | None:
    for segment in log.local.segments:
        if segment.largest_timestamp >= timestamp:
            match = segment.find_timestamp(timestamp, log.log_start_offset)
            if match is not None:
                return match
    return None


def offset_of_max_timestamp(log: Log) -> TimestampAndOffset | None:
    """Returns the first record that has the log's largest timestamp. Reads on this thread."""
    return log.guard.attempt(lambda: _find_max_timestamp(log))


def _find_max_timestamp(log: Log) -> TimestampAndOffset | None:
    latest_segment = max(log.local.segments, key=lambda segment: segment.max_timestamp)
    return latest_segment.find_max_timestamp()
