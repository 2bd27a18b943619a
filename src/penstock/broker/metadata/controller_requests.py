"""What the controller tells this broker: its replicas, and the metadata of the cluster.

Updates come from the controller in this process, or as LeaderAndIsr, UpdateMetadata and StopReplica
requests of another broker. They are applied one at a time and in their order: replicas first, so
that clients find the new leaders in the metadata only when they lead.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from penstock.broker.metadata.broker_metadata import BrokerMetadata
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.controller.broker_updates import BrokerUpdate, metadata_changes
from penstock.controller.metadata import ConfigKey, Delete, Put
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition


class UpdateResult(NamedTuple):
    """The errors of an update, by partition."""

    partitions: dict[TopicPartition, ErrorCode]
    stops: dict[TopicPartition, ErrorCode]


class ControllerRequests:
    """Applies the updates of the controller. It belongs to the event loop's thread."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        replicas: ReplicaManager,
        store: MetadataStore,
        workers: Workers,
    ) -> None:
        self.broker_epoch = -1
        """The epoch of this broker's registration."""
        self._controller_epoch = 0
        """The highest epoch of a controller that has sent an update."""
        self._metadata = metadata
        self._replicas = replicas
        self._store = store
        self._workers = workers
        self._lock = asyncio.Lock()

    def check(self, update: BrokerUpdate) -> ErrorCode:
        """Returns the error of an update from an old controller, or for an old registration."""
        if -1 < update.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if update.controller_epoch < self._controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    async def apply(self, update: BrokerUpdate) -> UpdateResult:
        """Applies an update of the controller in this process."""
        async with self._lock:
            return await self._apply(update)

    async def apply_request(self, update: BrokerUpdate) -> UpdateResult | ErrorCode:
        """Applies an update of another broker, or returns why it is refused."""
        async with self._lock:
            error = self.check(update)
            if error is not ErrorCode.NONE:
                return error
            await self._read_settings(partition.record.topic for partition in update.partitions)
            return await self._apply(update)

    async def _apply(self, update: BrokerUpdate) -> UpdateResult:
        self._controller_epoch = max(self._controller_epoch, update.controller_epoch)
        errors = await self._replicas.apply_updates(update.partitions)
        await self._metadata.publish(metadata_changes(self._metadata.image, update))
        return UpdateResult(errors, await self._replicas.stop(update.stops))

    async def _read_settings(self, topics: Iterable[str]) -> None:
        """Reads the settings of topics that are new here: the store may deliver them later."""
        keys = [
            ConfigKey((("topics", topic),))
            for topic in dict.fromkeys(topics)
            if topic not in self._replicas.by_topic
        ]
        if keys:
            records = await self._workers.run(self._workers.store, lambda: self._store.fetch(keys))
            stored = {record.key for record in records}
            configs = self._metadata.image.configs
            await self._metadata.publish(
                [
                    *(Delete(key) for key in keys if key in configs and key not in stored),
                    *(Put(record) for record in records),
                ]
            )
