"""Loading of old records into the page cache before a fetch reads them.

Consumers that keep up read records that were just appended. A consumer that starts from the
beginning reads records that are no longer in the page cache, and the disk would block the event
loop, which serves all other clients. The Fetch handler therefore runs a `ReadAhead` on a worker
thread first.
"""

from penstock.storage.file_cache import CachedFile
from penstock.storage.log.log import Log

_BLOCK_BYTES = 1024 * 1024


class ReadAhead:
    """Reads a range of a segment and discards the bytes."""

    def __init__(self, file: CachedFile, position: int, end: int) -> None:
        self.file = file
        self._position = position
        self._end = end

    @classmethod
    def of(cls, log: Log, offset: int, max_bytes: int) -> "ReadAhead | None":
        """Returns the read-ahead for `log.read(offset, max_bytes, …)`.

        Returns None if the records are in memory already, or if there are none. Raises
        KafkaStorageError, as the read would.
        """
        if log.guard.is_recovering:
            return None
        return log.guard.attempt(lambda: cls._find(log, offset, max_bytes))

    @classmethod
    def _find(cls, log: Log, offset: int, max_bytes: int) -> "ReadAhead | None":
        if offset >= log.local.next_offset:
            return None
        segment = log.local.segments.floor(offset)
        if segment is None or segment.is_recent(offset):
            return None
        position = segment.indexes.offset_index.lookup(offset).position
        end = min(position + max(max_bytes, 1), segment.size)
        if end <= position or segment.file.is_cached(position, end - position):
            return None
        return cls(segment.file, position, end)

    def run(self) -> None:
        """Reads the range, on any thread. Raises the `OSError` that the read raises."""
        for position in range(self._position, self._end, _BLOCK_BYTES):
            self.file.read_at(position, min(_BLOCK_BYTES, self._end - position))
