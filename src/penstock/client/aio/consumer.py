"""The asyncio consumer, on the caller's event loop.

`penstock.client.consumer.consumer`, the blocking consumer, is generated from this file by
`tools/unasync.py`.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from penstock.client.aio.caller_loop import CallerLoop, TimedEvent, await_result
from penstock.client.consumer.arrow import no_records
from penstock.client.consumer.core import (
    NO_LIMIT,
    CommitCallback,
    ConsumerCore,
    Watermarks,
    logger,
)
from penstock.client.consumer.driver import ConsumerDriver
from penstock.client.consumer.group.actions import RebalanceEvent, RebalanceKind
from penstock.client.consumer.guards import TaskGuard
from penstock.client.consumer.positions import EARLIEST, LATEST
from penstock.client.consumer.record import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    RebalanceListener,
    SubscriptionPattern,
)
from penstock.client.metrics import MetricName
from penstock.client.settings import ConsumerOptions, resolve
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy.ext.asyncio import AsyncEngine

    from penstock.client.external_offsets.aio import AioExternalOffsets, AioTransaction
    from penstock.client.external_offsets.store import OffsetStore

R = TypeVar("R")

P = ParamSpec("P")

_CLOSE_TIMEOUT_S = 30.0
_ITERATION_WAIT_S = 3600.0


def _call_of_driver(
    call: Callable[Concatenate[ConsumerDriver, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["Consumer", P], Coroutine[Any, Any, R]]:
    """Returns a method of the consumer that runs a call of its driver on the loop."""

    @wraps(call)
    async def run(self: "Consumer", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._guard:
            await self._ensure_open()
            return await self._caller_loop.run(call(self._driver, *args, **kwargs))

    return run


class Consumer:
    """Reads records, alone or as a member of a group.

        async with Consumer(bootstrap_servers="localhost:9092", group_id="reports") as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                print(record.value)

    Records are fetched ahead in the background. Rebalance listeners and commit callbacks run within
    `poll` and may be coroutine functions. A consumer is for one task at a time; only `wakeup` may
    be called from other threads. Timeouts are in seconds; a call without one takes
    `default_api_timeout_ms` at most.
    """

    def __init__(self, **options: Unpack[ConsumerOptions]) -> None:
        settings = resolve(ConsumerOptions, options)
        self._guard = TaskGuard()
        self._ready = TimedEvent()
        self._external_offsets: AioExternalOffsets | None = None
        self._unsubscribing: asyncio.Task[None] | None = None  # asyncio only
        self._core = ConsumerCore(
            settings,
            SystemClock(),
            on_ready=self._ready.set,
            post=lambda call: self._caller_loop.post(call),
        )
        self._driver = self._core.driver
        self._caller_loop = CallerLoop()
        self._caller_loop.open(self._driver.start)

    async def start(self) -> None:  # asyncio only
        """Starts the consumer; `async with` and the first call do so too."""
        if not self._caller_loop.is_running:
            await self._ensure_open()

    # --- subscription

    def subscribe(
        self,
        topics: str | Collection[str] | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads these topics as a member of the group; replaces the previous subscription.

        A compiled pattern must match the whole name of a topic, and also selects topics that are
        created later. No topics at all are the same as `unsubscribe`.
        """
        with self._guard.instant:
            if not topics:
                self._unsubscribe_in_background()  # asyncio only
                # blocking only: self.unsubscribe()
                return
            self._end_unsubscribe()  # asyncio only
            self._core.subscribe(topics, listener)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Reads exactly these partitions, without a group."""
        with self._guard.instant:
            self._end_unsubscribe()  # asyncio only
            self._core.assign(partitions)

    async def unsubscribe(self) -> None:
        """Stops reading and leaves the group, which assigns the partitions to other members."""
        with self._guard:
            await self._ensure_open()
            await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        await self._leave_group(self._driver.deadline(None))
        self._core.unsubscribe()

    def _unsubscribe_in_background(self) -> None:  # asyncio only
        """Starts to unsubscribe; the next call that waits, or `close`, waits for the end of it."""
        if not self._caller_loop.is_running:
            self._core.unsubscribe()
        elif self._unsubscribing is None:
            self._unsubscribing = asyncio.ensure_future(self._unsubscribe())

    def _end_unsubscribe(self) -> None:  # asyncio only
        """Completes `_unsubscribe_in_background` at once, because the caller subscribes again."""
        if self._unsubscribing is not None:
            self._unsubscribing.cancel()
            self._unsubscribing = None
            self._core.unsubscribe()

    async def _wait_for_unsubscribe(self) -> None:  # asyncio only
        if self._unsubscribing is not None:
            task, self._unsubscribing = self._unsubscribing, None
            await task

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that this consumer reads now."""
        return self._core.subscriptions.assigned_partitions()

    def subscription(self) -> set[str]:
        """Returns the subscribed topics, also those that match the subscribed pattern."""
        return set(self._core.subscriptions.subscription.topics)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the membership that `Producer.send_offsets_to_transaction` takes."""
        return self._driver.require_group().group_metadata()

    # --- poll

    async def poll(
        self, timeout: float = 0.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Returns the next records, at most `max_records` (or `max_poll_records`).

        Waits for the first one; the list is empty after `timeout` seconds without any. Calls
        rebalance listeners and the callbacks of commits. Raises WakeupError after `wakeup`, and
        the errors of background work.
        """
        limit = max_records or self._core.settings["max_poll_records"]
        with self._guard:
            return await self._wait_for(timeout, lambda: self._core.take_records(limit)) or []

    async def poll_arrow(
        self, timeout: float = 0.0, max_records: int | None = None
    ) -> "pa.RecordBatch":
        """Polls into columns: topic, partition, offset, timestamp, key, value, headers.

        For bulk reads: it returns whole fetches until there are at least `max_records` rows, and no
        rows after `timeout` seconds without any. Deserializers and interceptors are not called.
        """
        limit = max_records or NO_LIMIT
        with self._guard:
            batch = await self._wait_for(timeout, lambda: self._core.take_arrow(limit))
        return batch if batch is not None else no_records()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Yields records without end. Only yielded records count as consumed."""
        core = self._core
        limit = core.settings["max_poll_records"]
        while True:
            with self._guard:
                if not core.iteration_buffer:
                    records = await self._wait_for(
                        _ITERATION_WAIT_S, lambda: core.take_records(limit)
                    )
                    core.iteration_buffer.extend(records or ())
                record = core.iteration_buffer.popleft() if core.iteration_buffer else None
            if record is not None:
                yield record

    def wakeup(self) -> None:
        """Makes the poll that waits, or the next one, raise WakeupError. For any thread."""
        self._core.is_woken = True
        self._caller_loop.post_threadsafe(self._ready.set)

    async def _wait_for(self, timeout: float, take: Callable[[], R | None]) -> R | None:
        await self._ensure_open()  # asyncio only
        self._core.is_polling = True
        try:
            return await self._poll(timeout, take)
        finally:
            self._core.is_polling = False

    async def _poll(self, timeout: float, take: Callable[[], R | None]) -> R | None:
        self._core.begin_poll()
        if self._external_offsets is not None:
            await self._external_offsets.prepare()
        # Full buffers must not keep the loop from fetching, nor other tasks from running.
        await asyncio.sleep(0)  # asyncio only
        deadline = time.monotonic() + timeout
        ready = self._ready
        while True:
            ready.clear()
            await self._run_callbacks()
            taken = take()
            if taken is not None:
                # At once: what was taken would be lost if the caller were interrupted now.
                return taken
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return None
            await ready.wait(remaining_s)

    async def _run_callbacks(self) -> None:
        """Raises pending errors, calls listeners and callbacks, starts a commit that is due."""
        core = self._core
        core.raise_errors()
        await self._run_commit_callbacks()
        while (event := core.next_rebalance()) is not None:
            await self._handle_rebalance(event)
        if core.is_auto_commit_due():
            core.start_commit(core.consumed_positions(), None, is_auto=True)

    async def _run_commit_callbacks(self) -> None:
        for result in self._core.run_commit_callbacks():
            await await_result(result)

    async def _handle_rebalance(self, event: RebalanceEvent) -> None:
        core = self._core
        failure: Exception | None = None
        try:
            if event.kind is RebalanceKind.REVOKED and core.has_auto_commit:
                await self._auto_commit(self._driver.deadline(None))
            await await_result(core.notify_listeners(event))
        except Exception as error:
            failure = error
            raise
        finally:
            core.complete_rebalance(event, failure)

    # --- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continues from this offset with the next poll."""
        with self._guard.instant:
            self._core.seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continues from the first record of these partitions, or of all that are assigned."""
        with self._guard.instant:
            self._core.seek_to(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continues after the last record of these partitions, or of all that are assigned."""
        with self._guard.instant:
            self._core.seek_to(partitions, LATEST)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Returns no records of these partitions until `resume`; fetched ones are kept."""
        with self._guard.instant:
            self._core.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads partitions again that were paused."""
        with self._guard.instant:
            self._core.resume(partitions)

    def paused(self) -> set[TopicPartition]:
        """Returns the partitions that are paused."""
        return self._core.subscriptions.paused_partitions()

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Returns the offset of the next record to be polled; waits until it is known."""
        partition = TopicPartition(*partition)
        with self._guard:
            await self._ensure_open()
            deadline_ms = self._driver.deadline(timeout)
            position = await self._caller_loop.run(self._driver.position(partition, deadline_ms))
            consumed = self._core.consumed_positions().get(partition)
            return position if consumed is None else min(position, consumed.offset)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Returns the number of offsets up to the partition's end; None until the end is known."""
        return self._core.current_lag(partition)

    def watermarks(self, partition: TopicPartition) -> Watermarks:
        """Returns the offsets of the partition's log according to the last fetch."""
        return self._core.watermarks(partition)

    offsets_for_times = _call_of_driver(ConsumerDriver.offsets_for_times)
    beginning_offsets = _call_of_driver(ConsumerDriver.beginning_offsets)
    end_offsets = _call_of_driver(ConsumerDriver.end_offsets)

    # --- commits

    committed = _call_of_driver(ConsumerDriver.committed)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commits these offsets, or those after all polled records, and waits for the result."""
        with self._guard:
            await self._ensure_open()
            positions = self._core.offsets_to_commit(offsets)
            deadline_ms = self._driver.deadline(timeout)
            # An earlier asynchronous commit must not arrive after this one.
            await self._caller_loop.run(self._driver.wait_for_background(deadline_ms))
            await self._run_commit_callbacks()
            offsets_of_group = self._driver.require_group().offsets
            await self._caller_loop.run(offsets_of_group.commit(positions, deadline_ms))
            self._core.interceptors.on_commit(positions)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commits in the background; a later poll (or close) calls `callback(offsets, error)`.

        There is one attempt: after a retriable error, commit again with newer offsets.
        """
        with self._guard.instant:
            self._core.start_commit(self._core.offsets_to_commit(offsets), callback)

    def transaction(
        self,
        engine: "AsyncEngine",
        *,
        store: "OffsetStore | None" = None,
        group_id: str | None = None,
        commit_to_group: bool = True,
    ) -> "AbstractAsyncContextManager[AioTransaction]":
        """Stores results and offsets in one database transaction: each record counts once.

            async with consumer.transaction(engine) as tx:
                for record in await consumer.poll(1.0):
                    connection = await tx.connection()
                    await connection.execute(insert(orders).values(...))

        The end of the block stores the polled offsets in a table of the same database and commits;
        if the block raises, both are rolled back and the records are polled again. From the first
        call on, partitions are read from the offsets in the database: call it before the first
        poll. It needs `enable_auto_commit=False` and the extra `penstock[sql]`; see
        docs/external-offsets.md.

        `group_id` is the name under which offsets are stored, by default the consumer's group. With
        `commit_to_group` they are also committed to the group, for tools that show lag.
        """
        from penstock.client.external_offsets.attach import attach_aio, check_same

        with self._guard:
            self._core.check_open()
            if self._external_offsets is None:
                self._external_offsets = attach_aio(
                    self, engine, store, group_id, commit_to_group=commit_to_group
                )
            check_same(self._external_offsets, engine, store, group_id)
            return self._external_offsets.transaction()

    # --- metadata

    partitions_for = _call_of_driver(ConsumerDriver.partitions_for)
    list_topics = _call_of_driver(ConsumerDriver.list_topics)

    def metrics(self) -> dict[MetricName, float]:
        """Returns the current value of every metric, under Kafka's names."""
        return self._driver.metrics.snapshot()

    # --- close

    async def close(self, timeout: float = _CLOSE_TIMEOUT_S) -> None:
        """Commits if that is automatic, leaves the group and closes the connections.

        May be called twice.
        """
        with self._guard:
            if self._core.is_closed:
                return
            deadline_ms = self._driver.deadline(timeout)
            try:
                await self._wait_for_unsubscribe()  # asyncio only
                await self._leave_group(deadline_ms)
            finally:
                self._core.is_closed = True
                await self._close_driver(deadline_ms)

    async def _close_driver(self, deadline_ms: int) -> None:
        try:
            await self._caller_loop.run(self._driver.close(deadline_ms))
        finally:
            # blocking only: self._caller_loop.close()
            self._core.interceptors.close()

    async def _leave_group(self, deadline_ms: int) -> None:
        """Commits and notifies the listener, then leaves."""
        if not self._caller_loop.is_running:  # asyncio only
            return
        await self._caller_loop.run(self._driver.wait_for_background(deadline_ms))
        await self._run_commit_callbacks()
        if self._core.has_auto_commit:
            await self._auto_commit(deadline_ms)
        event = await self._caller_loop.run(self._driver.prepare_leave())
        if event is not None:
            await await_result(self._core.notify_listeners(event))
        await self._caller_loop.run(self._driver.leave(deadline_ms))

    async def _auto_commit(self, deadline_ms: int) -> None:
        """Commits all consumed positions; logs a failure."""
        positions = self._core.consumed_positions()
        if not positions:
            return
        try:
            offsets_of_group = self._driver.require_group().offsets
            await self._caller_loop.run(offsets_of_group.commit(positions, deadline_ms))
        except KafkaError as error:
            logger.warning("offsets were not committed: %s", error.message)
        else:
            self._core.interceptors.on_commit(positions)

    async def _ensure_open(self) -> None:
        self._core.check_open()
        await self._caller_loop.ensure_started()  # asyncio only
        await self._wait_for_unsubscribe()  # asyncio only

    async def __aenter__(self) -> Self:
        await self.start()  # asyncio only
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()
