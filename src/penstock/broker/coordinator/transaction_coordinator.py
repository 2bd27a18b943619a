"""The transaction coordinator: hosts a shard for each partition of `__transaction_state` (P4).

It also writes markers: a shard decides in which partitions a transaction must end, and is notified
when the markers are written.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol, cast

from msgspec.structs import replace

from penstock.broker.config.internal_topic_configs import internal_topic_configs
from penstock.broker.coordinator.host import CoordinatorContext, CoordinatorHost, completed
from penstock.broker.coordinator.log import BatchReader, append_records
from penstock.broker.metadata.features import TRANSACTION_VERSION
from penstock.broker.metadata.producer_id_manager import ProducerIdManager
from penstock.broker.replica.replica import Replica
from penstock.broker.request import Request
from penstock.controller.metadata import Change
from penstock.coordinator.machine import Response, Skipped
from penstock.coordinator.txn.config import TransactionConfig
from penstock.coordinator.txn.events import (
    Context,
    Event,
    MarkersWritten,
    Requested,
    Result,
    Timer,
    WriteMarkers,
)
from penstock.coordinator.txn.records import TransactionRecord, decode_record, encode_record
from penstock.coordinator.txn.responses import error_response
from penstock.coordinator.txn.shard import TransactionShard
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.internal_topics import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from penstock.protocol.fields import Message
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker
from penstock.records.batch import BatchHeader
from penstock.records.read import read_records
from penstock.storage.log.results import LogAppendInfo

logger = logging.getLogger(__name__)

_RETRY_S = 0.1
"""The pause before a marker is written again; it doubles each time, up to a limit."""
_MAX_RETRY_S = 1.0
_MAX_IMMEDIATE_MARKERS = 32
"""Up to so many markers are written at once, without a task."""
_BETWEEN_BROKERS_VERSION = 5
"""The version of AddPartitionsToTxn that a broker sends on behalf of its clients."""
_WRITTEN_CODES = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class MarkerWriter(Protocol):
    """Writes the ends of transactions to partitions, such as a `TransactionMarkerChannel`."""

    def write_at_once(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Writes what needs to wait for nothing; returns the partitions written."""
        ...

    async def write(
        self, marker: WritableTxnMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns the error of each partition."""
        ...


class TransactionCoordinator(
    CoordinatorHost[TransactionShard, Event, Result, Timer, TransactionRecord]
):
    """Transactional ids and their transactions, as the request handlers use them."""

    topic = TRANSACTION_STATE_TOPIC

    def __init__(
        self,
        context: CoordinatorContext,
        producer_ids: ProducerIdManager,
        markers: MarkerWriter,
    ) -> None:
        super().__init__(context)
        self._producer_ids = producer_ids
        self._markers = markers
        self._transaction_config = self._txn_config()
        self._config.subscribe("trans", lambda _: self._reconfigure())

    # --- requests

    async def ensure_topic(self) -> None:
        """Creates `__transaction_state` when the first transactional id needs it."""
        if TRANSACTION_STATE_TOPIC not in self._image.topics:
            config = self._config
            await self._create_topic(
                TRANSACTION_STATE_TOPIC,
                config.int("transaction.state.log.num.partitions"),
                config.int("transaction.state.log.replication.factor"),
                internal_topic_configs(config)[TRANSACTION_STATE_TOPIC],
            )

    def send(
        self, request: Request, body: Message, transactional_id: str
    ) -> "asyncio.Future[Message]":
        """Sends a request about one transactional id to its shard."""
        if not transactional_id:
            return completed(error_response(body, request.version, ErrorCode.INVALID_REQUEST))
        return self._send(self.partition_for(transactional_id), request, body)

    async def send_to_all(self, request: Request, body: Message) -> list[Message]:
        """Sends a request to every shard of this broker."""
        return await asyncio.gather(
            *(self._send(partition, request, body) for partition in list(self._shards))
        )

    def _send(
        self, partition: int | None, request: Request, body: Message
    ) -> "asyncio.Future[Message]":
        return self.submit(
            partition,
            body,
            request.version,
            lambda number: Requested(body, Context(number, request.version, request.client_id)),
        )

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Adds partitions to a producer's transaction, or only checks whether they are in it."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, index in partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(topic, [])).partitions.append(index)
        body = AddPartitionsToTxnRequest(
            [
                AddPartitionsToTxnTransaction(
                    transactional_id,
                    producer_id,
                    producer_epoch,
                    verify_only,
                    list(topics.values()),
                )
            ]
        )
        response = await self.submit(
            self.partition_for(transactional_id),
            body,
            _BETWEEN_BROKERS_VERSION,
            lambda number: Requested(body, Context(number, _BETWEEN_BROKERS_VERSION, "")),
        )
        return errors_of(cast("AddPartitionsToTxnResponse", response))

    # --- shards

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self._transaction_config)

    def _configure(self, shard: TransactionShard) -> None:
        shard.config = self._transaction_config

    def _commit_timeout_ms(self) -> int:
        return self._config.int("request.timeout.ms")

    def _reader(self) -> BatchReader[TransactionRecord | Skipped]:
        return _read_batch

    def _append(self, replica: Replica, result: Result) -> LogAppendInfo:
        records = [encode_record(record) for record in result.records]
        return append_records(replica, records, self._clock.now_ms(), atomic=False)

    def _error_response(self, request: Message, version: int, error: ErrorCode) -> Message:
        return error_response(request, version, error)

    def _handle(self, partition: int, shard: TransactionShard, event: Event) -> None:
        result = shard.handle(event, self._clock.now_ms())
        if not result.needs_producer_id:
            self._commit_result(partition, shard, result)
            return
        assert isinstance(event, Requested)
        producer_id = self._producer_ids.take()
        if producer_id is None:
            self._spawn(self._handle_later(partition, shard, event))
        else:
            self._handle(partition, shard, _with_producer_id(event, producer_id))

    async def _handle_later(
        self, partition: int, shard: TransactionShard, event: Requested
    ) -> None:
        """Handles a request once the broker has a new block of producer ids."""
        try:
            producer_id = await self._producer_ids.wait()
        except KafkaError as error:
            logger.error("cannot get a producer id for a transaction: %s", error.message)
            self._respond_error(event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if self._shards.get(partition) is shard:
            self._handle(partition, shard, _with_producer_id(event, producer_id))
        else:
            self._respond_error(event, ErrorCode.NOT_COORDINATOR)

    def _respond_error(self, event: Requested, code: ErrorCode) -> None:
        message = error_response(event.request, event.context.version, code)
        self._respond([Response(event.context.waiter, message)])

    def _after_load(self, partition: int, shard: TransactionShard) -> None:
        for name in sorted(shard.in_doubt):
            metadata = shard.transactions[name]
            logger.error(
                "%s-%d is damaged: the outcome of the transaction of %s is unknown (producer %d, "
                "epoch %d, in %s). It stays open until its producer starts again or "
                "`penstock transaction force-terminate` aborts it",
                self.topic,
                partition,
                name,
                metadata.producer_id,
                metadata.producer_epoch,
                ", ".join(sorted(map(str, metadata.partitions))),
            )

    # --- markers

    def _perform(self, partition: int, shard: TransactionShard, result: Result) -> None:
        for effect in result.markers:
            replica = self._replicas.find(TRANSACTION_STATE_TOPIC, partition)
            marker = WritableTxnMarker(
                effect.producer_id,
                effect.producer_epoch,
                effect.commit,
                coordinator_epoch=replica.partition.leader_epoch,
                transaction_version=effect.transaction_version,
            )
            remaining = effect.partitions
            if isinstance(result.event, Requested) and len(remaining) <= _MAX_IMMEDIATE_MARKERS:
                # So the producer's next transaction need not wait for this one.
                written = self._markers.write_at_once(marker, remaining)
                self._markers_written(partition, shard, effect, written)
                remaining -= written
            if remaining:
                self._spawn(self._write_markers(partition, shard, effect, marker, remaining))

    def _markers_written(
        self,
        partition: int,
        shard: TransactionShard,
        effect: WriteMarkers,
        written: frozenset[TopicPartition],
    ) -> None:
        if written:
            event = MarkersWritten(
                effect.transactional_id, effect.producer_id, effect.producer_epoch, written
            )
            self._handle(partition, shard, event)

    async def _write_markers(
        self,
        partition: int,
        shard: TransactionShard,
        effect: WriteMarkers,
        marker: WritableTxnMarker,
        remaining: frozenset[TopicPartition],
    ) -> None:
        """Retries until every partition has its marker, or the shard has been unloaded.

        A partition that no longer exists needs no marker.
        """
        pause_s = _RETRY_S
        while True:
            existing = [target for target in sorted(remaining) if target in self._image.partitions]
            errors = await self._markers.write(marker, existing)
            if self._shards.get(partition) is not shard:
                return
            if _FENCED & set(errors.values()):
                logger.error(
                    "cannot end the transaction of %s, a newer producer or coordinator has fenced "
                    "it: %s",
                    effect.transactional_id,
                    {str(target): code.name for target, code in errors.items() if code in _FENCED},
                )
                return
            written = frozenset(
                target
                for target in remaining
                if errors.get(target, ErrorCode.NONE) in _WRITTEN_CODES
            )
            self._markers_written(partition, shard, effect, written)
            remaining -= written
            if not remaining:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _MAX_RETRY_S)

    # --- settings

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows the number of partitions of `__consumer_offsets`, and the features."""
        self._reconfigure()

    def _reconfigure(self) -> None:
        self._transaction_config = self._txn_config()
        super()._reconfigure()

    def _txn_config(self) -> TransactionConfig:
        config = self._config
        groups = self._image.topics.get(GROUP_METADATA_TOPIC)
        features = self._image.features
        return TransactionConfig(
            transactional_id_expiration_ms=config.int("transactional.id.expiration.ms"),
            transaction_max_timeout_ms=config.int("transaction.max.timeout.ms"),
            abort_timed_out_cleanup_interval_ms=config.int(
                "transaction.abort.timed.out.transaction.cleanup.interval.ms"
            ),
            remove_expired_cleanup_interval_ms=config.int(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
            transaction_version=0
            if features is None
            else features.levels.get(TRANSACTION_VERSION, 0),
            group_partitions=config.int("offsets.topic.num.partitions")
            if groups is None
            else len(groups.assignments),
        )


def errors_of(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, ErrorCode]:
    """Returns the error of each partition of one transaction."""
    (result,) = response.results_by_transaction
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode(
            partition.partition_error_code
        )
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _with_producer_id(event: Requested, producer_id: int) -> Requested:
    return Requested(event.request, replace(event.context, new_producer_id=producer_id))


def _read_batch(
    data: bytes, position: int, header: BatchHeader
) -> list[TransactionRecord | Skipped]:
    if header.is_control:
        return []
    return [
        decode_record(record.key, record.value) for record in read_records(data, position, header)
    ]
