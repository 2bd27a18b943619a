"""Where the batches lie that were appended lately: consumers that keep up go on reading there."""

from array import array
from bisect import bisect_left

from penstock.storage.segment.batch_scan import BatchLocation

LEAST = 64
"""As many of the last batches are known at least; twice as many at most."""


class RecentBatches:
    """Places of batches by their base offset, without the file.

    Plain numbers in arrays: for 1,000 partitions a dict of headers has 40 MB, more than the
    processor's caches hold, and appends to all of them in turn are 5 % slower.
    """

    __slots__ = ("_bases", "_lasts", "_positions")

    def __init__(self) -> None:
        self._bases = array("q")
        self._lasts = array("q")
        self._positions = array("q")

    def add(self, base_offset: int, last_offset: int, position: int) -> None:
        """A batch is at this position, right behind the one added before."""
        bases = self._bases
        bases.append(base_offset)
        self._lasts.append(last_offset)
        self._positions.append(position)
        if len(bases) >= 2 * LEAST:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        for numbers in (self._bases, self._lasts, self._positions):
            del numbers[:LEAST]

    def find(self, base_offset: int, end: int) -> BatchLocation | None:
        """The batch that starts with this offset, if it is known; `end` is where the last ends."""
        bases = self._bases
        at = bisect_left(bases, base_offset)
        if at == len(bases) or bases[at] != base_offset:
            return None
        position = self._positions[at]
        if at + 1 < len(bases):
            end = self._positions[at + 1]
        return BatchLocation(position, end - position, self._lasts[at])

    def __contains__(self, base_offset: int) -> bool:
        bases = self._bases
        at = bisect_left(bases, base_offset)
        return at < len(bases) and bases[at] == base_offset

    def clear(self) -> None:
        for numbers in (self._bases, self._lasts, self._positions):
            del numbers[:]
