"""Transaction markers: writes the ends of transactions to the logs of this broker (P4)."""

import asyncio
import logging
from collections.abc import Iterable

from penstock.broker.coordinator.group_coordinator import GroupCoordinator
from penstock.broker.pacer import Pacer, chunks
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import GROUP_METADATA_TOPIC
from penstock.net.server.limits import LogRateLimiter
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from penstock.records.append_policy import AppendOrigin
from penstock.records.control import build_end_txn_marker
from penstock.storage.log.results import LogAppendInfo

logger = logging.getLogger(__name__)

_PARTITIONS_AT_ONCE = 50

_REPLICATION_TIMEOUT_S = 30.0
"""How long a marker waits for the followers before its coordinator writes it again."""

FLUSH_TIMEOUT_S = 5.0
"""How long the markers of a request wait for the disks: others, of any transaction, wait behind
them."""

_NO_FLUSH = 2**63 - 1
"""The value of `flush.messages` of a log that is not flushed after appends."""


class TransactionMarkers:
    """Writes markers for transaction coordinators, of this broker and of others.

    A marker counts as written when all in-sync replicas have it.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        log_flusher: LogFlusher,
        pacer: Pacer,
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._log_flusher = log_flusher
        self._pacer = pacer
        self._log_limiter = LogRateLimiter()
        self._clock = clock

    def write_at_once(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Writes markers to the partitions without followers that need no flush.

        Returns the partitions written.
        """
        return frozenset(
            partition for partition in sorted(partitions) if self._try_write(marker, partition)
        )

    def _try_write(self, marker: WritableTxnMarker, partition: TopicPartition) -> bool:
        try:
            replica = self._replicas.find(*partition)
            if replica.config.log.flush_messages < _NO_FLUSH or replica.partition.followers:
                return False
            self._append(marker, partition, replica)
        except KafkaError:
            return False
        return True

    async def write(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Writes markers to these partitions; returns the error of each."""
        flush_deadline = asyncio.get_running_loop().time() + FLUSH_TIMEOUT_S
        return await self.write_until(flush_deadline, marker, partitions)

    async def write_until(
        self,
        flush_deadline: float,
        marker: WritableTxnMarker,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Like `write`, for several markers of one request, which have a deadline in common.

        Those that are not durable then, on the clock of the loop, get REQUEST_TIMED_OUT: their
        coordinator writes them again.
        """
        errors: dict[TopicPartition, ErrorCode] = {}
        async for targets in self._pacer.each(chunks(list(partitions), _PARTITIONS_AT_ONCE)):
            errors.update(
                await asyncio.gather(
                    *(self._write(marker, target, flush_deadline) for target in targets)
                )
            )
        return errors

    async def _write(
        self, marker: WritableTxnMarker, partition: TopicPartition, flush_deadline: float
    ) -> tuple[TopicPartition, ErrorCode]:
        try:
            replica = self._replicas.find(*partition)
            log = replica.leader_log()
            if self._log_flusher.running_s(log) > FLUSH_TIMEOUT_S / 2:
                # Its disk may hang: each attempt would add a marker and wait as long again.
                return partition, ErrorCode.REQUEST_TIMED_OUT
            info = self._append(marker, partition, replica)
            if info.needs_flush:
                # Otherwise the coordinator would complete a transaction whose marker may be lost.
                async with asyncio.timeout_at(flush_deadline):
                    await asyncio.shield(self._log_flusher.flush(replica.log))
            if replica.partition.followers:
                return partition, await _replicated(replica, info.last_offset + 1)
        except TimeoutError:
            return partition, ErrorCode.REQUEST_TIMED_OUT
        except OSError as error:
            logger.error("cannot flush %s: %s", partition, error)
            return partition, ErrorCode.KAFKA_STORAGE_ERROR
        except KafkaError as error:
            suppressed = self._log_limiter.allow("marker", self._clock.monotonic_ms())
            if suppressed is not None:
                logger.warning(
                    "cannot end the transaction of producer %d, epoch %d, in %s: %s (%d such lines "
                    "were left out)",
                    marker.producer_id,
                    marker.producer_epoch,
                    partition,
                    error.message,
                    suppressed,
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


async def _replicated(replica: Replica, offset: int) -> ErrorCode:
    """Waits until the high watermark reaches an offset; returns why it does not."""
    if replica.log.high_watermark >= offset:
        return ErrorCode.NONE
    reached: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def on_result(code: ErrorCode) -> None:
        if not reached.done():
            reached.set_result(code)

    wait = replica.commit_watchers.add(offset, on_result)
    try:
        async with asyncio.timeout(_REPLICATION_TIMEOUT_S):
            return await reached
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
    finally:
        if not reached.done() or reached.cancelled():
            replica.commit_watchers.discard(wait)
