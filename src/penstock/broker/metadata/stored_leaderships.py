"""Whether this broker leads a partition, according to the metadata store (R2, C1).

The fetches of its followers show a leader that it still leads (`replication/leader_confirmation`),
except if fewer replicas than `min.insync.replicas` are in sync: then the controller may have
elected an eligible leader replica, which is outside the ISR and did not fetch from this leader
before either. So the leader reads the state of the partition from the store. A consumer that waits
for it retries:

    if not leaderships.confirm(partition.key, partition.leader_epoch, offset, now_ms):
        ...  # NOT_LEADER_OR_FOLLOWER
"""

import asyncio
from typing import Final, NamedTuple

from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.controller.metadata import PartitionRecord
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition

MAX_READS: Final = 64
"""Offsets that are checked at the same time."""
EXPIRY_MS: Final = 10_000
"""A consumer that has not retried for so long has given up."""


class _Read(NamedTuple):
    began_ms: int
    leader_epoch: int
    task: "asyncio.Task[bool]"


class StoredLeaderships:
    """Reads of partition states. It belongs to the event loop's thread."""

    def __init__(self, broker_id: int, store: MetadataStore, workers: Workers) -> None:
        self._broker_id = broker_id
        self._store = store
        self._workers = workers
        self._reads: dict[tuple[TopicPartition, int], _Read] = {}

    def confirm(self, key: TopicPartition, leader_epoch: int, offset: int, now_ms: int) -> bool:
        """Returns whether this broker still led after the offset was requested for the first time.

        False begins a read of the store, unless one is running or there are too many.
        """
        read = self._reads.get((key, offset))
        if (
            read is not None
            and read.leader_epoch == leader_epoch
            and now_ms - read.began_ms <= EXPIRY_MS
        ):
            if not read.task.done():
                return False
            del self._reads[key, offset]
            return read.task.result()
        self._reads.pop((key, offset), None)
        self._make_room(now_ms)
        if len(self._reads) < MAX_READS:
            task = asyncio.get_running_loop().create_task(self._leads(key, leader_epoch))
            self._reads[key, offset] = _Read(now_ms, leader_epoch, task)
        return False

    def _make_room(self, now_ms: int) -> None:
        """Removes reads that have expired, and the oldest that has ended if there are too many."""
        for wanted, read in list(self._reads.items()):
            is_expired = now_ms - read.began_ms > EXPIRY_MS
            if is_expired or (read.task.done() and len(self._reads) >= MAX_READS):
                del self._reads[wanted]

    async def _leads(self, key: TopicPartition, leader_epoch: int) -> bool:
        try:
            records = await self._workers.run(self._workers.store, lambda: self._store.fetch([key]))
        except KafkaError:
            return False
        return any(
            isinstance(record, PartitionRecord)
            and (record.leader, record.leader_epoch) == (self._broker_id, leader_epoch)
            for record in records
        )
