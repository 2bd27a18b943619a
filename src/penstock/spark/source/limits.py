"""The size of micro-batches: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`.

Partitions get exactly the shares that they get from Spark's own Kafka source.
"""

import math
from collections.abc import Mapping

from penstock.core.ids import TopicPartition


def limit_ends(
    limit: int, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns the end offsets of a batch of about `limit` offsets.

    Each partition gets a share in proportion to its unread offsets. A share below one is rounded
    up, all others down: no partition starves, and the sum may exceed the limit by as many offsets
    as there are partitions with such a share.
    """
    sizes = {
        partition: last - begin[partition] for partition, last in end.items() if partition in begin
    }
    total = sum(size for size in sizes.values() if size > 0)
    ends = dict(end)
    for partition, size in sizes.items():
        if size > 0:
            share = limit * (size / total)
            count = math.ceil(share) if share < 1 else math.floor(share)
            ends[partition] = min(end[partition], begin[partition] + count)
    return ends


class Delay:
    """Delays a batch until there are enough offsets, or until the maximum delay is over."""

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
        """Whether to delay the batch; the first batch is never delayed."""
        waited = math.inf if self._last_ms is None else now_ms - self._last_ms
        unread = sum(last - begin.get(partition, 0) for partition, last in end.items())
        if waited < self._max_delay_ms and unread < self._at_least:
            return True
        self._last_ms = now_ms
        return False
