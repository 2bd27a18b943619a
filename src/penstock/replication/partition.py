"""A partition as seen by its local replica: leader, ISR, epochs and the high watermark.

This class holds state and makes decisions; `broker/replica` owns the log. After every change of the
log end offset the caller computes the high watermark here and passes it to the log.
"""

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicId, TopicPartition

NO_LEADER = -1


class Partition:
    """The replication state of a partition with a local replica (R2, R4)."""

    __slots__ = (
        "_follower_ends",
        "_followers_in_sync",
        "is_leader",
        "isr",
        "key",
        "leader",
        "leader_epoch",
        "local_id",
        "partition_epoch",
        "replicas",
        "topic_id",
    )

    def __init__(self, key: TopicPartition, topic_id: TopicId, local_id: int) -> None:
        self.key = key
        self.topic_id = topic_id
        self.local_id = local_id
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.is_leader = False
        self._followers_in_sync: tuple[int, ...] = ()
        self._follower_ends: dict[int, int] = {}

    def update(
        self,
        *,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
    ) -> bool:
        """Applies a state from the controller; returns False if it is older than the current one.

        A new leader does not know the log end offsets of its followers until they fetch.
        """
        if partition_epoch <= self.partition_epoch or leader_epoch < self.leader_epoch:
            return False
        if leader_epoch != self.leader_epoch:
            self._follower_ends.clear()
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = isr
        self.replicas = replicas
        self.is_leader = leader == self.local_id
        self._followers_in_sync = tuple(member for member in isr if member != self.local_id)
        return True

    def resign(self) -> None:
        """Stops leading: the replica is removed, and clients must look for another leader."""
        self.is_leader = False

    def check_leader(self, current_leader_epoch: int = -1) -> ErrorCode:
        """Returns NONE if this replica may serve a client that knows this leader epoch.

        -1 means that the client does not know the epoch.
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def follower_fetched(self, broker_id: int, offset: int) -> None:
        """Records that a follower fetches from `offset` and therefore has all records below it."""
        self._follower_ends[broker_id] = offset

    def high_watermark(self, log_end_offset: int) -> int:
        """Returns the smallest log end offset in the ISR (R2); 0 if a follower never fetched."""
        for broker_id in self._followers_in_sync:
            log_end_offset = min(log_end_offset, self._follower_ends.get(broker_id, 0))
        return log_end_offset
