"""Hosts the group coordinator: a `GroupShard` for each partition of `__consumer_offsets` (C3)."""

import asyncio
import logging
import uuid
from collections.abc import Iterable, Sequence
from typing import cast
from uuid import UUID

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.coordinator_host import CoordinatorHost, CreateTopic
from penstock.broker.coordinator_log import BatchReader, append_records
from penstock.broker.internal_topics import GROUP_METADATA_TOPIC
from penstock.broker.replicas import Replica, ReplicaManager
from penstock.broker.request import Request
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, Delete
from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.events import (
    Context,
    Event,
    PartitionsDeleted,
    Requested,
    Result,
    Timer,
)
from penstock.coordinator.group.fan_out import FanRequest, FanResponse, merge, split
from penstock.coordinator.group.records import (
    Record,
    SeenKeys,
    Skipped,
    decode_record,
    encode_record,
)
from penstock.coordinator.group.replies import refusal
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.machine import TimerFired
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.records.batch import BatchHeader
from penstock.records.read import read_records
from penstock.records.validate import AppendOrigin

logger = logging.getLogger("penstock.groups")


class _Topics:
    """What the machine asks about topics."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def topic_id(self, name: str) -> UUID | None:
        record = self._image.topics.get(name)
        return None if record is None else record.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._image.topic_names.get(topic_id)

    def has_partition(self, name: str, partition: int) -> bool:
        return TopicPartition(name, partition) in self._image.partitions


class GroupCoordinator(CoordinatorHost[GroupShard, Event, Result, Timer, Record | Skipped]):
    """Groups and their offsets, for the handlers."""

    topic = GROUP_METADATA_TOPIC

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        image: ClusterImage,
        replicas: ReplicaManager,
        workers: Workers,
        clock: Clock,
        create_topic: CreateTopic,
    ) -> None:
        super().__init__(broker_id, image, replicas, workers, clock)
        self._config = config
        self._create_topic = create_topic
        self._topics = _Topics(image)
        self._group_config = _group_config(config)
        config.subscribe("", self._reconfigured)

    # --- for the handlers

    async def ensure_topic(self) -> None:
        """Makes `__consumer_offsets`, with the first group that needs it."""
        if GROUP_METADATA_TOPIC not in self._image.topics:
            await self._create_topic(
                GROUP_METADATA_TOPIC,
                self._config.int("offsets.topic.num.partitions"),
                self._config.int("offsets.topic.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(self._config.int("offsets.topic.segment.bytes")),
                },
            )

    def ask(self, request: Request, body: Message, group_id: str) -> "asyncio.Future[Message]":
        """Puts a request that names one group to its coordinator."""
        return self._ask(self.partition_of(group_id), request, body)

    async def ask_all(self, request: Request, body: FanRequest) -> FanResponse:
        """Puts a request that names several groups to their coordinators."""
        topic = self._image.topics.get(GROUP_METADATA_TOPIC)
        partitions = len(topic.assignments) if topic is not None else 1
        parts = split(body, request.version, partitions)
        if isinstance(body, ListGroupsRequest):
            parts = [part for part in parts if part.partition in self._shards]
        answers = await asyncio.gather(
            *(self._ask(part.partition, request, part.request) for part in parts)
        )
        return merge(body, request.version, cast("Sequence[FanResponse]", answers))

    def _ask(
        self, partition: int | None, request: Request, body: Message
    ) -> "asyncio.Future[Message]":
        def event(number: int) -> Event:
            context = Context(
                number,
                request.version,
                request.client_id,
                f"/{request.session.host}",
                str(uuid.uuid4()),
                self._topics,
            )
            return Requested(body, context)

        return self.submit(partition, body, request.version, event)

    def end_transaction(
        self,
        partition: int,
        marker: bytearray,
        producer_id: int,
        *,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """Appends the end of a transaction; the offsets that were committed in it count, or not."""
        shard = self._shards.get(partition)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{GROUP_METADATA_TOPIC}-{partition} is not loaded yet: retry",
            )
        self._replicas.find(GROUP_METADATA_TOPIC, partition).append(
            marker, origin=AppendOrigin.COORDINATOR, transaction_version=transaction_version
        )

    # --- the machine

    def _new_shard(self) -> GroupShard:
        return GroupShard(self._group_config)

    def _reader(self) -> BatchReader[Record | Skipped]:
        seen: SeenKeys = {}

        def read(data: bytes, position: int, header: BatchHeader) -> list[Record | Skipped]:
            if header.is_control:
                return []
            records = read_records(data, position, header)
            return [decode_record(each.key, each.value, seen) for each in records]

        return read

    def _load_item(self, shard: GroupShard, item: Record | Skipped) -> None:
        if isinstance(item, Skipped):
            logger.warning("%s: %s", GROUP_METADATA_TOPIC, item.note)
        else:
            shard.apply(item)

    def _timer_event(self, fired: TimerFired[Timer]) -> Event:
        return fired

    def _append(self, replica: Replica, result: Result) -> None:
        records = [encode_record(record) for record in result.records]
        append_records(replica, records, self._clock.now_ms(), atomic=result.atomic)

    def _apply(self, shard: GroupShard, result: Result) -> None:
        for change in result.changes:
            shard.apply(change)

    def _refusal(self, request: Message, version: int, error: ErrorCode) -> Message:
        return refusal(request, version, error)

    # --- what changes

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows who leads `__consumer_offsets`, and which partitions are gone."""
        changes = list(changes)
        super().apply(changes)
        gone = frozenset(
            change.key
            for change in changes
            if isinstance(change, Delete)
            and isinstance(change.key, TopicPartition)
            and change.key.topic != GROUP_METADATA_TOPIC
        )
        if gone:
            for partition, shard in list(self._shards.items()):
                if shard is not None:
                    self._handle(partition, shard, PartitionsDeleted(gone))

    def _reconfigured(self, _: frozenset[str]) -> None:
        self._group_config = _group_config(self._config)
        for shard in self._shards.values():
            if shard is not None:
                shard.config = self._group_config


def _group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        group_max_size=config.int("group.max.size"),
        offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
        offsets_retention_minutes=config.int("offsets.retention.minutes"),
        offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
    )
