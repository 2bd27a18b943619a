"""The parts of a consumer that wait for nothing.

`penstock.client.aio.Consumer` and its blocking twin call them, on the caller's thread.
"""

import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.client.consumer.driver import ConsumerDriver
from penstock.client.consumer.group.actions import RebalanceEvent, RebalanceKind
from penstock.client.consumer.interceptors import Interceptors
from penstock.client.consumer.positions import NO_LEADER, FetchPosition, OffsetReset
from penstock.client.consumer.record import (
    ConsumerRecord,
    OffsetAndMetadata,
    RebalanceListener,
    SubscriptionPattern,
)
from penstock.client.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    WakeupError,
)
from penstock.client.settings import ConsumerOptions
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[[Offsets, KafkaError | None], object]

NO_LIMIT = 2**63 - 1


class Watermarks(NamedTuple):
    """The offsets of a partition's log in the last fetch response; None before the first fetch."""

    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None


class ConsumerCore:
    """The state of a consumer and the steps of its calls.

    `post` schedules a call on the consumer's loop; `on_ready` wakes the poll that waits.
    """

    def __init__(
        self,
        settings: ConsumerOptions,
        clock: Clock,
        *,
        on_ready: Callable[[], None],
        post: Callable[[Callable[[], object]], None],
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.interceptors = Interceptors(settings["interceptors"])
        self.driver = ConsumerDriver(settings, clock=clock, on_ready=on_ready)
        self.subscriptions = self.driver.subscriptions
        self._post = post
        self._on_ready = on_ready
        self.driver.buffer.on_space = self._wake
        self.is_woken = False
        self.is_closed = False
        self.is_polling = False
        if self.driver.group is not None:
            self.driver.group.is_polling = lambda: self.is_polling
        self.iteration_buffer: deque[ConsumerRecord] = deque()
        """Records that an iteration has polled but not yielded yet; they are not consumed."""
        self._finished_commits: deque[tuple[CommitCallback | None, Offsets, KafkaError | None]] = (
            deque()
        )
        self.internal_listener: RebalanceListener | None = None
        """Called before the user's listener: seeks to external offsets."""
        self.has_auto_commit = settings["enable_auto_commit"] and settings["group_id"] is not None
        self._auto_commit_interval_ms = settings["auto_commit_interval_ms"]
        self._next_auto_commit_ms = clock.monotonic_ms() + self._auto_commit_interval_ms
        self._is_auto_committing = False

    def check_open(self) -> None:
        if self.is_closed:
            raise IllegalStateError("this consumer is closed", remedy="create a new one")

    # --- subscription and positions

    def subscribe(
        self,
        topics: str | Collection[str] | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None,
    ) -> None:
        self.check_open()
        group = self.driver.require_group()
        if isinstance(topics, re.Pattern | SubscriptionPattern):
            self.subscriptions.subscription.subscribe_pattern(topics, listener)
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
            if not all(name.strip() for name in names):
                raise ValueError(
                    f"cannot subscribe to {topics!r}: names of topics must not be empty"
                )
            self.subscriptions.subscription.subscribe(names, listener)

        def notify_group() -> None:
            group.subscription_changed()
            if self.is_polling:
                # That poll began before the group expected one.
                group.polled(self.clock.monotonic_ms())

        self._post(notify_group)
        self._wake()

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        self.check_open()
        assignment = {TopicPartition(*partition) for partition in partitions}
        removed_partitions = self.subscriptions.assigned_partitions() - assignment
        self.subscriptions.assign_from_user(assignment)
        self.revoke_internally(removed_partitions)
        self._drop_buffered(
            {record.topic_partition for record in self.iteration_buffer} - assignment
        )
        self._wake()

    def unsubscribe(self) -> None:
        """Clears the subscription, after the consumer has left its group."""
        self.revoke_internally(self.subscriptions.assigned_partitions())
        self.subscriptions.unsubscribe()
        self.iteration_buffer.clear()

    def revoke_internally(self, partitions: Collection[TopicPartition]) -> None:
        """Notifies the internal listener alone: the user has removed these partitions."""
        if self.internal_listener is not None and partitions:
            self.internal_listener.on_partitions_revoked(list(partitions))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        self.check_open()
        target = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if target.offset < 0:
            raise ValueError(f"cannot seek to offset {target.offset}: offsets start at 0")
        position = FetchPosition(target.offset, target.leader_epoch, NO_LEADER)
        self.subscriptions.seek_unvalidated(partition, position)
        self._drop_buffered({partition})
        self._wake()

    def seek_to(self, partitions: Iterable[TopicPartition], reset: OffsetReset) -> None:
        self.check_open()
        chosen = set(partitions) or self.subscriptions.assigned_partitions()
        for partition in chosen:
            self.subscriptions.request_offset_reset(partition, reset)
        self._drop_buffered(chosen)
        self._wake()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.subscriptions.pause(partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.subscriptions.resume(partition)
        self._wake()

    def current_lag(self, partition: TopicPartition) -> int | None:
        read_committed = self.settings["isolation_level"] == "read_committed"
        lag = self.subscriptions.lag(partition, read_committed=read_committed)
        if lag is None:
            self._post(lambda: self.driver.request_end_offset(partition))
        return lag

    def watermarks(self, partition: TopicPartition) -> Watermarks:
        subscriptions = self.subscriptions
        return Watermarks(
            subscriptions.log_start_offset(partition),
            subscriptions.end_offset(partition, read_committed=True),
            subscriptions.end_offset(partition, read_committed=False),
        )

    # --- poll

    def begin_poll(self) -> None:
        self.check_open()
        if self.subscriptions.subscription.is_empty:
            raise IllegalStateError(
                "there is nothing to poll", remedy="call subscribe() or assign() first"
            )
        group = self.driver.group
        if group is not None:
            group.polled(self.clock.monotonic_ms())

    def raise_errors(self) -> None:
        """Raises WakeupError after `wakeup`, else the oldest error that background work left."""
        if self.is_woken:
            self.is_woken = False
            raise WakeupError("wakeup() was called")
        while self.driver.errors:
            error = self.driver.errors.popleft()
            if not self._is_resolved(error):
                raise error
        group = self.driver.group
        if group is not None and group.last_error is not None:
            raise group.last_error

    def _is_resolved(self, error: KafkaError) -> bool:
        """Returns whether a seek has since supplied the offsets that the error missed."""
        if not isinstance(error, NoOffsetForPartitionError) or not error.partitions:
            return False
        initializing = self.subscriptions.initializing_partitions()
        return not any(partition in initializing for partition in error.partitions)

    def is_auto_commit_due(self) -> bool:
        """Returns whether to start an automatic commit now; then the next one is scheduled."""
        now_ms = self.clock.monotonic_ms()
        if (
            not self.has_auto_commit
            or self._is_auto_committing
            or now_ms < self._next_auto_commit_ms
        ):
            return False
        self._next_auto_commit_ms = now_ms + self._auto_commit_interval_ms
        self._is_auto_committing = True
        return True

    def take_records(self, limit: int) -> list[ConsumerRecord] | None:
        """Returns fetched records, decoded, or None when there are none."""
        if self.iteration_buffer:
            count = min(limit, len(self.iteration_buffer))
            return [self.iteration_buffer.popleft() for _ in range(count)]
        records = self.driver.buffer.collect(limit)
        if not records:
            return None
        self.driver.fetch_metrics.records.record(len(records))
        if self.interceptors:
            records = self.interceptors.on_consume(records)
        return records

    def take_arrow(self, limit: int) -> "pa.RecordBatch | None":
        """Returns fetched records as columns, or None when there are none."""
        from penstock.client.consumer.arrow import take_arrow

        batch = take_arrow(self.driver.buffer, limit)
        if batch is not None:
            self.driver.fetch_metrics.records.record(batch.num_rows)
        return batch

    def _drop_buffered(self, partitions: Collection[TopicPartition]) -> None:
        if self.iteration_buffer:
            self.iteration_buffer = deque(
                record
                for record in self.iteration_buffer
                if record.topic_partition not in partitions
            )

    # --- rebalances

    def next_rebalance(self) -> RebalanceEvent | None:
        group = self.driver.group
        return group.events[0] if group is not None and group.events else None

    def notify_listeners(self, event: RebalanceEvent) -> Awaitable[None] | None:
        """Calls the internal listener and the user's; returns an awaitable if either is async."""
        pending = _notify(self.internal_listener, event)
        if pending is not None:
            return _notify_after(pending, self.subscriptions.subscription.listener, event)
        return _notify(self.subscriptions.subscription.listener, event)

    def complete_rebalance(self, event: RebalanceEvent, error: Exception | None) -> None:
        """Reports to the group that listeners have been called, or that one has raised."""
        group = self.driver.require_group()
        # Removed from the queue here, so that this poll does not see it again before the loop ran.
        if group.events and group.events[0] is event:
            group.events.popleft()
        if event.kind is not RebalanceKind.ASSIGNED:
            self._drop_buffered(event.partitions)
        self._post(lambda: group.callback_done(event, error))
        self._wake()

    # --- commits

    def consumed_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the position after the last record that was returned, by partition."""
        positions = self.subscriptions.all_consumed()
        for record in reversed(self.iteration_buffer):
            if record.topic_partition in positions:
                positions[record.topic_partition] = OffsetAndMetadata(record.offset)
        return positions

    def offsets_to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self.check_open()
        self.driver.require_group()
        if offsets is None:
            return self.consumed_positions()
        return {
            TopicPartition(*partition): (
                OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            )
            for partition, offset in offsets.items()
        }

    def start_commit(
        self, offsets: Offsets, callback: CommitCallback | None, *, is_auto: bool = False
    ) -> None:
        """Commits in the background; a later poll calls `callback`."""
        self._post(
            lambda: self.driver.start_background(self._commit(offsets, callback, is_auto=is_auto))
        )

    async def _commit(
        self, offsets: Offsets, callback: CommitCallback | None, *, is_auto: bool
    ) -> None:
        """Commits once, without retries: a second attempt could overwrite a later commit."""
        failure: KafkaError | None = None
        try:
            group = self.driver.require_group()
            await group.offsets.commit(offsets, self.driver.deadline(None), retry=False)
        except KafkaError as error:
            failure = error
        finally:
            if is_auto:
                self._is_auto_committing = False
        if is_auto and failure is not None:
            level = logging.WARNING
            if failure.code.retriable:
                soon_ms = self.clock.monotonic_ms() + self.settings["retry_backoff_ms"]
                self._next_auto_commit_ms = min(self._next_auto_commit_ms, soon_ms)
                if not isinstance(failure, KafkaTimeoutError):
                    level = logging.INFO
            logger.log(level, "offsets were not committed: %s", failure.message)
            return
        self._finished_commits.append((callback, offsets, failure))
        self._on_ready()

    def run_commit_callbacks(self) -> list[Awaitable[object]]:
        """Calls the callbacks of finished commits; returns the results that must be awaited."""
        awaitables: list[Awaitable[object]] = []
        while self._finished_commits:
            callback, offsets, error = self._finished_commits.popleft()
            if error is None:
                self.interceptors.on_commit(offsets)
            if callback is not None:
                result = callback(offsets, error)
                if isinstance(result, Awaitable):
                    awaitables.append(result)
        return awaitables

    def _wake(self) -> None:
        self._post(self.driver.wake)


def _notify(listener: RebalanceListener | None, event: RebalanceEvent) -> Awaitable[None] | None:
    if listener is None:
        return None
    if event.kind is RebalanceKind.ASSIGNED:
        return listener.on_partitions_assigned(event.partitions)
    if event.kind is RebalanceKind.REVOKED:
        return listener.on_partitions_revoked(event.partitions)
    return listener.on_partitions_lost(event.partitions)


async def _notify_after(
    pending: Awaitable[None], listener: RebalanceListener | None, event: RebalanceEvent
) -> None:
    await pending
    result = _notify(listener, event)
    if result is not None:
        await result


def refuse_awaitable(result: Awaitable[object] | None) -> None:
    """Raises IllegalStateError when a callback of the blocking consumer returns a coroutine."""
    if isinstance(result, Coroutine):
        result.close()
    if result is not None:
        raise IllegalStateError(
            "a callback of the blocking consumer cannot be a coroutine function",
            remedy="use penstock.client.aio.Consumer",
        )
