"""Brings old records into memory before they are read, so that the log's thread never waits.

Consumers that keep up read what was just appended. One that starts over reads what is long out
of the page cache: the disk would stop the thread that serves all the others.
"""

from penstock.storage.disk import File
from penstock.storage.log.log import Log

_BLOCK = 1024 * 1024


class ReadAhead:
    """Reads a part of a segment on any thread, through a handle of its own, and forgets it."""

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file = file
        self._position = position
        self._end = end

    @classmethod
    def of(cls, log: Log, offset: int, max_bytes: int) -> "ReadAhead | None":
        """What is worth reading ahead of `log.read(offset, max_bytes, …)`.

        None where the records are in memory already, or where there are none.
        """
        segment = log.local.segments.floor(offset)
        if segment is None or segment.is_recent(offset):
            return None
        position = segment.offset_index.lookup(offset).position
        end = min(position + max(max_bytes, 1), segment.size)
        if end <= position or segment.file.is_cached(position, end - position):
            return None
        return cls(log.local.disk.open(segment.log_path), position, end)

    def run(self) -> None:
        """After this `log.read` finds everything in memory; an `OSError` it meets itself."""
        try:
            for position in range(self._position, self._end, _BLOCK):
                self._file.read_at(position, min(_BLOCK, self._end - position))
        finally:
            self._file.close()
