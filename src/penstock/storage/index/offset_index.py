"""The offset index: maps an offset to the position of a batch at or before it.

An entry has 8 bytes: the offset relative to the segment's base offset, and the position in the
`.log` file, both int32. The offset is the last one of the batch that starts at the position.
"""

from collections.abc import Sequence
from struct import Struct, pack_into
from struct import error as struct_error
from typing import ClassVar, NamedTuple

from penstock.storage.disk import Disk
from penstock.storage.index.mapped_index import CorruptIndexError, InvalidOffsetError, MappedIndex

_ENTRY = Struct(">ii")
_pack_entry = _ENTRY.pack_into
_unpack_entry = _ENTRY.unpack_from
_unpack_int = Struct(">i").unpack_from
_OFFSET_AT = 0
_POSITION_AT = 4


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class OffsetIndex(MappedIndex):
    """The `.index` file of one segment."""

    entry_size: ClassVar[int] = _ENTRY.size

    __slots__ = ("_last_offset",)

    def __init__(
        self, disk: Disk, path: str, base_offset: int, max_bytes: int, *, writable: bool = True
    ) -> None:
        super().__init__(disk, path, base_offset, max_bytes, writable=writable)
        # Below the base offset while the index is empty, so that one comparison in append()
        # refuses offsets that do not increase and those below the base. None: not read yet.
        self._last_offset: int | None = None if self._entries else base_offset - 1

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset if the index is empty."""
        if not self._entries:
            return self.base_offset
        if self._last_offset is None:
            self._last_offset = self.entry(self._entries - 1).offset
        return self._last_offset

    def append(self, offset: int, position: int) -> None:
        """Adds an entry. `offset` must be larger than the last one."""
        last = self._last_offset
        if offset <= (self.last_offset if last is None else last):
            raise InvalidOffsetError(
                f"offset {offset} is not after {self.last_offset}, the last one in "
                f"{self.path} (base offset {self.base_offset})"
            )
        at = self._entries * 8
        # Read in this order: another thread may unmap the file, which resets both.
        buffer = self._buffer
        if at + 8 > self._reserved:
            buffer = self._reserve(at + 8)
        try:
            _pack_entry(buffer, at, offset - self.base_offset, position)
        except struct_error:
            raise InvalidOffsetError(
                f"offset {offset} or position {position} is out of range for {self.path}"
            ) from None
        self._entries += 1
        self._last_offset = offset
        self.is_used = self.is_unsynced = True
        if self._buffer is not buffer:
            self._map()

    def extend(self, offsets: Sequence[int], positions: Sequence[int]) -> None:
        """Adds entries like `append`, with increasing offsets, in one write."""
        last = self._last_offset
        if offsets[0] <= (self.last_offset if last is None else last):
            raise InvalidOffsetError(
                f"offset {offsets[0]} is not after {self.last_offset}, the last one in "
                f"{self.path} (base offset {self.base_offset})"
            )
        base_offset = self.base_offset
        numbers: list[int] = []
        for offset, position in zip(offsets, positions, strict=True):
            numbers += offset - base_offset, position
        at = self._entries * 8
        end = at + 4 * len(numbers)
        # Read in this order: another thread may unmap the file, which resets both.
        buffer = self._buffer
        if end > self._reserved:
            buffer = self._reserve(end)
        try:
            pack_into(f">{len(numbers)}i", buffer, at, *numbers)
        except struct_error:
            raise InvalidOffsetError(
                f"an offset up to {offsets[-1]} or a position up to {positions[-1]} is out of "
                f"range for {self.path}"
            ) from None
        self._entries += len(offsets)
        self._last_offset = offsets[-1]
        self.is_used = self.is_unsynced = True
        if self._buffer is not buffer:
            self._map()

    def lookup(self, offset: int) -> OffsetPosition:
        """Returns the last entry at or before the offset, or (base offset, 0)."""
        count = self._count_up_to(offset - self.base_offset, _unpack_int, _OFFSET_AT)
        if count == 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = _unpack_entry(self._buffer or self._map(), count * 8 - 8)
        return OffsetPosition(self.base_offset + relative, position)

    def lookup_position(self, position: int) -> OffsetPosition:
        """Returns the last entry at or before a position of the log, or (base offset, 0)."""
        count = self._count_up_to(position, _unpack_int, _POSITION_AT)
        return self.entry(count - 1) if count else OffsetPosition(self.base_offset, 0)

    def fetch_upper_bound(self, position: int, size: int) -> OffsetPosition | None:
        """Returns the first entry after a fetch of `size` bytes from `position`, or None."""
        count = self._count_up_to(position + size - 1, _unpack_int, _POSITION_AT)
        return self.entry(count) if count < self._entries else None

    def entry(self, n: int) -> OffsetPosition:
        if not 0 <= n < self._entries:
            raise IndexError(f"entry {n} of {self.path}, which has {self._entries}")
        relative, position = _unpack_entry(self._buffer or self._map(), n * 8)
        return OffsetPosition(self.base_offset + relative, position)

    def truncate_to(self, offset: int) -> None:
        self._truncate_to_entries(
            self._count_up_to(offset - self.base_offset - 1, _unpack_int, _OFFSET_AT)
        )

    def sanity_check(self) -> None:
        super().sanity_check()
        if self._entries and self.last_offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.path} ends with offset {self.last_offset}, "
                f"below its base offset {self.base_offset}"
            )

    def _truncate_to_entries(self, entries: int) -> None:
        self._entries = entries
        self._last_offset = None if entries else self.base_offset - 1
