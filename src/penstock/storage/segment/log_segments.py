"""The segments of a log, sorted by base offset."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from penstock.storage.segment.log_segment import LogSegment


class LogSegments:
    """The segments of a log. The last one is the active one, which is appended to."""

    def __init__(self) -> None:
        self._base_offsets: list[int] = []
        self._segments: list[LogSegment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(tuple(self._segments))

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._base_offsets)

    @property
    def size(self) -> int:
        """The number of bytes in all `.log` files."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: LogSegment) -> None:
        index = bisect_left(self._base_offsets, segment.base_offset)
        if index < len(self._base_offsets) and self._base_offsets[index] == segment.base_offset:
            self._segments[index] = segment
        else:
            self._base_offsets.insert(index, segment.base_offset)
            self._segments.insert(index, segment)

    def remove(self, base_offset: int) -> LogSegment:
        index = self._base_offsets.index(base_offset)
        del self._base_offsets[index]
        return self._segments.pop(index)

    def floor(self, offset: int) -> LogSegment | None:
        """Returns the segment with the largest base offset at or below `offset`."""
        index = bisect_right(self._base_offsets, offset) - 1
        return self._segments[index] if index >= 0 else None

    def higher(self, offset: int) -> LogSegment | None:
        """Returns the segment with the smallest base offset above `offset`."""
        index = bisect_right(self._base_offsets, offset)
        return self._segments[index] if index < len(self._segments) else None

    def from_floor(self, offset: int) -> list[LogSegment]:
        """Returns the segment that would contain `offset`, and all later ones."""
        return self._segments[max(bisect_right(self._base_offsets, offset) - 1, 0) :]

    def between(self, start: int, end: int) -> list[LogSegment]:
        """Returns the segments that can contain offsets of `start <= offset < end`."""
        return [segment for segment in self.from_floor(start) if segment.base_offset < end]
