"""The leader's side of throttled replication: `leader.replication.throttled.rate` (R8).

A follower that is not in sync gets no records of a throttled partition while the rate is exceeded.
Members of the ISR are never held back, because they would leave it.
"""

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.replica.replica import Replica
from penstock.core.clock import Clock
from penstock.replication.throttle import UNLIMITED_RATE, ReplicationQuota, throttled_partitions

_RATE = "leader.replication.throttled.rate"


class LeaderThrottle:
    """Decides which fetches of followers are held back, and measures the others."""

    def __init__(self, broker_id: int, config: BrokerConfig, clock: Clock) -> None:
        self._broker_id = broker_id
        self._config = config
        self._clock = clock
        self._quota = ReplicationQuota(
            config.int("replication.quota.window.num"),
            config.int("replication.quota.window.size.seconds") * 1000,
            config.int(_RATE),
        )
        config.subscribe(_RATE, lambda _: self._update_rate())

    def _update_rate(self) -> None:
        self._quota.rate = self._config.int(_RATE)

    @property
    def is_limited(self) -> bool:
        """Whether a rate is set."""
        return self._quota.rate < UNLIMITED_RATE

    def is_throttled(self, replica: Replica) -> bool:
        """Whether the topic's `leader.replication.throttled.replicas` has this replica."""
        if not self.is_limited:
            return False
        throttled_replicas = replica.config.leader_replication_throttled_replicas
        return bool(throttled_replicas) and replica.partition.key.partition in throttled_partitions(
            throttled_replicas, self._broker_id
        )

    def holds_back(self, replica: Replica, follower_id: int) -> bool:
        """Whether this follower must not get records of the partition now."""
        return (
            self._quota.rate < UNLIMITED_RATE
            and follower_id not in replica.partition.isr
            and self.is_throttled(replica)
            and self._quota.is_exceeded(self._clock.monotonic_ms())
        )

    def record(self, size: int) -> None:
        """Counts bytes of throttled partitions that are sent to followers."""
        self._quota.record(size, self._clock.monotonic_ms())
