"""Hosts the transaction coordinator: a shard for each partition of `__transaction_state` (P4).

Markers are written here too: the machine says where a transaction must end, and is told when it
has ended there.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import cast

from msgspec.structs import replace

from penstock.broker.coordinator.host import CoordinatorContext, CoordinatorHost
from penstock.broker.coordinator.log import BatchReader, append_records
from penstock.broker.coordinator.transaction_markers import TransactionMarkers
from penstock.broker.metadata.features import TRANSACTION_VERSION
from penstock.broker.metadata.producer_id_manager import ProducerIds
from penstock.broker.replica.replica_manager import Replica
from penstock.broker.request import Request
from penstock.controller.metadata import Change
from penstock.coordinator.machine import Response, TimerFired
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
from penstock.coordinator.txn.records import (
    Skipped,
    TransactionRecord,
    decode_record,
    encode_record,
)
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

logger = logging.getLogger("penstock.transactions")

_RETRY_S = 0.1
"""Pause before a marker is written again; it doubles each time, up to a limit."""
_LONGEST_RETRY_S = 5.0
_AT_ONCE = 32
"""So many markers are written before anything else happens."""
_BETWEEN_BROKERS_VERSION = 5
"""Of AddPartitionsToTxn, when a broker asks in the name of its clients."""
_DONE = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
_STOP = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})

Loaded = TransactionRecord | Skipped


class TransactionCoordinator(CoordinatorHost[TransactionShard, Event, Result, Timer, Loaded]):
    """Transactional ids and their transactions, for the handlers."""

    topic = TRANSACTION_STATE_TOPIC

    def __init__(
        self,
        surroundings: CoordinatorContext,
        producer_ids: ProducerIds,
        markers: TransactionMarkers,
    ) -> None:
        super().__init__(surroundings)
        self._producer_ids = producer_ids
        self._markers = markers
        self._current = self._txn_config()
        self._config.subscribe("trans", lambda _: self._reconfigure())

    # --- for the handlers

    async def ensure_topic(self) -> None:
        """Makes `__transaction_state`, with the first transactional id that needs it."""
        if TRANSACTION_STATE_TOPIC not in self._image.topics:
            config = self._config
            await self._create_topic(
                TRANSACTION_STATE_TOPIC,
                config.int("transaction.state.log.num.partitions"),
                config.int("transaction.state.log.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.int("transaction.state.log.min.isr")),
                    "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
                    "unclean.leader.election.enable": "false",
                },
            )

    def send(
        self, request: Request, body: Message, transactional_id: str
    ) -> "asyncio.Future[Message]":
        """Puts a request about one transactional id to its coordinator."""
        if not transactional_id:
            refused: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            refused.set_result(error_response(body, request.version, ErrorCode.INVALID_REQUEST))
            return refused
        return self._send(self.partition_for(transactional_id), request, body)

    async def send_to_all(self, request: Request, body: Message) -> list[Message]:
        """Puts a request to every partition that is led here."""
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
        """Adds partitions to a producer's transaction, or only looks whether they are in it."""
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
        answer = await self.submit(
            self.partition_for(transactional_id),
            body,
            _BETWEEN_BROKERS_VERSION,
            lambda number: Requested(body, Context(number, _BETWEEN_BROKERS_VERSION, "")),
        )
        return errors_of(cast("AddPartitionsToTxnResponse", answer))

    # --- the machine

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self._current)

    def _configure(self, shard: TransactionShard) -> None:
        shard.config = self._current

    def _reader(self) -> BatchReader[Loaded]:
        return _read_batch

    def _load_item(self, partition: int, shard: TransactionShard, item: Loaded) -> None:
        if isinstance(item, Skipped):
            logger.warning("%s-%d: %s", TRANSACTION_STATE_TOPIC, partition, item.note)
        else:
            shard.apply(item)

    def _timer_event(self, fired: TimerFired[Timer]) -> Event:
        return fired

    def _append(self, replica: Replica, result: Result) -> LogAppendInfo:
        records = [encode_record(record) for record in result.records]
        return append_records(replica, records, self._clock.now_ms(), atomic=False)

    def _apply(self, shard: TransactionShard, result: Result) -> None:
        for change in result.changes:
            shard.apply(change)

    def _refusal(self, request: Message, version: int, error: ErrorCode) -> Message:
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
        """Handles a request once there is a new block of producer ids."""
        try:
            producer_id = await self._producer_ids.wait()
        except KafkaError as error:
            logger.error("there is no producer id for a transaction: %s", error.message)
            self._refuse(event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if self._shards.get(partition) is shard:
            self._handle(partition, shard, _with_producer_id(event, producer_id))
        else:
            self._refuse(event, ErrorCode.NOT_COORDINATOR)

    def _refuse(self, event: Requested, code: ErrorCode) -> None:
        answer = error_response(event.request, event.context.version, code)
        self._respond([Response(event.context.waiter, answer)])

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
            left = effect.partitions
            if isinstance(result.event, Requested) and len(left) <= _AT_ONCE:
                # The producer's next transaction need not wait for this one then.
                done = self._markers.write_at_once(marker, left)
                self._written(partition, shard, effect, done)
                left -= done
            if left:
                self._spawn(self._write_markers(partition, shard, effect, marker, left))

    def _written(
        self,
        partition: int,
        shard: TransactionShard,
        effect: WriteMarkers,
        done: frozenset[TopicPartition],
    ) -> None:
        if done:
            written = MarkersWritten(
                effect.transactional_id, effect.producer_id, effect.producer_epoch, done
            )
            self._handle(partition, shard, written)

    async def _write_markers(
        self,
        partition: int,
        shard: TransactionShard,
        effect: WriteMarkers,
        marker: WritableTxnMarker,
        left: frozenset[TopicPartition],
    ) -> None:
        """Goes on until every partition has its marker, or this is no longer the coordinator."""
        pause_s = _RETRY_S
        while True:
            there = [each for each in left if each in self._image.partitions]
            errors = await self._markers.write(marker, there)
            if self._shards.get(partition) is not shard:
                return
            if _STOP & set(errors.values()):
                logger.error(
                    "%s: the end of its transaction is refused, a newer producer or coordinator "
                    "has been there: %s",
                    effect.transactional_id,
                    {str(each): code.name for each, code in errors.items() if code in _STOP},
                )
                return
            done = frozenset(each for each in left if errors.get(each, ErrorCode.NONE) in _DONE)
            self._written(partition, shard, effect, done)
            left -= done
            if not left:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_RETRY_S)

    # --- settings

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows who leads `__transaction_state`, and the number of partitions of groups."""
        super().apply(changes)
        self._reconfigure()

    def _reconfigure(self) -> None:
        self._current = self._txn_config()
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
    """What came of each partition of one transaction."""
    (result,) = response.results_by_transaction
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


def _with_producer_id(event: Requested, producer_id: int) -> Requested:
    return Requested(event.request, replace(event.context, new_producer_id=producer_id))


def _read_batch(data: bytes, position: int, header: BatchHeader) -> list[Loaded]:
    if header.is_control:
        return []
    return [decode_record(each.key, each.value) for each in read_records(data, position, header)]
