"""Throttled replication: the bytes per second that throttled replicas may take (Kafka's quota).

A broker has one `ReplicationQuota` as a leader and one as a follower. The rate comes from
`leader.replication.throttled.rate` and `follower.replication.throttled.rate`, the replicas from the
topic's `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`.
Traffic of throttled replicas is recorded even when the quota is exceeded; the caller leaves out
throttled partitions until the rate has fallen.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from penstock.core.ids import TopicPartition

UNLIMITED_RATE: Final = 2**63 - 1
ALL_REPLICAS: Final = "*"


class _EveryPartition(frozenset[int]):
    """The partitions of a topic whose replicas are all throttled."""

    def __contains__(self, partition: object) -> bool:
        return True


_EVERY_PARTITION: Final = _EveryPartition()


def throttled_partitions(replicas: Iterable[str], broker_id: int) -> frozenset[int]:
    """Returns the partitions of a topic whose replica on this broker is throttled.

    `replicas` is the value of a `…replication.throttled.replicas` setting: `partition:broker`
    items, or `*` for all replicas.
    """
    partitions: set[int] = set()
    for replica in replicas:
        if replica.strip() == ALL_REPLICAS:
            return _EVERY_PARTITION
        partition, _, broker = replica.partition(":")
        if int(broker) == broker_id:
            partitions.add(int(partition))
    return frozenset(partitions)


class ReplicationQuota:
    """The rate of throttled replication in one direction, and its limit.

    The arithmetic is that of Kafka's `SimpleRate`: the sum of the last windows, divided by the time
    since the oldest of them began, which counts as at least one window.
    """

    __slots__ = ("_last_ms", "_num", "_size_ms", "_start_ms", "_sums", "rate")

    def __init__(
        self, window_num: int = 11, window_size_ms: int = 1000, rate: int = UNLIMITED_RATE
    ) -> None:
        self.rate = rate
        """Bytes per second; it may change."""
        self._num = window_num
        self._size_ms = window_size_ms
        # Of each sample, the newest last: its start, the time of its last amount, and its sum.
        self._start_ms: list[int] = []
        self._last_ms: list[int] = []
        self._sums: list[int] = []

    def record(self, size: int, now_ms: int) -> None:
        """Counts bytes of a throttled replica."""
        if not self._start_ms or now_ms - self._start_ms[-1] >= self._size_ms:
            # One sample more than windows: the oldest may overlap the measured time.
            if len(self._start_ms) > self._num:
                del self._start_ms[0], self._last_ms[0], self._sums[0]
            self._start_ms.append(now_ms)
            self._last_ms.append(now_ms)
            self._sums.append(0)
        self._sums[-1] += size
        self._last_ms[-1] = now_ms

    def measured_rate(self, now_ms: int) -> float:
        """Returns the bytes per second over the last windows."""
        expired_ms = now_ms - self._num * self._size_ms
        while self._last_ms and self._last_ms[0] <= expired_ms:
            del self._start_ms[0], self._last_ms[0], self._sums[0]
        if not self._start_ms:
            return 0.0
        elapsed_ms = max(now_ms - self._start_ms[0], self._size_ms)
        return sum(self._sums) * 1000 / elapsed_ms

    def is_exceeded(self, now_ms: int) -> bool:
        """Returns whether throttled replicas must wait."""
        return self.rate < UNLIMITED_RATE and self.measured_rate(now_ms) > self.rate


class FollowerQuota(Protocol):
    """The quota of throttled replicas, such as that of `FollowerThrottle`."""

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""

    def is_throttled(self, key: TopicPartition) -> bool:
        """Returns whether the limit applies to this partition."""

    def is_exceeded(self, now_ms: int) -> bool: ...
