"""The segments of a log in the order of their base offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from penstock.storage.segment.log_segment import LogSegment


class LogSegments:
    """LogSegments by base offset. The last one is the active one: the only one that grows."""

    def __init__(self) -> None:
        self._bases: list[int] = []
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
        return list(self._bases)

    @property
    def size(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self._segments)

    def add(self, segment: LogSegment) -> None:
        at = bisect_left(self._bases, segment.base_offset)
        if at < len(self._bases) and self._bases[at] == segment.base_offset:
            self._segments[at] = segment
        else:
            self._bases.insert(at, segment.base_offset)
            self._segments.insert(at, segment)

    def remove(self, base_offset: int) -> LogSegment:
        at = self._bases.index(base_offset)
        del self._bases[at]
        return self._segments.pop(at)

    def floor(self, offset: int) -> LogSegment | None:
        """The segment with the greatest base offset at or below `offset`."""
        at = bisect_right(self._bases, offset) - 1
        return self._segments[at] if at >= 0 else None

    def higher(self, offset: int) -> LogSegment | None:
        """The segment with the least base offset above `offset`."""
        at = bisect_right(self._bases, offset)
        return self._segments[at] if at < len(self._segments) else None

    def from_floor(self, offset: int) -> list[LogSegment]:
        """The segment that would hold `offset`, and all after it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def between(self, start: int, end: int) -> list[LogSegment]:
        """The segments that can hold offsets of `start <= offset < end`."""
        return [segment for segment in self.from_floor(start) if segment.base_offset < end]
