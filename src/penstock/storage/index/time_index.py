"""The time index: maps a timestamp to an offset up to which no record is later.

An entry has 12 bytes: a timestamp (int64) and an offset relative to the segment's base offset
(int32). No record up to that offset has a larger timestamp. Timestamps increase.
"""

from struct import Struct
from struct import error as struct_error
from typing import ClassVar, NamedTuple

from penstock.core.ids import NO_TIMESTAMP
from penstock.storage.disk import Disk
from penstock.storage.index.mapped_index import (
    MAX_RELATIVE_OFFSET,
    CorruptIndexError,
    InvalidOffsetError,
    MappedIndex,
)

_ENTRY = Struct(">qi")
_pack_entry = _ENTRY.pack_into
_unpack_entry = _ENTRY.unpack_from
_unpack_timestamp = Struct(">q").unpack_from
_unpack_offset = Struct(">i").unpack_from
_TIMESTAMP_AT = 0
_OFFSET_AT = 8


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(MappedIndex):
    """The `.timeindex` file of one segment."""

    entry_size: ClassVar[int] = _ENTRY.size

    __slots__ = ("_last_offset", "_last_timestamp")

    def __init__(
        self, disk: Disk, path: str, base_offset: int, max_bytes: int, *, writable: bool = True
    ) -> None:
        super().__init__(disk, path, base_offset, max_bytes, writable=writable)
        self._last_timestamp: int | None = None
        self._last_offset = base_offset

    @property
    def is_full(self) -> bool:
        """The last slot is reserved for the entry that is added when the segment is rolled."""
        return self._entries >= self._max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if the index is empty."""
        if self._last_timestamp is None:
            last = TimestampOffset(NO_TIMESTAMP, self.base_offset)
            if self._entries:
                last = self.entry(self._entries - 1)
            self._last_timestamp, self._last_offset = last
        return TimestampOffset(self._last_timestamp, self._last_offset)

    @property
    def last_offset(self) -> int:
        return self.last_entry.offset

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Adds an entry if the timestamp is larger than the last one.

        Neither timestamp nor offset may be smaller than in the last entry. `skip_full_check` is
        for rolling and closing a segment: that entry may use the last slot.
        """
        last_timestamp = self._last_timestamp
        if last_timestamp is None:
            last_timestamp = self.last_entry.timestamp
        entries = self._entries
        if entries:
            if offset < self._last_offset:
                raise InvalidOffsetError(
                    f"offset {offset} is before {self._last_offset}, the last one in {self.path}"
                )
            if timestamp < last_timestamp:
                raise ValueError(
                    f"timestamp {timestamp} is below {last_timestamp}, the last one in {self.path}"
                )
        if not skip_full_check and self.is_full:
            raise ValueError(f"{self.path} is full: it has {entries} entries")
        if timestamp <= last_timestamp:
            return
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise InvalidOffsetError(
                f"offset {offset} is out of range for {self.path} (base offset {self.base_offset})"
            )
        at = entries * 12
        # Read in this order: another thread may unmap the file, which resets both.
        buffer = self._buffer
        if at + 12 > self._reserved:
            buffer = self._reserve(at + 12, may_exceed=skip_full_check)
        try:
            _pack_entry(buffer, at, timestamp, relative)
        except struct_error:
            raise ValueError(f"timestamp {timestamp} is not a 64-bit number") from None
        self._entries = entries + 1
        self._last_timestamp = timestamp
        self._last_offset = offset
        self.is_used = self.is_unsynced = True
        if self._buffer is not buffer:
            self._map()

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Returns the last entry at or before the timestamp, or (-1, base offset)."""
        count = self._count_up_to(timestamp, _unpack_timestamp, _TIMESTAMP_AT)
        if count == 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self.entry(count - 1)

    def entry(self, n: int) -> TimestampOffset:
        if not 0 <= n < self._entries:
            raise IndexError(f"entry {n} of {self.path}, which has {self._entries}")
        timestamp, relative = _unpack_entry(self._buffer or self._map(), n * 12)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def truncate_to(self, offset: int) -> None:
        self._truncate_to_entries(
            self._count_up_to(offset - self.base_offset - 1, _unpack_offset, _OFFSET_AT)
        )

    def sanity_check(self) -> None:
        super().sanity_check()
        if not self._entries:
            return
        first = self.entry(0).timestamp
        last = self.last_entry
        if last.timestamp < first:
            raise CorruptIndexError(
                f"{self.path} ends with timestamp {last.timestamp}, below its first one {first}"
            )
        if last.offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.path} ends with offset {last.offset}, "
                f"below its base offset {self.base_offset}"
            )

    def _truncate_to_entries(self, entries: int) -> None:
        self._entries = entries
        self._last_timestamp = None
