"""The asynchronous consumer: the blocking one's twin, on the user's own loop."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from penstock.client.consumer.arrow import no_records
from penstock.client.consumer.base import NO_LIMIT, CommitCallback, ConsumerBase, logger
from penstock.client.consumer.group.actions import RebalanceEvent, RebalanceKind
from penstock.client.consumer.positions import EARLIEST, LATEST
from penstock.client.consumer.record import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RebalanceListener,
    SubscriptionPattern,
)
from penstock.client.errors import ConcurrentUseError
from penstock.client.settings import ConsumerOptions
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import PartitionInfo

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy.ext.asyncio import AsyncEngine

    from penstock.client.external_offsets.aio import AioOutsideOffsets, AioTransaction
    from penstock.client.external_offsets.store import OffsetStore

R = TypeVar("R")

_CLOSE_TIMEOUT_S = 30.0
_ITERATION_WAIT_S = 3600.0


class _OneTask:
    """Lets one task in at a time, as often as it likes, and refuses others."""

    def __init__(self) -> None:
        self._owner: asyncio.Task[object] | None = None
        self._depth = 0

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if self._owner is not None and self._owner is not task:
            raise ConcurrentUseError(
                "this consumer is in use by another task: give each task a consumer of its own (of "
                "the same group), or hand records over through a queue"
            )
        self._owner = task
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


class Consumer(ConsumerBase):
    """Reads records, alone or as a member of a group.

        async with Consumer(bootstrap_servers="localhost:9092", group_id="reports") as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                print(record.value)

    Listeners and callbacks may be coroutine functions. For one task at a time. Times are in
    seconds; calls that name none take `default_api_timeout_ms` at most.
    """

    def __init__(self, **options: Unpack[ConsumerOptions]) -> None:
        self._use = _OneTask()
        self._ready = asyncio.Event()
        self._outside: AioOutsideOffsets | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before_start: list[Callable[[], None]] = []
        super().__init__(options, self._ready.set, self._to_loop)

    async def start(self) -> None:
        """Begin. `async with` does it; a second time changes nothing."""
        if self._loop is not None:
            return
        self._check_open()
        self._loop = asyncio.get_running_loop()
        await self._driver.start()
        for call in self._before_start:
            call()
        self._before_start.clear()

    # What to read

    def subscribe(
        self,
        topics: str | Collection[str] | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics as a member of the group, in place of what was subscribed to before.

        A compiled pattern must match a topic's whole name; topics that come later join in.
        """
        self._subscribe(topics, listener)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read these partitions, whatever others read; no group decides about it."""
        self._assign(partitions)

    async def unsubscribe(self) -> None:
        """Read nothing any more; the group gives the partitions to others."""
        with self._use:
            await self._open()
            await self._leave_group(self._driver.deadline(None))
            self._forget(self._subscriptions.assigned_partitions())
            self._subscriptions.unsubscribe()
            self._leftover.clear()

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on from this offset with the next poll."""
        self._seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on from the first record there is; without partitions, in all that are assigned."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on behind the last record; without partitions, in all that are assigned."""
        self._seek_to(partitions, LATEST)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give out nothing of these until `resume`; what was fetched of them is kept."""
        self._pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._resume(partitions)

    # Reading

    async def poll(
        self, timeout: float = 0.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records, at most `max_records` (or `max_poll_records`); waits for the first.

        Empty when the time is over. Rebalance listeners and callbacks of commits are called here.
        """
        limit = max_records or self._settings["max_poll_records"]
        with self._use:
            return await self._wait_for(timeout, lambda: self._take(limit)) or []

    async def poll_arrow(
        self, timeout: float = 0.0, max_records: int | None = None
    ) -> "pa.RecordBatch":
        """As `poll`, in columns: topic, partition, offset, timestamp, key, value, headers.

        For bulk: gives all that is there, in whole fetches, once there are `max_records`. Without
        rows when the time is over. Deserializers and interceptors do not take part.
        """
        with self._use:
            limit = max_records or NO_LIMIT
            taken = await self._wait_for(timeout, lambda: self._take_arrow(limit))
        return taken if taken is not None else no_records()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """One record after the other, for ever. Only those given out count as consumed."""
        limit = self._settings["max_poll_records"]
        while True:
            with self._use:
                if not self._leftover:
                    taken = await self._wait_for(_ITERATION_WAIT_S, lambda: self._take(limit))
                    self._leftover.extend(taken or ())
                record = self._leftover.popleft() if self._leftover else None
            if record is not None:
                yield record

    async def _wait_for(self, timeout: float, take: Callable[[], R | None]) -> R | None:
        await self._open()
        self._is_polling = True
        try:
            return await self._poll(timeout, take)
        finally:
            self._is_polling = False

    async def _poll(self, timeout: float, take: Callable[[], R | None]) -> R | None:
        self._begin_poll()
        if self._outside is not None:
            await self._outside.prepare()
        # Full buffers must not keep the loop from fetching, nor other tasks from running.
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        ready = self._ready
        while True:
            ready.clear()
            await self._serve()
            taken = take()
            if taken is not None:
                # At once: what is taken would be lost if the task were cancelled now.
                return taken
            left = deadline - loop.time()
            if left <= 0:
                return None
            try:
                async with asyncio.timeout(left):
                    await ready.wait()
            except TimeoutError:
                continue

    async def _serve(self) -> None:
        """What a poll does besides records."""
        self._raise_errors()
        await self._call_back()
        while (event := self._next_event()) is not None:
            await self._rebalance(event)
        if self._auto_commit_is_due():
            self._driver.keep(self._commit_later(self._consumed(), None, is_auto=True))

    async def _call_back(self) -> None:
        for result in self._tell_commits():
            await result

    async def _rebalance(self, event: RebalanceEvent) -> None:
        failure: Exception | None = None
        try:
            if event.kind is RebalanceKind.REVOKED and self._auto_commits:
                await self._commit_quietly(self._driver.deadline(None))
            await _done(self._tell_listener(event))
        except Exception as error:
            failure = error
            raise
        finally:
            self._event_done(event, failure)

    # Positions

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record to be given out; waits until it is known."""
        with self._use:
            await self._open()
            deadline_ms = self._driver.deadline(timeout)
            found = await self._driver.position(TopicPartition(*partition), deadline_ms)
            behind = self._consumed().get(TopicPartition(*partition))
            return found if behind is None else min(found, behind.offset)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has nothing."""
        with self._use:
            await self._open()
            return await self._driver.committed(partitions, self._driver.deadline(timeout))

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit these offsets, or all that polls have given out, and wait for it."""
        with self._use:
            await self._open()
            chosen = self._to_commit(offsets)
            deadline_ms = self._driver.deadline(timeout)
            # One that is still under way must not come after this one.
            await self._driver.settle(deadline_ms)
            await self._call_back()
            await self._driver.commit(chosen, deadline_ms)
            self._interceptors.on_commit(chosen)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting; a later poll (or close) calls `callback(offsets, error)`.

        It is tried once: commit again, with newer offsets, where `error` may go away by that.
        """
        chosen = self._to_commit(offsets)
        self._to_loop(lambda: self._driver.keep(self._commit_later(chosen, callback)))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (ms since 1970); None where there is none."""
        with self._use:
            await self._open()
            return await self._driver.offsets_for_times(timestamps, self._driver.deadline(timeout))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        with self._use:
            await self._open()
            deadline_ms = self._driver.deadline(timeout)
            return await self._driver.edge_offsets(partitions, end=False, deadline_ms=deadline_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that comes next: the high watermark, or the last stable offset."""
        with self._use:
            await self._open()
            deadline_ms = self._driver.deadline(timeout)
            return await self._driver.edge_offsets(partitions, end=True, deadline_ms=deadline_ms)

    def transaction(
        self,
        engine: "AsyncEngine",
        *,
        store: "OffsetStore | None" = None,
        group_id: str | None = None,
        commit_to_group: bool = True,
    ) -> "AbstractAsyncContextManager[AioTransaction]":
        """Results and offsets in one transaction of a database: each record counts once.

            async with consumer.transaction(engine) as tx:
                for record in await consumer.poll(1.0):
                    connection = await tx.connection()
                    await connection.execute(insert(orders).values(...))

        The end of the block saves how far was polled in a table of the same database and commits;
        if the block raises, both are undone and the records come again. Partitions are read from
        where the database says, from the first call on: call it before the first poll. Needs
        `enable_auto_commit=False` and the extra `penstock[sql]`; docs/offsets-outside.md says more.

        `group_id` is the name that offsets are stored under, the consumer's own unless given;
        with `commit_to_group` they are committed to the group as well, for tools that show lag.
        """
        from penstock.client.external_offsets.attach import attach_aio, check_same

        with self._use:
            self._check_open()
            if self._outside is None:
                self._outside = attach_aio(
                    self, engine, store, group_id, commit_to_group=commit_to_group
                )
            check_same(self._outside, engine, store, group_id)
            return self._outside.transaction()

    # The cluster

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        with self._use:
            await self._open()
            return await self._driver.partitions_for(topic, self._driver.deadline(timeout))

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics that this client may see."""
        with self._use:
            await self._open()
            return await self._driver.list_topics(self._driver.deadline(timeout))

    # The end

    async def close(self, timeout: float = _CLOSE_TIMEOUT_S) -> None:
        """Commit where that is automatic, leave the group, close the connections. Twice is fine."""
        with self._use:
            if self._is_closed:
                return
            deadline_ms = self._driver.deadline(timeout)
            try:
                if self._loop is not None:
                    await self._leave_group(deadline_ms)
            finally:
                self._is_closed = True
                await self._driver.close(deadline_ms)
                self._interceptors.close()

    async def _leave_group(self, deadline_ms: int) -> None:
        """Commit and tell the listener, before the partitions go."""
        await self._driver.settle(deadline_ms)
        await self._call_back()
        if self._auto_commits:
            await self._commit_quietly(deadline_ms)
        event = await self._driver.release()
        if event is not None:
            await _done(self._tell_listener(event))
        await self._driver.leave(deadline_ms)

    async def _commit_quietly(self, deadline_ms: int) -> None:
        offsets = self._consumed()
        if not offsets:
            return
        try:
            await self._driver.commit(offsets, deadline_ms)
        except KafkaError as error:
            logger.warning("offsets were not committed: %s", error.message)
        else:
            self._interceptors.on_commit(offsets)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def _open(self) -> None:
        self._check_open()
        if self._loop is None:
            await self.start()

    def wakeup(self) -> None:
        """Make the poll that waits, or the next one, raise WakeupError. From any thread."""
        self._is_woken = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ready.set)

    def _to_loop(self, call: Callable[[], None]) -> None:
        if self._loop is None:
            self._before_start.append(call)
        else:
            call()


async def _done(result: Awaitable[None] | None) -> None:
    if result is not None:
        await result
