"""The blocking consumer."""

import re
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

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
from penstock.client.errors import ConcurrentUseError, IllegalStateError
from penstock.client.loop_thread import LoopThread
from penstock.client.settings import ConsumerOptions
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import PartitionInfo

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Engine

    from penstock.client.external_offsets.store import OffsetStore
    from penstock.client.external_offsets.transaction import OutsideOffsets, Transaction

R = TypeVar("R")

_CLOSE_TIMEOUT_S = 30.0
_ITERATION_WAIT_S = 3600.0


class _OneThread:
    """Lets one thread in at a time, as often as it likes, and refuses others."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUseError(
                "this consumer is in use by another thread: give each thread a consumer of its "
                "own (of the same group), or hand records over through a queue; only wakeup() may "
                "be called from elsewhere"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Consumer(ConsumerBase):
    """Reads records, alone or as a member of a group.

        with Consumer(bootstrap_servers="localhost:9092", group_id="reports") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                print(record.value)

    Records are fetched ahead in the background, on a thread of its own; everything else happens
    within the calls. For one thread at a time: only `wakeup` may be called from others.
    Times are in seconds; calls that name none take `default_api_timeout_ms` at most.
    """

    def __init__(self, **options: Unpack[ConsumerOptions]) -> None:
        self._use = _OneThread()
        self._ready = threading.Event()
        self._outside: OutsideOffsets | None = None
        super().__init__(options, self._ready.set, self._to_loop)
        client_id = self._settings["client_id"] or "consumer"
        self._loop_thread = LoopThread(f"penstock-{client_id}")
        try:
            self._run(self._driver.start())
        except BaseException:
            self._loop_thread.close()
            raise

    # What to read

    def subscribe(
        self,
        topics: str | Collection[str] | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics as a member of the group, in place of what was subscribed to before.

        A compiled pattern must match a topic's whole name; topics that come later join in.
        """
        with self._use:
            if not isinstance(topics, re.Pattern | SubscriptionPattern) and not topics:
                self.unsubscribe()
                return
            self._subscribe(topics, listener)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read these partitions, whatever others read; no group decides about it."""
        with self._use:
            self._assign(partitions)

    def unsubscribe(self) -> None:
        """Read nothing any more; the group gives the partitions to others."""
        with self._use:
            self._check_open()
            self._leave_group()
            self._forget(self._subscriptions.assigned_partitions())
            self._subscriptions.unsubscribe()
            self._leftover.clear()

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on from this offset with the next poll."""
        with self._use:
            self._seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on from the first record there is; without partitions, in all that are assigned."""
        with self._use:
            self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on behind the last record; without partitions, in all that are assigned."""
        with self._use:
            self._seek_to(partitions, LATEST)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give out nothing of these until `resume`; what was fetched of them is kept."""
        with self._use:
            self._pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        with self._use:
            self._resume(partitions)

    # Reading

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most `max_records` (or `max_poll_records`); waits for the first.

        Empty when the time is over. Rebalance listeners and callbacks of commits are called here.
        """
        limit = max_records or self._settings["max_poll_records"]
        with self._use:
            return self._wait_for(timeout, lambda: self._take(limit)) or []

    def poll_arrow(self, timeout: float = 0.0, max_records: int | None = None) -> "pa.RecordBatch":
        """As `poll`, in columns: topic, partition, offset, timestamp, key, value, headers.

        For bulk: gives all that is there, in whole fetches, once there are `max_records`. Without
        rows when the time is over. Deserializers and interceptors do not take part.
        """
        with self._use:
            taken = self._wait_for(timeout, lambda: self._take_arrow(max_records or NO_LIMIT))
        return taken if taken is not None else no_records()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """One record after the other, for ever. Only those given out count as consumed."""
        limit = self._settings["max_poll_records"]
        while True:
            with self._use:
                if not self._leftover:
                    self._leftover.extend(
                        self._wait_for(_ITERATION_WAIT_S, lambda: self._take(limit)) or ()
                    )
                record = self._leftover.popleft() if self._leftover else None
            if record is not None:
                yield record

    def _wait_for(self, timeout: float, take: Callable[[], R | None]) -> R | None:
        self._is_polling = True
        try:
            return self._poll(timeout, take)
        finally:
            self._is_polling = False

    def _poll(self, timeout: float, take: Callable[[], R | None]) -> R | None:
        self._begin_poll()
        if self._outside is not None:
            self._outside.prepare()
        deadline = time.monotonic() + timeout
        ready = self._ready
        while True:
            ready.clear()
            self._serve()
            taken = take()
            if taken is not None:
                return taken
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            ready.wait(left)

    def _serve(self) -> None:
        """What a poll does besides records."""
        self._raise_errors()
        self._call_back()
        while (event := self._next_event()) is not None:
            self._rebalance(event)
        if self._auto_commit_is_due():
            self._start(self._commit_later(self._consumed(), None, is_auto=True))

    def _call_back(self) -> None:
        for result in self._tell_commits():
            _not_awaitable(result)

    def _rebalance(self, event: RebalanceEvent) -> None:
        failure: Exception | None = None
        try:
            if event.kind is RebalanceKind.REVOKED and self._auto_commits:
                self._commit_quietly(self._driver.deadline(None))
            _not_awaitable(self._tell_listener(event))
        except Exception as error:
            failure = error
            raise
        finally:
            self._event_done(event, failure)

    # Positions

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record to be given out; waits until it is known."""
        with self._use:
            self._check_open()
            deadline_ms = self._driver.deadline(timeout)
            found = self._run(self._driver.position(TopicPartition(*partition), deadline_ms))
            behind = self._consumed().get(TopicPartition(*partition))
            return found if behind is None else min(found, behind.offset)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has nothing."""
        with self._use:
            self._check_open()
            return self._run(self._driver.committed(partitions, self._driver.deadline(timeout)))

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit these offsets, or all that polls have given out, and wait for it."""
        with self._use:
            chosen = self._to_commit(offsets)
            deadline_ms = self._driver.deadline(timeout)
            # One that is still under way must not come after this one.
            self._run(self._driver.settle(deadline_ms))
            self._call_back()
            self._run(self._driver.commit(chosen, deadline_ms))
            self._interceptors.on_commit(chosen)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting; a later poll (or close) calls `callback(offsets, error)`.

        It is tried once: commit again, with newer offsets, where `error` may go away by that.
        """
        with self._use:
            self._start(self._commit_later(self._to_commit(offsets), callback))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (ms since 1970); None where there is none."""
        with self._use:
            self._check_open()
            deadline_ms = self._driver.deadline(timeout)
            return self._run(self._driver.offsets_for_times(timestamps, deadline_ms))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        return self._edges(partitions, timeout, end=False)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that comes next: the high watermark, or the last stable offset."""
        return self._edges(partitions, timeout, end=True)

    def _edges(
        self, partitions: Iterable[TopicPartition], timeout: float | None, *, end: bool
    ) -> dict[TopicPartition, int]:
        with self._use:
            self._check_open()
            deadline_ms = self._driver.deadline(timeout)
            return self._run(
                self._driver.edge_offsets(partitions, end=end, deadline_ms=deadline_ms)
            )

    def transaction(
        self,
        engine: "Engine",
        *,
        store: "OffsetStore | None" = None,
        group_id: str | None = None,
        commit_to_group: bool = True,
    ) -> "AbstractContextManager[Transaction]":
        """Results and offsets in one transaction of a database: each record counts once.

            with consumer.transaction(engine) as tx:
                for record in consumer.poll(1.0):
                    tx.connection.execute(insert(orders).values(...))

        The end of the block saves how far was polled in a table of the same database and commits;
        if the block raises, both are undone and the records come again. Partitions are read from
        where the database says, from the first call on: call it before the first poll. Needs
        `enable_auto_commit=False` and the extra `penstock[sql]`; docs/offsets-outside.md says more.

        `group_id` is the name that offsets are stored under, the consumer's own unless given;
        with `commit_to_group` they are committed to the group as well, for tools that show lag.
        """
        from penstock.client.external_offsets.attach import attach, check_same

        with self._use:
            self._check_open()
            if self._outside is None:
                self._outside = attach(
                    self, engine, store, group_id, commit_to_group=commit_to_group
                )
            check_same(self._outside, engine, store, group_id)
            return self._outside.transaction()

    # The cluster

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        with self._use:
            self._check_open()
            return self._run(self._driver.partitions_for(topic, self._driver.deadline(timeout)))

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics that this client may see."""
        with self._use:
            self._check_open()
            return self._run(self._driver.list_topics(self._driver.deadline(timeout)))

    # The end

    def close(self, timeout: float = _CLOSE_TIMEOUT_S) -> None:
        """Commit where that is automatic, leave the group, close the connections. Twice is fine."""
        with self._use:
            if self._is_closed:
                return
            deadline_ms = self._driver.deadline(timeout)
            try:
                self._leave_group(deadline_ms)
            finally:
                self._is_closed = True
                self._close(deadline_ms)

    def _close(self, deadline_ms: int) -> None:
        try:
            self._run(self._driver.close(deadline_ms))
        finally:
            self._loop_thread.close()
            self._interceptors.close()

    def _leave_group(self, deadline_ms: int | None = None) -> None:
        """Commit and tell the listener, before the partitions go."""
        if deadline_ms is None:
            deadline_ms = self._driver.deadline(None)
        self._run(self._driver.settle(deadline_ms))
        self._call_back()
        if self._auto_commits:
            self._commit_quietly(deadline_ms)
        event = self._run(self._driver.release())
        if event is not None:
            _not_awaitable(self._tell_listener(event))
        self._run(self._driver.leave(deadline_ms))

    def _commit_quietly(self, deadline_ms: int) -> None:
        offsets = self._consumed()
        if not offsets:
            return
        try:
            self._run(self._driver.commit(offsets, deadline_ms))
        except KafkaError as error:
            logger.warning("offsets were not committed: %s", error.message)
        else:
            self._interceptors.on_commit(offsets)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # The loop

    def _to_loop(self, call: Callable[[], None]) -> None:
        self._loop_thread.post(call)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._loop_thread.post(self._driver.keep, work)

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return self._loop_thread.run(work)


def _not_awaitable(result: Awaitable[object] | None) -> None:
    if isinstance(result, Coroutine):
        result.close()
    if result is not None:
        raise IllegalStateError(
            "a callback of the blocking consumer cannot be a coroutine function: use "
            "penstock.client.aio.Consumer"
        )
