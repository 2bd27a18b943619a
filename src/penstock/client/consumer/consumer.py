"""The blocking consumer.

Generated from src/penstock/client/aio/consumer.py by tools/unasync.py: edit that file.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from penstock.client.consumer.arrow import no_records
from penstock.client.consumer.core import (
    NO_LIMIT,
    CommitCallback,
    ConsumerCore,
    Watermarks,
    logger,
    refuse_awaitable,
)
from penstock.client.consumer.driver import ConsumerDriver
from penstock.client.consumer.group.actions import RebalanceEvent, RebalanceKind
from penstock.client.consumer.guards import ThreadGuard
from penstock.client.consumer.positions import EARLIEST, LATEST
from penstock.client.consumer.record import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    RebalanceListener,
    SubscriptionPattern,
)
from penstock.client.loop_thread import LoopThread
from penstock.client.metrics import MetricName
from penstock.client.settings import ConsumerOptions, resolve
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Engine

    from penstock.client.external_offsets.store import OffsetStore
    from penstock.client.external_offsets.transaction import ExternalOffsets, Transaction

R = TypeVar("R")

P = ParamSpec("P")

_CLOSE_TIMEOUT_S = 30.0
_ITERATION_WAIT_S = 3600.0


def _call_of_driver(
    call: Callable[Concatenate[ConsumerDriver, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["Consumer", P], R]:
    """Returns a method of the consumer that runs a call of its driver on the loop."""

    @wraps(call)
    def run(self: "Consumer", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._guard:
            self._ensure_open()
            return self._loop_thread.run(call(self._driver, *args, **kwargs))

    return run


class Consumer:
    """Reads records, alone or as a member of a group.

        with Consumer(bootstrap_servers="localhost:9092", group_id="reports") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                print(record.value)

    Records are fetched ahead in the background, by a thread. Rebalance listeners and commit
    callbacks run within `poll`. A consumer is for one thread at a time; only `wakeup` may be called
    from other threads. Timeouts are in seconds; a call without one takes
    `default_api_timeout_ms` at most.
    """

    def __init__(self, **options: Unpack[ConsumerOptions]) -> None:
        settings = resolve(ConsumerOptions, options)
        self._guard = ThreadGuard()
        self._ready = threading.Event()
        self._external_offsets: ExternalOffsets | None = None
        self._core = ConsumerCore(
            settings,
            SystemClock(),
            on_ready=self._ready.set,
            post=lambda call: self._loop_thread.post(call),
        )
        self._driver = self._core.driver
        self._loop_thread = LoopThread(f"penstock-{settings['client_id'] or 'consumer'}")
        self._loop_thread.open(self._driver.start)

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
                self.unsubscribe()
                return
            self._core.subscribe(topics, listener)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Reads exactly these partitions, without a group."""
        with self._guard.instant:
            self._core.assign(partitions)

    def unsubscribe(self) -> None:
        """Stops reading and leaves the group, which assigns the partitions to other members."""
        with self._guard:
            self._ensure_open()
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        self._leave_group(self._driver.deadline(None))
        self._core.unsubscribe()

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

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Returns the next records, at most `max_records` (or `max_poll_records`).

        Waits for the first one; the list is empty after `timeout` seconds without any. Calls
        rebalance listeners and the callbacks of commits. Raises WakeupError after `wakeup`, and
        the errors of background work.
        """
        limit = max_records or self._core.settings["max_poll_records"]
        with self._guard:
            return self._wait_for(timeout, lambda: self._core.take_records(limit)) or []

    def poll_arrow(self, timeout: float = 0.0, max_records: int | None = None) -> "pa.RecordBatch":
        """Polls into columns: topic, partition, offset, timestamp, key, value, headers.

        For bulk reads: it returns whole fetches until there are at least `max_records` rows, and no
        rows after `timeout` seconds without any. Deserializers and interceptors are not called.
        """
        limit = max_records or NO_LIMIT
        with self._guard:
            batch = self._wait_for(timeout, lambda: self._core.take_arrow(limit))
        return batch if batch is not None else no_records()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yields records without end. Only yielded records count as consumed."""
        core = self._core
        limit = core.settings["max_poll_records"]
        while True:
            with self._guard:
                if not core.iteration_buffer:
                    records = self._wait_for(_ITERATION_WAIT_S, lambda: core.take_records(limit))
                    core.iteration_buffer.extend(records or ())
                record = core.iteration_buffer.popleft() if core.iteration_buffer else None
            if record is not None:
                yield record

    def wakeup(self) -> None:
        """Makes the poll that waits, or the next one, raise WakeupError. For any thread."""
        self._core.is_woken = True
        self._ready.set()

    def _wait_for(self, timeout: float, take: Callable[[], R | None]) -> R | None:
        self._core.is_polling = True
        try:
            return self._poll(timeout, take)
        finally:
            self._core.is_polling = False

    def _poll(self, timeout: float, take: Callable[[], R | None]) -> R | None:
        self._core.begin_poll()
        if self._external_offsets is not None:
            self._external_offsets.prepare()
        deadline = time.monotonic() + timeout
        ready = self._ready
        while True:
            ready.clear()
            self._run_callbacks()
            taken = take()
            if taken is not None:
                # At once: what was taken would be lost if the caller were interrupted now.
                return taken
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return None
            ready.wait(remaining_s)

    def _run_callbacks(self) -> None:
        """Raises pending errors, calls listeners and callbacks, starts a commit that is due."""
        core = self._core
        core.raise_errors()
        self._run_commit_callbacks()
        while (event := core.next_rebalance()) is not None:
            self._handle_rebalance(event)
        if core.is_auto_commit_due():
            core.start_commit(core.consumed_positions(), None, is_auto=True)

    def _run_commit_callbacks(self) -> None:
        for result in self._core.run_commit_callbacks():
            refuse_awaitable(result)

    def _handle_rebalance(self, event: RebalanceEvent) -> None:
        core = self._core
        failure: Exception | None = None
        try:
            if event.kind is RebalanceKind.REVOKED and core.has_auto_commit:
                self._auto_commit(self._driver.deadline(None))
            refuse_awaitable(core.notify_listeners(event))
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

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Returns the offset of the next record to be polled; waits until it is known."""
        partition = TopicPartition(*partition)
        with self._guard:
            self._ensure_open()
            deadline_ms = self._driver.deadline(timeout)
            position = self._loop_thread.run(self._driver.position(partition, deadline_ms))
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

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commits these offsets, or those after all polled records, and waits for the result."""
        with self._guard:
            self._ensure_open()
            positions = self._core.offsets_to_commit(offsets)
            deadline_ms = self._driver.deadline(timeout)
            # An earlier asynchronous commit must not arrive after this one.
            self._loop_thread.run(self._driver.wait_for_background(deadline_ms))
            self._run_commit_callbacks()
            offsets_of_group = self._driver.require_group().offsets
            self._loop_thread.run(offsets_of_group.commit(positions, deadline_ms))
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
        engine: "Engine",
        *,
        store: "OffsetStore | None" = None,
        group_id: str | None = None,
        commit_to_group: bool = True,
    ) -> "AbstractContextManager[Transaction]":
        """Stores results and offsets in one database transaction: each record counts once.

            with consumer.transaction(engine) as tx:
                for record in consumer.poll(1.0):
                    tx.connection.execute(insert(orders).values(...))

        The end of the block stores the polled offsets in a table of the same database and commits;
        if the block raises, both are rolled back and the records are polled again. From the first
        call on, partitions are read from the offsets in the database: call it before the first
        poll. It needs `enable_auto_commit=False` and the extra `penstock[sql]`; see
        docs/external-offsets.md.

        `group_id` is the name under which offsets are stored, by default the consumer's group. With
        `commit_to_group` they are also committed to the group, for tools that show lag.
        """
        from penstock.client.external_offsets.attach import attach, check_same

        with self._guard:
            self._core.check_open()
            if self._external_offsets is None:
                self._external_offsets = attach(
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

    def close(self, timeout: float = _CLOSE_TIMEOUT_S) -> None:
        """Commits if that is automatic, leaves the group and closes the connections.

        May be called twice.
        """
        with self._guard:
            if self._core.is_closed:
                return
            deadline_ms = self._driver.deadline(timeout)
            try:
                self._leave_group(deadline_ms)
            finally:
                self._core.is_closed = True
                self._close_driver(deadline_ms)

    def _close_driver(self, deadline_ms: int) -> None:
        try:
            self._loop_thread.run(self._driver.close(deadline_ms))
        finally:
            self._loop_thread.close()
            self._core.interceptors.close()

    def _leave_group(self, deadline_ms: int) -> None:
        """Commits and notifies the listener, then leaves."""
        self._loop_thread.run(self._driver.wait_for_background(deadline_ms))
        self._run_commit_callbacks()
        if self._core.has_auto_commit:
            self._auto_commit(deadline_ms)
        event = self._loop_thread.run(self._driver.prepare_leave())
        if event is not None:
            refuse_awaitable(self._core.notify_listeners(event))
        self._loop_thread.run(self._driver.leave(deadline_ms))

    def _auto_commit(self, deadline_ms: int) -> None:
        """Commits all consumed positions; logs a failure."""
        positions = self._core.consumed_positions()
        if not positions:
            return
        try:
            offsets_of_group = self._driver.require_group().offsets
            self._loop_thread.run(offsets_of_group.commit(positions, deadline_ms))
        except KafkaError as error:
            logger.warning("offsets were not committed: %s", error.message)
        else:
            self._core.interceptors.on_commit(positions)

    def _ensure_open(self) -> None:
        self._core.check_open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
