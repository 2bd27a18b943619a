"""The follower's side of throttled replication: `follower.replication.throttled.rate` (R8).

While the rate is exceeded, throttled partitions are not fetched, unless they are in sync: they
would leave the ISR.
"""

from collections.abc import Callable

from penstock.core.ids import TopicPartition
from penstock.replication.throttle import UNLIMITED_RATE, ReplicationQuota, throttled_partitions


class FollowerThrottle:
    """Decides which partitions are throttled, and measures what they fetch."""

    def __init__(
        self,
        broker_id: int,
        quota: ReplicationQuota,
        throttled_replicas: Callable[[TopicPartition], tuple[str, ...]],
    ) -> None:
        """`throttled_replicas` returns the topic's `follower.replication.throttled.replicas`."""
        self._broker_id = broker_id
        self.quota = quota
        self._throttled_replicas = throttled_replicas

    @property
    def is_limited(self) -> bool:
        return self.quota.rate < UNLIMITED_RATE

    def is_throttled(self, key: TopicPartition) -> bool:
        replicas = self._throttled_replicas(key)
        return bool(replicas) and key.partition in throttled_partitions(replicas, self._broker_id)

    def is_exceeded(self, now_ms: int) -> bool:
        return self.quota.is_exceeded(now_ms)

    def record(self, size: int, now_ms: int) -> None:
        """Counts bytes of throttled partitions that were fetched."""
        self.quota.record(size, now_ms)
