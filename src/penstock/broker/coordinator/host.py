"""The host of a coordinator: a shard for each partition of its topic that this broker leads.

The shard decides. The host loads it, appends its records, applies them, keeps its timers and sends
its responses. `penstock.coordinator.group.shard` describes what a host does, and in which order.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar, cast

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.coordinator.log import BatchReader, read_log
from penstock.broker.coordinator.pending_writes import PendingWrites
from penstock.broker.pacer import Pacer
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.replica_manager import ReplicaManager
from penstock.broker.workers import Workers
from penstock.controller.image import ClusterImage
from penstock.coordinator.machine import (
    CoordinatorResult,
    Damaged,
    Response,
    SetTimer,
    Shard,
    Skipped,
    TimerFired,
)
from penstock.coordinator.partitioning import partition_for
from penstock.coordinator.timers import TimerQueue
from penstock.coordinator.write_errors import client_error
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.storage.log.results import LogAppendInfo

logger = logging.getLogger(__name__)

_LOAD_RETRIES_S = (0.1, 0.5, 1.0, 2.0)
"""The pauses after which a log that could not be read is read again."""

CreateTopic = Callable[[str, int, int, Mapping[str, str]], Coroutine[Any, Any, None]]
"""Creates an internal topic: name, partitions, replication factor, settings."""

ShardT = TypeVar("ShardT", bound=Shard[Any, Any, Any])
"""The state machine of one partition."""
EventT = TypeVar("EventT")
"""The events that the shard handles."""
ResultT = TypeVar("ResultT", bound=CoordinatorResult[Any, Any])
"""The decisions of the shard."""
TimerT = TypeVar("TimerT", bound=Hashable)
"""The timers of the shard."""
ChangeT = TypeVar("ChangeT")
"""What the shard applies: records, and other facts that a batch of its log states."""


class CoordinatorContext(NamedTuple):
    """The collaborators of every coordinator."""

    broker_id: int
    config: BrokerConfig
    image: ClusterImage
    replicas: ReplicaManager
    flushes: LogFlusher
    workers: Workers
    pacer: Pacer
    clock: Clock
    create_topic: CreateTopic


class CoordinatorHost(ABC, Generic[ShardT, EventT, ResultT, TimerT, ChangeT]):
    """The shards of one topic. All methods run on the event loop."""

    topic: str

    def __init__(self, context: CoordinatorContext) -> None:
        (
            self._broker_id,
            self._config,
            self._image,
            self._replicas,
            self._flushes,
            self._workers,
            self._pacer,
            self._clock,
            self._create_topic,
        ) = context
        self._shards: dict[int, ShardT | None] = {}
        """The shards by partition; None while a shard is being loaded."""
        self._loads: dict[int, int] = {}
        """The number of the current load by partition: a later load has another number."""
        self._writes = PendingWrites(self._flushes)
        """The records of the shards that are not yet durable and committed."""
        self._stalled: set[int] = set()
        """Partitions with a write that takes longer than its timeout: they accept no requests until
        it has ended, so that those that wait do not pile up."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        """The responses of requests that the shards have not responded to, by waiter number."""
        self._numbers = count(1)
        self._timers: TimerQueue[tuple[int, TimerT]] = TimerQueue()
        """Deadlines on the monotonic clock: setting the wall clock must not end sessions."""
        self._timer_handle: asyncio.TimerHandle | None = None

    # --- implemented by each coordinator

    @abstractmethod
    def _new_shard(self) -> ShardT: ...

    @abstractmethod
    def _configure(self, shard: ShardT) -> None:
        """Sets the current settings of a shard: they may have changed while it was loaded."""

    @abstractmethod
    def _reader(self) -> BatchReader[ChangeT | Skipped]:
        """Returns the function that reads the batches of one partition while it is loaded."""

    @abstractmethod
    def _append(self, replica: Replica, result: ResultT) -> LogAppendInfo:
        """Appends the records of a result; raises a KafkaError if they are not in the log then."""

    @abstractmethod
    def _error_response(self, request: Message, version: int, error: ErrorCode) -> Message: ...

    @abstractmethod
    def _commit_timeout_ms(self) -> int:
        """Returns how long clients wait for replicas before they get an error."""

    def _perform(self, partition: int, shard: ShardT, result: ResultT) -> None:
        """Starts the effects of a result."""

    def _after_load(self, partition: int, shard: ShardT) -> None:
        """Passes events to a shard that happened while it was being loaded."""

    # --- requests

    def coordinator_of(self, key: str) -> int:
        """Returns the broker that coordinates a group or transactional id; -1 if it is unknown."""
        partition = self.partition_for(key)
        if partition is None:
            return -1
        return self._image.partitions[TopicPartition(self.topic, partition)].leader

    def partition_for(self, key: str) -> int | None:
        """Returns the partition of a group or transactional id; None if the topic does not
        exist."""
        topic = self._image.topics.get(self.topic)
        return None if topic is None else partition_for(key, len(topic.assignments))

    def shards(self) -> tuple[list[ShardT], int]:
        """Returns the loaded shards, and how many are being loaded."""
        loaded = [shard for shard in self._shards.values() if shard is not None]
        return loaded, len(self._shards) - len(loaded)

    def submit(
        self, partition: int | None, request: Message, version: int, event: Callable[[int], EventT]
    ) -> "asyncio.Future[Message]":
        """Sends a request to the shard of a partition; `event` creates its event for a waiter
        number.

        The future gets the response, at once if the shard is not loaded here.
        """
        shard = None if partition is None else self._shards.get(partition)
        if partition is None or shard is None:
            code = (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                if partition in self._shards
                else ErrorCode.NOT_COORDINATOR
            )
            return completed(self._error_response(request, version, code))
        if partition in self._stalled:
            code = client_error(ErrorCode.REQUEST_TIMED_OUT)
            return completed(self._error_response(request, version, code))
        number = next(self._numbers)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._handle(partition, shard, event(number))
        return future

    # --- running the shards

    def _handle(self, partition: int, shard: ShardT, event: EventT) -> None:
        self._commit_result(partition, shard, shard.handle(event, self._clock.now_ms()))

    def _commit_result(self, partition: int, shard: ShardT, result: ResultT) -> None:
        """Appends and applies a result and sets its timers.

        Responses are sent and effects start once everything appended so far is durable and
        committed; those of a result that could not be appended are sent at once.
        """
        is_appended = True
        while result.records:
            try:
                replica = self._replicas.find(self.topic, partition)
                self._writes.add(partition, replica, self._append(replica, result))
                break
            except KafkaError as error:
                logger.error("cannot write to %s-%d: %s", self.topic, partition, error.message)
                result = shard.write_failed(result, error.code, self._clock.now_ms(), applied=False)
                is_appended = False
        self._apply_result(partition, shard, result)
        # Even a result without records may depend on records that are not committed yet.
        write = self._writes.last(partition) if is_appended else None
        if write is None:
            self._respond(result.responses)
            self._perform(partition, shard, result)
        elif write.done():
            self._finish_result(partition, shard, result, write)
        else:
            self._wait_for_write(partition, shard, result, write)

    def _apply_result(self, partition: int, shard: ShardT, result: ResultT) -> None:
        for change in result.changes:
            shard.apply(change)
        monotonic_offset_ms = self._clock.monotonic_ms() - self._clock.now_ms()
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                self._timers.set((partition, timer.timer), timer.deadline_ms + monotonic_offset_ms)
            else:
                self._timers.cancel((partition, timer.timer))
        if result.timers:
            self._schedule_timers()

    def _wait_for_write(
        self, partition: int, shard: ShardT, result: ResultT, write: "asyncio.Future[None]"
    ) -> None:
        """Finishes a result when its write has; clients get an error if that takes too long."""

        def expire() -> None:
            nonlocal result
            now_ms = self._clock.now_ms()
            result = shard.write_failed(result, ErrorCode.REQUEST_TIMED_OUT, now_ms, applied=True)
            if self._shards.get(partition) is shard:
                self._apply_result(partition, shard, result)
            self._respond(result.responses)
            self._stall(partition, shard)

        def finish(write: "asyncio.Future[None]") -> None:
            timer.cancel()
            self._finish_result(partition, shard, result, write)

        timer = asyncio.get_running_loop().call_later(self._commit_timeout_ms() / 1000, expire)
        write.add_done_callback(finish)

    def _stall(self, partition: int, shard: ShardT) -> None:
        """Accepts no requests for the partition until one of its writes has ended."""
        if self._shards.get(partition) is shard and partition not in self._stalled:
            self._stalled.add(partition)
            logger.error(
                "%s-%d accepts no requests until its records are durable and committed, which "
                "takes longer than %d ms; check its disk and its replicas",
                self.topic,
                partition,
                self._commit_timeout_ms(),
            )

    def _finish_result(
        self, partition: int, shard: ShardT, result: ResultT, write: "asyncio.Future[None]"
    ) -> None:
        """Continues with a result once the write that it waited for has finished or failed."""
        self._stalled.discard(partition)
        is_current = self._shards.get(partition) is shard
        if write.cancelled() or write.exception() is not None:
            error = ErrorCode.KAFKA_STORAGE_ERROR
            if not write.cancelled() and isinstance(cause := write.exception(), KafkaError):
                error = cause.code
            result = shard.write_failed(result, error, self._clock.now_ms(), applied=True)
            self._respond(result.responses)
            if is_current:
                # Its state has decisions that may be lost: it must neither report them to clients
                # nor act on them. The log is offline until it has been recovered, or another broker
                # leads the partition.
                self._unload(partition)
            return
        self._respond(result.responses)
        if is_current:
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
                    self._handle(partition, shard, cast("EventT", TimerFired(timer)))
        finally:
            # A failure of one timer must not stop the others.
            self._schedule_timers()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a task that is cancelled when the coordinator is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reconfigure(self) -> None:
        """Passes changed settings to all shards."""
        for shard in self._shards.values():
            if shard is not None:
                self._configure(shard)

    # --- leadership

    def leaderships_changed(
        self, led: Iterable[TopicPartition], others: Iterable[TopicPartition]
    ) -> None:
        """Loads the partitions that this broker leads now, and unloads the others."""
        for topic, partition in led:
            if topic == self.topic:
                self._load(partition)
        for topic, partition in others:
            if topic == self.topic:
                self._unload(partition)

    def on_log_reloaded(self, key: TopicPartition) -> None:
        """Loads a shard again that was unloaded because its log had stopped."""
        record = self._image.partitions.get(key)
        if key.topic == self.topic and record is not None and record.leader == self._broker_id:
            self._load(key.partition)

    def _load(self, partition: int) -> None:
        if partition not in self._shards:
            self._shards[partition] = None
            self._loads[partition] = number = next(self._numbers)
            self._spawn(self._run_load(partition, number))

    async def _run_load(self, partition: int, number: int) -> None:
        try:
            shard = await self._read_shard(partition)
            replica = self._replicas.find(self.topic, partition)
            # Its directory may have failed since its last read.
            log_end_offset = replica.log.log_end_offset
        except KafkaError as error:
            logger.error("cannot load %s-%d: %s", self.topic, partition, error.message)
            self._abandon_load(partition, number)
            return
        except Exception:  # clients must not be told forever that it is being loaded
            logger.exception("cannot load %s-%d", self.topic, partition)
            self._abandon_load(partition, number)
            return
        if self._loads.get(partition) == number:
            self._shards[partition] = shard
            self._configure(shard)
            if replica.partition.followers:
                # A new leader has records of its predecessor that may not be committed.
                self._writes.add_offset(partition, replica, log_end_offset)
            self._commit_result(partition, shard, shard.start(self._clock.now_ms()))
            self._after_load(partition, shard)

    async def _read_shard(self, partition: int) -> ShardT:
        """Returns the shard with the state in its log; tries again if the log cannot be read."""
        for pause_s in _LOAD_RETRIES_S:
            shard = self._new_shard()
            log = self._replicas.find(self.topic, partition).log
            try:
                async for changes in read_log(log, self._workers, self._reader()):
                    async for change in self._pacer.each(changes):
                        self._apply_loaded(partition, shard, change)
            except OSError as error:
                logger.error("cannot read %s-%d: %s", self.topic, partition, error)
                await asyncio.sleep(pause_s)
            else:
                return shard
        raise KafkaStorageError(f"{self.topic}-{partition} cannot be read")

    def _apply_loaded(
        self, partition: int, shard: ShardT, change: ChangeT | Skipped | Damaged
    ) -> None:
        if isinstance(change, Damaged):
            # Only this batch is lost, not everything in the partition.
            logger.error(
                "%s-%d is damaged: %s. What the batch stated is lost",
                self.topic,
                partition,
                change.note,
            )
            shard.on_damage()
        elif isinstance(change, Skipped):
            logger.warning("%s-%d: %s", self.topic, partition, change.note)
        else:
            shard.apply(change)

    def _abandon_load(self, partition: int, number: int) -> None:
        if self._loads.get(partition) == number:
            self._unload(partition)

    def _unload(self, partition: int) -> None:
        self._loads.pop(partition, None)
        self._writes.forget(partition)
        self._stalled.discard(partition)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            self._respond(shard.unload())
            self._timers.cancel_where(lambda key: key[0] == partition)

    def resign(self) -> None:
        """Unloads all shards before the broker stops; waiting clients look for a new
        coordinator."""
        for partition in list(self._shards):
            self._unload(partition)

    async def close(self) -> None:
        if self._timer_handle is not None:
            self._timer_handle.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def completed(response: Message) -> "asyncio.Future[Message]":
    """Returns a future that already has its response."""
    future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    future.set_result(response)
    return future
