"""The eligible leader replicas of partitions (KIP-966), for clients that describe topics.

The controller keeps them in the metadata store. Its requests to the other brokers are those of
Kafka 3.9, which have no field for them, so a broker reads them from the store. Only a partition
with fewer replicas in sync than `min.insync.replicas` has any, and it is read once for each of its
partition epochs: clients cannot make the store busy.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.topic_rules import min_insync_replicas
from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import PartitionRecord
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition

logger = logging.getLogger(__name__)

_READ_S: Final = 5.0
"""How long a client waits for the store."""
_MAX_CACHED: Final = 10_000


class EligibleLeaderReplicas:
    """Reads them from the store. It belongs to the event loop's thread."""

    def __init__(
        self, config: BrokerConfig, image: ClusterImage, store: MetadataStore, workers: Workers
    ) -> None:
        self._config = config
        self._image = image
        self._store = store
        self._workers = workers
        self._cache: dict[TopicPartition, tuple[int, tuple[int, ...]]] = {}
        """With the partition epoch in which they were read."""

    def may_have(self, topic: str, in_sync: int, replicas: int) -> bool:
        """Returns whether a partition with so many replicas in sync may have any."""
        if in_sync >= replicas:
            return False
        return in_sync < min_insync_replicas(self._config, self._image, topic)

    async def read(
        self, keys: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, ...]]:
        """Returns them for the partitions of which they are known; few, if the store is away."""
        epochs = {
            key: record.partition_epoch
            for key in keys
            if (record := self._image.partitions.get(key)) is not None
        }
        missing = [
            key for key, epoch in epochs.items() if self._cache.get(key, (-1, ()))[0] < epoch
        ]
        if missing:
            try:
                async with asyncio.timeout(_READ_S):
                    records = await self._workers.run(
                        self._workers.store, lambda: self._store.fetch(missing)
                    )
            except (KafkaStorageError, TimeoutError) as error:
                logger.warning("the eligible leader replicas could not be read: %s", error)
                records = []
            if len(self._cache) + len(records) > _MAX_CACHED:
                self._cache.clear()
            for state in records:
                if isinstance(state, PartitionRecord):
                    epoch = max(state.partition_epoch, epochs[state.key])
                    self._cache[state.key] = (epoch, state.eligible_leader_replicas)
        return {
            key: self._cache[key][1]
            for key, epoch in epochs.items()
            if key in self._cache and self._cache[key][0] >= epoch
        }
