"""Positions of the batches appended last, where consumers that keep up continue to read."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from penstock.storage.segment.batch_scan import BatchLocation

MIN_BATCHES = 64
"""At least this many of the last batches are known, at most twice as many."""


class RecentBatches:
    """Positions of batches by base offset, looked up without reading the file.

    The numbers are in arrays: for 1,000 partitions, dicts of headers would take 40 MB, more than
    the processor's caches, and make appends to all of them 5 % slower.
    """

    __slots__ = ("_base_offsets", "_last_offsets", "_positions")

    def __init__(self) -> None:
        self._base_offsets = array("q")
        self._last_offsets = array("q")
        self._positions = array("q")

    def add(self, base_offset: int, last_offset: int, position: int) -> None:
        """Adds the batch at this position, directly after the one added before."""
        base_offsets = self._base_offsets
        base_offsets.append(base_offset)
        self._last_offsets.append(last_offset)
        self._positions.append(position)
        if len(base_offsets) >= 2 * MIN_BATCHES:
            self._drop_oldest()

    def extend(
        self, base_offsets: "array[int]", last_offsets: "array[int]", positions: Iterable[int]
    ) -> None:
        """Adds several batches, as `add` does."""
        self._base_offsets.extend(base_offsets)
        self._last_offsets.extend(last_offsets)
        self._positions.extend(positions)
        while len(self._base_offsets) >= 2 * MIN_BATCHES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        for numbers in (self._base_offsets, self._last_offsets, self._positions):
            del numbers[:MIN_BATCHES]

    def find(self, base_offset: int, end: int) -> BatchLocation | None:
        """Returns the batch with this base offset, if known; `end` is the end of the last batch."""
        base_offsets = self._base_offsets
        index = bisect_left(base_offsets, base_offset)
        if index == len(base_offsets) or base_offsets[index] != base_offset:
            return None
        position = self._positions[index]
        if index + 1 < len(base_offsets):
            end = self._positions[index + 1]
        return BatchLocation(position, end - position, self._last_offsets[index])

    def __contains__(self, base_offset: int) -> bool:
        base_offsets = self._base_offsets
        index = bisect_left(base_offsets, base_offset)
        return index < len(base_offsets) and base_offsets[index] == base_offset

    def clear(self) -> None:
        for numbers in (self._base_offsets, self._last_offsets, self._positions):
            del numbers[:]
