"""A partition as one of its replicas sees it: who leads, who is in sync, how far all have come.

It decides and remembers; the log is the host's. After every change of the log's end the host asks
for the high watermark and tells the log.
"""

from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicId, TopicPartition

NO_LEADER = -1


class Partition:
    """The local replica's part in a partition (R2, R4)."""

    __slots__ = (
        "_follower_ends",
        "_others_in_sync",
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
        self._others_in_sync: tuple[int, ...] = ()
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
        """Takes over what the controller decided; False where that is older than what is known.

        A new leader knows nothing of its followers until they fetch.
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
        self._others_in_sync = tuple(each for each in isr if each != self.local_id)
        return True

    def resign(self) -> None:
        """The partition is here no longer: who still holds this is sent to look for its leader."""
        self.is_leader = False

    def check_leader(self, current_leader_epoch: int = -1) -> ErrorCode:
        """Whether this replica may serve a client that believes in `current_leader_epoch`.

        -1: the client does not know the epoch.
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def follower_fetched(self, broker_id: int, offset: int) -> None:
        """A follower asked for `offset`: it has everything below."""
        self._follower_ends[broker_id] = offset

    def high_watermark(self, log_end_offset: int) -> int:
        """The smallest log end offset in the ISR (R2); a follower not heard of has nothing."""
        for broker_id in self._others_in_sync:
            log_end_offset = min(log_end_offset, self._follower_ends.get(broker_id, 0))
        return log_end_offset
