"""Hosts the machine of a coordinator: a shard for each partition of its topic that is led here.

The machine decides; here its records are appended, its timers wait and its responses find their way
back. `penstock.coordinator.group.shard` says what a host must do, and in which order.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Hashable, Iterable
from functools import partial
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.coordinator.log import BatchReader, read_log
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica_manager import Replica, ReplicaManager
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, Delete, PartitionRecord, Put
from penstock.coordinator.machine import CoordinatorResult, Response, SetTimer, Shard, TimerFired
from penstock.coordinator.partitioning import partition_for
from penstock.coordinator.timers import TimerQueue
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.storage.log.results import LogAppendInfo

logger = logging.getLogger("penstock.coordinators")

CreateTopic = Callable[[str, int, int, dict[str, str]], Coroutine[Any, Any, None]]
"""Makes an internal topic: name, partitions, replication factor, settings."""

S = TypeVar("S", bound=Shard[Any, Any])
E = TypeVar("E")
R = TypeVar("R", bound=CoordinatorResult[Any])
T = TypeVar("T", bound=Hashable)
L = TypeVar("L")
"""What a shard is loaded from: records, and whatever else a batch says."""


class CoordinatorContext(NamedTuple):
    """What every coordinator works with."""

    broker_id: int
    config: BrokerConfig
    image: ClusterImage
    replicas: ReplicaManager
    flushes: LogFlusher
    workers: Workers
    clock: Clock
    create_topic: CreateTopic


class CoordinatorHost(ABC, Generic[S, E, R, T, L]):
    """The shards of one topic. Everything runs on the event loop."""

    topic: str

    def __init__(self, surroundings: CoordinatorContext) -> None:
        (
            self._broker_id,
            self._config,
            self._image,
            self._replicas,
            self._flushes,
            self._workers,
            self._clock,
            self._create_topic,
        ) = surroundings
        self._shards: dict[int, S | None] = {}
        """By partition; None while it is being loaded."""
        self._loads: dict[int, int] = {}
        """The number of the load of each partition: one that was lost and regained has another."""
        self._flushing: dict[int, asyncio.Future[None]] = {}
        """By partition: the last flush that responses wait for (`flush.messages`)."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._numbers = count(1)
        self._timers: TimerQueue[tuple[int, T]] = TimerQueue()
        """By the monotonic clock: when somebody sets the other one, nobody's session is over."""
        self._timer_handle: asyncio.TimerHandle | None = None

    # --- what differs between coordinators

    @abstractmethod
    def _new_shard(self) -> S: ...

    @abstractmethod
    def _configure(self, shard: S) -> None:
        """Tells a shard the settings of now: they may have changed while it was loaded."""

    @abstractmethod
    def _reader(self) -> BatchReader[L]:
        """Reads the batches of one partition while it is loaded."""

    @abstractmethod
    def _load_item(self, partition: int, shard: S, item: L) -> None:
        """Takes over something that the log says."""

    @abstractmethod
    def _timer_event(self, fired: TimerFired[T]) -> E: ...

    @abstractmethod
    def _append(self, replica: Replica, result: R) -> LogAppendInfo:
        """Appends the records of a result; KafkaError where they are not in the log then."""

    @abstractmethod
    def _apply(self, shard: S, result: R) -> None:
        """Has the shard take over what was decided."""

    @abstractmethod
    def _refusal(self, request: Message, version: int, error: ErrorCode) -> Message: ...

    def _perform(self, partition: int, shard: S, result: R) -> None:
        """Starts the effects of a result, where the machine has any."""

    def _after_load(self, partition: int, shard: S) -> None:
        """Tells a shard what happened while it was being loaded, where it has to know."""

    # --- requests

    def coordinator_of(self, key: str) -> int:
        """The broker that coordinates a group or transactional id; -1 where that is not known."""
        partition = self.partition_for(key)
        if partition is None:
            return -1
        return self._image.partitions[TopicPartition(self.topic, partition)].leader

    def partition_for(self, key: str) -> int | None:
        """The partition that a group or transactional id belongs to; None without a topic."""
        topic = self._image.topics.get(self.topic)
        return None if topic is None else partition_for(key, len(topic.assignments))

    def submit(
        self, partition: int | None, request: Message, version: int, event: Callable[[int], E]
    ) -> "asyncio.Future[Message]":
        """Puts a request to the shard of a partition. `event` gets the number of the waiter."""
        shard = None if partition is None else self._shards.get(partition)
        if partition is None or shard is None:
            code = (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                if partition in self._shards
                else ErrorCode.NOT_COORDINATOR
            )
            return _done(self._refusal(request, version, code))
        number = next(self._numbers)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._handle(partition, shard, event(number))
        return future

    # --- driving the machine

    def _handle(self, partition: int, shard: S, event: E) -> None:
        self._commit_result(partition, shard, shard.handle(event, self._clock.now_ms()))

    def _commit_result(self, partition: int, shard: S, result: R) -> None:
        """Appends, applies and sets timers; then responses and starts effects, once that is due."""
        while result.records:
            try:
                replica = self._replicas.find(self.topic, partition)
                self._flush(partition, replica, self._append(replica, result))
                break
            except KafkaError as error:
                logger.error("%s-%d could not be written: %s", self.topic, partition, error.message)
                result = shard.write_failed(result, error.code, self._clock.now_ms(), applied=False)
        self._apply_result(partition, shard, result)
        flushing = self._flushing.get(partition)
        if flushing is None or flushing.done():
            self._respond(result.responses)
            self._perform(partition, shard, result)
        else:
            # What it says may rest on records that are not durable yet, even if it has none.
            flushing.add_done_callback(partial(self._flushed, partition, shard, result))

    def _apply_result(self, partition: int, shard: S, result: R) -> None:
        self._apply(shard, result)
        ahead_ms = self._clock.monotonic_ms() - self._clock.now_ms()
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self._timers.set((partition, timer.timer), timer.deadline_ms + ahead_ms)
            else:
                self._timers.cancel((partition, timer.timer))
        if result.timers:
            self._schedule_timers()

    def _flush(self, partition: int, replica: Replica, info: LogAppendInfo) -> None:
        if info.needs_flush:
            self._flushing[partition] = self._flushes.flush(replica.log)
        elif info.has_rolled:
            self._flushes.flush(replica.log)

    def _flushed(
        self, partition: int, shard: S, result: R, flushing: "asyncio.Future[None]"
    ) -> None:
        """Goes on with a result that has waited until it is durable, or cannot be."""
        if flushing.cancelled() or flushing.exception() is not None:
            error = ErrorCode.KAFKA_STORAGE_ERROR
            result = shard.write_failed(result, error, self._clock.now_ms(), applied=True)
            self._apply_result(partition, shard, result)
        self._respond(result.responses)
        if self._shards.get(partition) is shard:
            self._perform(partition, shard, result)

    def _respond(self, responses: Iterable[Response]) -> None:
        for response in responses:
            future = self._waiting.pop(response.waiter, None)
            if future is not None and not future.done():
                future.set_result(response.message)

    def _schedule_timers(self) -> None:
        deadline = self._timers.next_deadline()
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None
        if deadline is not None:
            delay_ms = max(0, deadline - self._clock.monotonic_ms())
            self._timer_handle = asyncio.get_running_loop().call_later(
                delay_ms / 1000, self._fire_due_timers
            )

    def _fire_due_timers(self) -> None:
        self._timer_handle = None
        try:
            while (due := self._timers.pop_due(self._clock.monotonic_ms())) is not None:
                partition, timer = due
                shard = self._shards.get(partition)
                if shard is not None:
                    self._handle(partition, shard, self._timer_event(TimerFired(timer)))
        finally:
            # Whatever became of one timer: the others are due in their time.
            self._schedule_timers()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work beside the loop; it ends with the coordinator at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reconfigure(self) -> None:
        """Settings have changed: every shard that is there hears of them."""
        for shard in self._shards.values():
            if shard is not None:
                self._configure(shard)

    # --- leadership

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows who leads the partitions of the topic."""
        for change in changes:
            match change:
                case Put(PartitionRecord(topic, partition, leader)) if topic == self.topic:
                    if leader == self._broker_id:
                        self._load(partition)
                    else:
                        self._unload(partition)
                case Delete(TopicPartition(topic, partition)) if topic == self.topic:
                    self._unload(partition)

    def _load(self, partition: int) -> None:
        if partition not in self._shards:
            self._shards[partition] = None
            self._loads[partition] = number = next(self._numbers)
            self._spawn(self._run_load(partition, number))

    async def _run_load(self, partition: int, number: int) -> None:
        shard = self._new_shard()
        try:
            replica = self._replicas.find(self.topic, partition)
            async for items in read_log(replica.log, self._workers, self._reader()):
                for item in items:
                    self._load_item(partition, shard, item)
        except KafkaError as error:
            logger.error("%s-%d could not be loaded: %s", self.topic, partition, error.message)
            self._forget_load(partition, number)
            return
        except Exception:  # whatever it is: nobody must be told for ever that it is being loaded
            logger.exception("%s-%d could not be loaded", self.topic, partition)
            self._forget_load(partition, number)
            return
        if self._loads.get(partition) == number:
            self._shards[partition] = shard
            self._configure(shard)
            self._commit_result(partition, shard, shard.start(self._clock.now_ms()))
            self._after_load(partition, shard)

    def _forget_load(self, partition: int, number: int) -> None:
        if self._loads.get(partition) == number:
            self._unload(partition)

    def _unload(self, partition: int) -> None:
        self._loads.pop(partition, None)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            self._respond(shard.unload())
            self._timers.cancel_where(lambda key: key[0] == partition)

    def resign(self) -> None:
        """The broker stops: who waits is sent to look for a coordinator."""
        for partition in list(self._shards):
            self._unload(partition)

    async def close(self) -> None:
        if self._timer_handle is not None:
            self._timer_handle.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _done(answer: Message) -> "asyncio.Future[Message]":
    future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future
