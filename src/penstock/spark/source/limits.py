"""How much of what is there a micro-batch takes: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`.

The shares are those of Spark's own Kafka source, to the offset.
"""

import math
from collections.abc import Mapping

from penstock.core.ids import TopicPartition


def limit_ends(
    limit: int, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Ends of a batch of about `limit` offsets, shared out by what each partition has to read.

    A share below one is rounded up, all others down: no partition starves, and the sum may pass the
    limit by as many offsets as there are partitions with such a share.
    """
    sizes = {each: end[each] - begin[each] for each in end if each in begin}
    total = sum(size for size in sizes.values() if size > 0)
    found = dict(end)
    for each, size in sizes.items():
        if size > 0:
            share = limit * (size / total)
            taken = math.ceil(share) if share < 1 else math.floor(share)
            found[each] = min(end[each], begin[each] + taken)
    return found


class Delay:
    """Holds a batch back until there are enough offsets, but not for ever."""

    def __init__(self, at_least: int, max_delay_ms: int) -> None:
        self._at_least = at_least
        self._max_delay_ms = max_delay_ms
        self._last_ms: float | None = None

    def should_wait(
        self,
        begin: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        now_ms: float,
    ) -> bool:
        """Whether to wait; the first batch never does."""
        waited = math.inf if self._last_ms is None else now_ms - self._last_ms
        there = sum(end[each] - begin.get(each, 0) for each in end)
        if waited < self._max_delay_ms and there < self._at_least:
            return True
        self._last_ms = now_ms
        return False
