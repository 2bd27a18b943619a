"""Hosts the group coordinator: a `GroupShard` for each partition of `__consumer_offsets` led here.

The machine decides; here its records are appended, its timers wait and its replies find their way
back (C3). `penstock.coordinator.group.shard` says what a host must do, and in which order.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import count
from typing import Any, cast
from uuid import UUID

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.group_log import append_records, read_group_log
from penstock.broker.internal_topics import GROUP_METADATA_TOPIC
from penstock.broker.replicas import ReplicaManager
from penstock.broker.request import Request
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, Delete, PartitionRecord, Put
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
from penstock.coordinator.group.records import Skipped
from penstock.coordinator.group.replies import refusal
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.machine import Reply, SetTimer, TimerFired
from penstock.coordinator.partition_of import partition_of
from penstock.coordinator.timers import TimerQueue
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.list_groups import ListGroupsRequest

logger = logging.getLogger("penstock.groups")

CreateTopic = Callable[[str, int, int, dict[str, str]], Coroutine[Any, Any, None]]
"""Makes an internal topic: name, partitions, replication factor, settings."""


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


class GroupCoordinator:
    """Groups and their offsets, for the handlers. Everything runs on the event loop."""

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
        self._broker_id = broker_id
        self._config = config
        self._image = image
        self._replicas = replicas
        self._workers = workers
        self._clock = clock
        self._create_topic = create_topic
        self._topics = _Topics(image)
        self._shards: dict[int, GroupShard | None] = {}
        """By partition; None while it is being loaded."""
        self._loading: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._numbers = count(1)
        self._timers: TimerQueue[tuple[int, Timer]] = TimerQueue()
        self._alarm: asyncio.TimerHandle | None = None

    # --- for the handlers

    def coordinator_of(self, group_id: str) -> int:
        """The broker that coordinates a group; -1 where that is not known yet."""
        topic = self._image.topics.get(GROUP_METADATA_TOPIC)
        if topic is None:
            return -1
        index = partition_of(group_id, len(topic.assignments))
        return self._image.partitions[TopicPartition(GROUP_METADATA_TOPIC, index)].leader

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
        topic = self._image.topics.get(GROUP_METADATA_TOPIC)
        if topic is None:
            return _done(refusal(body, request.version, ErrorCode.NOT_COORDINATOR))
        return self._ask(partition_of(group_id, len(topic.assignments)), request, body)

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

    def _ask(self, partition: int, request: Request, body: Message) -> "asyncio.Future[Message]":
        shard = self._shards.get(partition)
        if shard is None:
            code = (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                if partition in self._shards
                else ErrorCode.NOT_COORDINATOR
            )
            return _done(refusal(body, request.version, code))
        number = next(self._numbers)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        context = Context(
            number,
            request.version,
            request.client_id,
            f"/{request.session.host}",
            str(uuid.uuid4()),
            self._topics,
        )
        self._handle(partition, shard, Requested(body, context))
        return future

    # --- driving the machine

    def _handle(self, partition: int, shard: GroupShard, event: Event) -> None:
        shard.config = self._group_config()
        self._settle(partition, shard, shard.handle(event, self._clock.now_ms()))

    def _settle(self, partition: int, shard: GroupShard, result: Result) -> None:
        """Appends, applies, sets timers and replies, until there is nothing left to do."""
        while result.records:
            try:
                replica = self._replicas.find(GROUP_METADATA_TOPIC, partition)
                append_records(replica, result.records, self._clock.now_ms(), result.atomic)
                break
            except KafkaError as error:
                logger.error(
                    "%s-%d could not be written: %s",
                    GROUP_METADATA_TOPIC,
                    partition,
                    error.message,
                )
                result = shard.failed(result, error.code, self._clock.now_ms(), applied=False)
        for change in result.changes:
            shard.apply(change)
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self._timers.set((partition, timer.timer), timer.deadline_ms)
            else:
                self._timers.cancel((partition, timer.timer))
        if result.timers:
            self._set_alarm()
        self._reply(result.replies)

    def _reply(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            future = self._waiting.pop(reply.waiter, None)
            if future is not None and not future.done():
                future.set_result(reply.response)

    def _set_alarm(self) -> None:
        deadline = self._timers.next_deadline()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if deadline is not None:
            delay_ms = max(0, deadline - self._clock.now_ms())
            self._alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        while (due := self._timers.pop_due(self._clock.now_ms())) is not None:
            partition, timer = due
            shard = self._shards.get(partition)
            if shard is not None:
                self._handle(partition, shard, TimerFired(timer))
        self._set_alarm()

    def _group_config(self) -> GroupConfig:
        config = self._config
        return GroupConfig(
            group_min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
            group_max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
            group_initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
            group_max_size=config.int("group.max.size"),
            offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
            offsets_retention_minutes=config.int("offsets.retention.minutes"),
            offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
        )

    # --- leadership

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows who leads `__consumer_offsets`, and which partitions are gone."""
        gone: set[TopicPartition] = set()
        for change in changes:
            match change:
                case Put(PartitionRecord(topic, partition, leader)) if topic == (
                    GROUP_METADATA_TOPIC
                ):
                    if leader == self._broker_id:
                        self._load(partition)
                    else:
                        self._unload(partition)
                case Delete(TopicPartition() as key):
                    if key.topic == GROUP_METADATA_TOPIC:
                        self._unload(key.partition)
                    else:
                        gone.add(key)
        if gone:
            for partition, shard in list(self._shards.items()):
                if shard is not None:
                    self._handle(partition, shard, PartitionsDeleted(frozenset(gone)))

    def _load(self, partition: int) -> None:
        if partition in self._shards:
            return
        self._shards[partition] = None
        task = asyncio.get_running_loop().create_task(self._run_load(partition))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _run_load(self, partition: int) -> None:
        shard = GroupShard(self._group_config())
        try:
            replica = self._replicas.find(GROUP_METADATA_TOPIC, partition)
            async for records in read_group_log(replica.log, self._workers):
                for record in records:
                    if isinstance(record, Skipped):
                        logger.warning("%s-%d: %s", GROUP_METADATA_TOPIC, partition, record.note)
                    else:
                        shard.apply(record)
        except KafkaError as error:
            logger.error(
                "%s-%d could not be loaded: %s", GROUP_METADATA_TOPIC, partition, error.message
            )
            self._shards.pop(partition, None)
            return
        if partition in self._shards:
            self._shards[partition] = shard
            self._settle(partition, shard, shard.loaded(self._clock.now_ms()))

    def _unload(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            self._reply(shard.unload())

    def resign(self) -> None:
        """The broker stops: who waits for others to join is sent to look for a coordinator."""
        for partition in list(self._shards):
            self._unload(partition)

    async def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        for task in self._loading:
            task.cancel()
        await asyncio.gather(*self._loading, return_exceptions=True)


def _done(answer: Message) -> "asyncio.Future[Message]":
    future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future
