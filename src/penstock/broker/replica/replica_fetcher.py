"""A replica fetcher: the task that copies partitions from one leader broker (R2, R4).

It runs a `FollowerMachine`, which decides everything: it sends the machine's requests, appends the
fetched records to the local logs and truncates these logs. Appends run on the event loop, like
those of a leader; a fetch with many partitions is divided into slices. Truncations run on a thread,
while the other partitions are fetched.

A Fetch acknowledges to the leader that everything below its offset is stored here. So it is sent
only after the records were written, and flushed if `flush.messages` requires it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Protocol, TypeVar, Unpack

from penstock.broker.replica.follower_throttle import FollowerThrottle
from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.replica.replica import Replica
from penstock.broker.workers import Workers
from penstock.core.clock import Clock
from penstock.core.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaError,
    KafkaStorageError,
)
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import Request, RequestOptions
from penstock.protocol.fields import Message
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from penstock.replication.follower import (
    FollowerMachine,
    FollowerRequest,
    FollowerResponse,
)
from penstock.replication.follower_effects import (
    Append,
    Effect,
    InitialFetch,
    Restart,
    Truncate,
)
from penstock.replication.follower_fetch_state import PartitionFetchState
from penstock.storage.log.log import Log
from penstock.storage.manager.log_manager import LogManager

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)

_SLICE_S: Final = 0.005
_BUSY_RETRY_S: Final = 0.005
_REPORTED_ATTEMPT: Final = 3
_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
_LARGE_REQUEST: Final = 500
"""Partitions in a request above which the event loop runs other work between the steps."""


class FetcherClient(Protocol):
    """Sends requests to other brokers over connections of its own."""

    async def request(
        self,
        broker_id: int,
        message: Request,
        response_type: type[R],
        **options: Unpack[RequestOptions],
    ) -> R: ...

    async def close(self) -> None: ...


class FollowerLog:
    """The current log of a replica, as its fetcher reads it."""

    __slots__ = ("replica",)

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    @property
    def log_start_offset(self) -> int:
        return self.replica.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.replica.log.local.next_offset

    @property
    def latest_epoch(self) -> int | None:
        return self.replica.log.epochs.latest_epoch

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        return self.replica.log.end_offset_for_epoch(leader_epoch)


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """What all replica fetchers of a broker share."""

    logs: LogManager
    workers: Workers
    log_flusher: LogFlusher
    clock: Clock
    throttle: FollowerThrottle
    broker_epoch: Callable[[], int]
    start_operation: Callable[[TopicPartition, Coroutine[object, object, None]], None]
    """Runs a truncation; nothing else is done with the partition until it has ended."""


class ReplicaFetcher:
    """Fetches the partitions of `machine` from one leader broker until it is closed."""

    def __init__(
        self,
        leader_id: int,
        machine: FollowerMachine,
        client: FetcherClient,
        context: FetcherContext,
    ) -> None:
        self.leader_id = leader_id
        self.machine = machine
        self._client = client
        self._context = context
        self._wake_up = asyncio.Event()
        self._failed_attempts = 0
        self._is_closed = False
        self._task = asyncio.create_task(self._run())

    def add(self, key: TopicPartition, initial: InitialFetch) -> None:
        """Follows a partition; raises KafkaStorageError if its log is offline."""
        self.machine.add(key, initial)
        self._wake_up.set()

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Stops following; nothing is appended for these partitions any more."""
        if self.machine.remove(keys):
            self._wake_up.set()

    async def close(self) -> None:
        """Ends the task and closes the connection; truncations continue."""
        self._is_closed = True
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._client.close()

    # --- requests

    async def _run(self) -> None:
        while not self._is_closed:
            try:
                await self._run_once()
            except Exception:
                # Other partitions must be fetched again.
                logger.exception("the replica fetcher of broker %d failed", self.leader_id)
                await asyncio.sleep(1)

    async def _run_once(self) -> None:
        machine, clock = self.machine, self._context.clock
        # Before the request is built: what is added after that needs another one.
        self._wake_up.clear()
        request = machine.next_request(clock.monotonic_ms(), self._context.broker_epoch())
        if request is None:
            await self._wait(machine.wake_up_ms(clock.monotonic_ms()))
            return
        # Building a large request, encoding it and its response take tens of milliseconds each.
        is_large = _is_large(request)
        try:
            if is_large:
                await asyncio.sleep(0)
            response = await self._send(request)
            if is_large:
                await asyncio.sleep(0)
        except (KafkaError, OSError) as error:
            self._report_failure(error)
            machine.handle_failure(request, clock.monotonic_ms())
            return
        except BaseException:
            machine.handle_failure(request, clock.monotonic_ms())
            raise
        self._failed_attempts = 0
        await self._perform(machine.handle_response(request, response, clock.monotonic_ms()))
        if is_large:
            await asyncio.sleep(0)

    async def _wait(self, until_ms: int | None) -> None:
        timeout_s = None
        if until_ms is not None:
            timeout_s = max(0, until_ms - self._context.clock.monotonic_ms()) / 1000
        # Not `wait_for`: before Python 3.12 it ignores a cancellation that comes with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake_up.wait()

    async def _send(self, request: FollowerRequest) -> FollowerResponse:
        client, leader_id = self._client, self.leader_id
        if isinstance(request, FetchRequest):
            return await client.request(
                leader_id, request, FetchResponse, min_version=_FIRST_VERSION_WITH_REPLICA_STATE
            )
        if isinstance(request, ListOffsetsRequest):
            return await client.request(leader_id, request, ListOffsetsResponse)
        return await client.request(leader_id, request, OffsetForLeaderEpochResponse)

    def _report_failure(self, error: Exception) -> None:
        # Once, and not at first: a leader that is stopping closes its connections before there is
        # another, and a starting broker learns of leaders a moment before their addresses.
        self._failed_attempts += 1
        level = logging.WARNING if self._failed_attempts == _REPORTED_ATTEMPT else logging.DEBUG
        logger.log(level, "nothing can be fetched from leader broker %d: %s", self.leader_id, error)

    # --- effects

    async def _perform(self, effects: Iterable[Effect]) -> None:
        flushes: list[asyncio.Future[None]] = []
        slice_end = perf_counter() + _SLICE_S
        for effect in effects:
            state = effect.state
            if state.is_removed:
                continue
            if isinstance(effect, Truncate):
                self._start(state, self._truncate(effect))
            elif effect.restart is not None:
                self._start(state, self._restart(effect, effect.restart))
            else:
                self._append(effect, flushes)
                if perf_counter() > slice_end:
                    # Other requests are served, and may remove a partition.
                    await asyncio.sleep(0)
                    slice_end = perf_counter() + _SLICE_S
        if flushes:
            # An error has stopped the log, so that the next append fails.
            await asyncio.wait(flushes)

    def _append(self, append: Append, flushes: list["asyncio.Future[None]"]) -> None:
        state = append.state
        try:
            self._append_records(append, _replica_of(state), flushes)
        except (CorruptRecordError, InvalidRecordError) as error:
            # Damaged on its way, or while the leader's log was truncated.
            logger.error(
                "%s: the leader's records at offset %d are invalid: %s",
                state.key,
                state.fetch_offset,
                error.message,
            )
            self.machine.delay(state, self._context.clock.monotonic_ms())
        except KafkaStorageError as error:
            self._handle_storage_error(state, error)
        except Exception as error:
            logger.exception("%s: the leader's records cannot be appended", state.key)
            self.machine.fail(state, str(error))

    def _append_records(
        self, append: Append, replica: Replica, flushes: list["asyncio.Future[None]"]
    ) -> None:
        state, records, context = append.state, append.records, self._context
        log = replica.log
        if replica.partition.is_leader:
            self.machine.fail(state, "this broker leads it")
            return
        if log.local.next_offset != state.fetch_offset:
            logger.warning(
                "%s ends at %d, not at the fetched offset %d; it is fetched again",
                state.key,
                log.log_end_offset,
                state.fetch_offset,
            )
            self.machine.resume(state)
            return
        if records:
            info = log.append_as_follower(records, state.leader_epoch)
            replica.traffic.replication_bytes_in += len(records)
            if info.needs_flush or info.has_rolled:
                flush = context.log_flusher.flush(log)
                if info.needs_flush:
                    flushes.append(flush)
            if context.throttle.is_limited and context.throttle.is_throttled(state.key):
                context.throttle.record(len(records), context.clock.monotonic_ms())
        update = self.machine.appended(append)
        if update.high_watermark != log.high_watermark:
            replica.update_high_watermark(update.high_watermark)
        if update.log_start_offset is not None:
            log.increment_log_start_offset(update.log_start_offset)

    def _handle_storage_error(self, state: PartitionFetchState, error: KafkaStorageError) -> None:
        try:
            is_offline = _replica_of(state).log.failure is not None
        except KafkaStorageError:
            is_offline = True
        if is_offline:
            self.machine.fail(state, error.message)
        else:
            # There is no room for the records; the log continues when there is.
            self.machine.delay(state, self._context.clock.monotonic_ms())

    # --- truncations

    def _start(
        self, state: PartitionFetchState, operation: Coroutine[object, object, None]
    ) -> None:
        self._context.start_operation(state.key, self._run_operation(state, operation))

    async def _run_operation(
        self, state: PartitionFetchState, operation: Coroutine[object, object, None]
    ) -> None:
        try:
            await operation
        except KafkaError as error:
            self.machine.fail(state, error.message)
        except Exception as error:
            logger.exception("%s cannot be truncated", state.key)
            self.machine.fail(state, str(error))
        finally:
            self._wake_up.set()

    async def _truncate(self, truncate: Truncate) -> None:
        state, logs, workers = truncate.state, self._context.logs, self._context.workers
        log = await self._idle_log(state)
        if state.is_removed:
            return
        if truncate.offset < log.high_watermark:
            logger.warning(
                "%s is truncated to %d, below its high watermark %d",
                state.key,
                truncate.offset,
                log.high_watermark,
            )
        pool = workers.flush_pool_of(log.directory)
        if truncate.fully:
            await workers.start(pool, logs.begin_full_truncation(state.key, truncate.offset))
        else:
            await workers.start(pool, logs.begin_truncation(state.key, truncate.offset))
        self.machine.truncated(truncate)

    async def _restart(self, append: Append, restart: Restart) -> None:
        """Starts the log at the base offset of the first batch, then appends."""
        state, logs, workers = append.state, self._context.logs, self._context.workers
        log = await self._idle_log(state)
        if state.is_removed:
            return
        await workers.start(
            workers.flush_pool_of(log.directory), logs.begin_full_truncation(state.key, *restart)
        )
        if state.is_removed:
            return
        self.machine.resume(state)
        flushes: list[asyncio.Future[None]] = []
        self._append(append, flushes)
        if flushes:
            await asyncio.wait(flushes)

    async def _idle_log(self, state: PartitionFetchState) -> Log:
        """Returns the log once no flush, compaction or move uses its files."""
        replica = _replica_of(state)
        while replica.log.local.is_busy:
            await asyncio.sleep(_BUSY_RETRY_S)
        return replica.log


def _is_large(request: FollowerRequest) -> bool:
    count = 0
    for topic in request.topics:
        count += len(topic.partitions)
    return count > _LARGE_REQUEST


def _replica_of(state: PartitionFetchState) -> Replica:
    log = state.log
    assert isinstance(log, FollowerLog)
    return log.replica
