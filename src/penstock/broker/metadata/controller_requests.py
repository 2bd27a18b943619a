"""The controller's updates of this broker: its replicas, and the metadata of the cluster.

Updates come from the controller in this process, or as LeaderAndIsr, UpdateMetadata and StopReplica
requests of another broker. They are applied one at a time and in their order: replicas first, so
that clients find the new leaders in the metadata only when they lead.

A controller sends one request at a time, and again on a new connection if there is no response. The
first one may arrive later than others that were sent after it, when it would undo them: delete the
replica of a topic that was created again, for example. So requests of a controller are refused on
connections that are older than one that it has used.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from penstock.broker.errors import CloseConnectionError
from penstock.broker.metadata.broker_metadata import BrokerMetadata
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.request import Session
from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.controller.broker_updates import BrokerUpdate, metadata_changes
from penstock.controller.control_requests import (
    ControlRequest,
)
from penstock.controller.metadata import ConfigKey, Delete, Put
from penstock.controller.received_updates import (
    update_of_leader_and_isr,
    update_of_stop_replica,
    update_of_update_metadata,
)
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from penstock.protocol.messages.stop_replica import StopReplicaRequest
from penstock.protocol.messages.update_metadata import UpdateMetadataRequest

T = TypeVar("T")

_ELEMENTS_AT_ONCE: Final = 500
"""Partitions that are converted on the event loop."""


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
        self.has_metadata = asyncio.Event()
        """Set with the first metadata: before it, clients would take the cluster for empty."""
        self._controller_epoch = 0
        """The highest epoch of a controller that has sent an update."""
        self._connection = 0
        """The newest connection on which that controller has sent a request."""
        self._metadata = metadata
        self._replicas = replicas
        self._store = store
        self._workers = workers
        self._lock = asyncio.Lock()

    async def apply(self, update: BrokerUpdate) -> UpdateResult:
        """Applies an update of the controller in this process, unless it has been replaced."""
        async with self._lock:
            if update.controller_epoch < self._controller_epoch:
                return UpdateResult({}, {})
            return await self._apply(update)

    async def create_missing_logs(self) -> list[TopicPartition]:
        """Calls `ReplicaManager.create_missing_logs` between two updates."""
        async with self._lock:
            return await self._replicas.create_missing_logs()

    async def leader_and_isr(self, request: LeaderAndIsrRequest, session: Session) -> UpdateResult:
        """Creates and updates replicas. Raises KafkaError if the controller is not current."""
        async with self._lock:
            self._check(request, session)
            size = sum(len(topic.partition_states) for topic in request.topic_states)
            update = await self._convert(size, lambda: update_of_leader_and_isr(request))
            await self._read_settings(partition.record.topic for partition in update.partitions)
            return await self._apply(update)

    async def update_metadata(
        self, request: UpdateMetadataRequest, session: Session
    ) -> UpdateResult:
        """Updates the metadata. Raises KafkaError if the controller is not current."""
        async with self._lock:
            self._check(request, session)
            size = sum(len(topic.partition_states) for topic in request.topic_states)
            image = self._metadata.image
            update = await self._convert(size, lambda: update_of_update_metadata(request, image))
            result = await self._apply(update)
            self.has_metadata.set()
            return result

    async def stop_replica(self, request: StopReplicaRequest, session: Session) -> UpdateResult:
        """Stops replicas. Raises KafkaError if the controller is not current."""
        async with self._lock:
            self._check(request, session)
            return await self._apply(update_of_stop_replica(request))

    def _check(self, request: ControlRequest, session: Session) -> None:
        """Raises KafkaError for an old controller, or a registration before the current one.

        Raises CloseConnectionError for a request that has been sent again on another connection.
        """
        if -1 < request.broker_epoch < self.broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"the request is for broker epoch {request.broker_epoch}, this broker has "
                f"registered again with epoch {self.broker_epoch}",
            )
        if request.controller_epoch < self._controller_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"broker {request.controller_id} was the controller in epoch "
                f"{request.controller_epoch}, the current epoch is {self._controller_epoch}",
            )
        self._check_connection(request, session)

    def _check_connection(self, request: ControlRequest, session: Session) -> None:
        is_same_controller = request.controller_epoch == self._controller_epoch
        if is_same_controller and session.number < self._connection:
            raise CloseConnectionError(
                f"the request of controller {request.controller_id} is late: it has sent others "
                "on a newer connection"
            )
        self._connection = session.number

    async def _apply(self, update: BrokerUpdate) -> UpdateResult:
        self._controller_epoch = max(self._controller_epoch, update.controller_epoch)
        image = self._metadata.image
        changes = await self._convert(
            len(update.metadata) if update.is_full else 0, lambda: metadata_changes(image, update)
        )
        if update.offline_replicas is not None:
            image.offline_replicas = update.offline_replicas
        if update.is_full:
            # Before a replica becomes that of a coordinator, which takes unknown topics for
            # deleted ones.
            await self._metadata.publish(changes)
            await self._replicas.keep_only({state.record.key for state in update.partitions})
        errors = await self._replicas.apply_updates(update.partitions)
        if not update.is_full:
            await self._metadata.publish(changes)
        if update.is_full and update.metadata:
            self.has_metadata.set()
        return UpdateResult(errors, await self._replicas.stop(update.stops))

    async def _convert(self, size: int, convert: Callable[[], T]) -> T:
        """Returns the result of `convert`, which runs on a thread if it has many elements.

        The image's brokers, topics and partitions do not change while the lock is held.
        """
        if size <= _ELEMENTS_AT_ONCE:
            return convert()
        return await self._workers.run(self._workers.codec, convert)

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
