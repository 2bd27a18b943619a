"""The ends of transactions in the logs of this broker (P4)."""

import asyncio
import logging
from collections.abc import Iterable

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica_manager import Replica, ReplicaManager
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from penstock.records.control import build_end_txn_marker
from penstock.records.validate import AppendOrigin
from penstock.storage.log.results import LogAppendInfo

logger = logging.getLogger("penstock.transactions")

_NEVER = 2**63 - 1
"""`flush.messages` of a log whose appends are not followed by a flush."""


class TransactionMarkers:
    """Writes markers, whoever asks for them: a coordinator here, or WriteTxnMarkers."""

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        log_flusher: LogFlusher,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._log_flusher = log_flusher
        self._clock = clock

    def write_at_once(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Ends a transaction wherever nothing has to be waited for; where that was done."""
        return frozenset(each for each in sorted(partitions) if self._is_written(marker, each))

    def _is_written(self, marker: WritableTxnMarker, partition: TopicPartition) -> bool:
        try:
            replica = self._replicas.find(*partition)
            if replica.config.log.flush_messages < _NEVER:
                return False
            self._append(marker, partition, replica)
        except KafkaError:
            return False
        return True

    async def write(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Ends a transaction in these partitions; what came of it in each."""
        written = await asyncio.gather(*(self._write(marker, each) for each in partitions))
        return dict(written)

    async def _write(
        self, marker: WritableTxnMarker, partition: TopicPartition
    ) -> tuple[TopicPartition, ErrorCode]:
        try:
            replica = self._replicas.find(*partition)
            replica.leader_log()
            info = self._append(marker, partition, replica)
            if info.needs_flush:
                # Otherwise the coordinator would forget about a marker that may be lost.
                await self._log_flusher.flush(replica.log)
        except OSError as error:
            logger.error("%s could not be flushed: %s", partition, error)
            return partition, ErrorCode.KAFKA_STORAGE_ERROR
        except KafkaError as error:
            logger.warning(
                "producer %d epoch %d: its transaction cannot be ended in %s: %s",
                marker.producer_id,
                marker.producer_epoch,
                partition,
                error.message,
            )
            return partition, error.code
        return partition, ErrorCode.NONE

    def _append(
        self, marker: WritableTxnMarker, partition: TopicPartition, replica: Replica
    ) -> LogAppendInfo:
        batch = build_end_txn_marker(
            marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._clock.now_ms(),
        )
        if partition.topic == GROUP_METADATA_TOPIC:
            info = self._groups.end_transaction(
                partition.partition,
                batch,
                marker.producer_id,
                commit=marker.transaction_result,
                transaction_version=marker.transaction_version,
            )
        else:
            info = replica.append(
                batch,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=marker.transaction_version,
            )
        if info.has_rolled:
            self._log_flusher.flush(replica.log)
        return info
