"""What the blocking consumer and its asynchronous twin share: all that waits for nothing."""

import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.client.consumer.driver import ConsumerDriver
from penstock.client.consumer.group.actions import RebalanceEvent, RebalanceKind
from penstock.client.consumer.interceptors import Interceptors
from penstock.client.consumer.positions import NO_LEADER, FetchPosition, OffsetReset
from penstock.client.consumer.record import (
    ConsumerGroupMetadata,
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
from penstock.client.metrics import MetricName
from penstock.client.settings import ConsumerOptions, resolve
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[[Offsets, KafkaError | None], object]

NO_LIMIT = 2**63 - 1


class Watermarks(NamedTuple):
    """What the last fetch said of a partition's log; None where it has not been fetched yet."""

    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None


class ConsumerBase:
    """The consumer without its waiting. Subclasses say how to reach the loop and how to wait."""

    def __init__(
        self,
        options: ConsumerOptions,
        on_ready: Callable[[], None],
        post: Callable[[Callable[[], None]], None],
        clock: Clock | None = None,
    ) -> None:
        self._settings = resolve(ConsumerOptions, options)
        self._clock: Clock = clock or SystemClock()
        self._interceptors = Interceptors(self._settings["interceptors"])
        self._driver = ConsumerDriver(self._settings, clock=self._clock, on_ready=on_ready)
        self._subscriptions = self._driver.subscriptions
        self._post = post
        self._on_ready = on_ready
        self._driver.buffer.on_room = self._wake
        self._is_woken = False
        self._is_closed = False
        self._is_polling = False
        if self._driver.group is not None:
            self._driver.group.is_polling = lambda: self._is_polling
        self._leftover: deque[ConsumerRecord] = deque()
        """Polled by an iteration and not given out by it yet: they do not count as consumed."""
        self._commits_done: deque[tuple[CommitCallback | None, Offsets, KafkaError | None]] = (
            deque()
        )
        self._first_listener: RebalanceListener | None = None
        """Told before the user's own: where offsets outside are sought."""
        self._commits_interval_ms = self._settings["auto_commit_interval_ms"]
        self._auto_commits = (
            self._settings["enable_auto_commit"] and self._settings["group_id"] is not None
        )
        self._next_auto_commit_ms = self._clock.monotonic_ms() + self._commits_interval_ms
        self._is_auto_committing = False

    # What to read

    def _subscribe(
        self,
        topics: str | Collection[str] | re.Pattern[str] | SubscriptionPattern,
        listener: RebalanceListener | None,
    ) -> None:
        self._check_open()
        group = self._driver.needs_group()
        if isinstance(topics, re.Pattern | SubscriptionPattern):
            self._subscriptions.subscribe_pattern(topics, listener)
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
            if not all(each.strip() for each in names):
                raise ValueError(f"topics to subscribe to are names, not {topics!r}")
            self._subscriptions.subscribe(names, listener)

        def tell() -> None:
            group.subscription_changed()
            if self._is_polling:
                # That poll began before the group knew that it waits for one.
                group.polled(self._clock.monotonic_ms())

        self._post(tell)
        self._wake()

    def _assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        self._check_open()
        chosen = [TopicPartition(*each) for each in partitions]
        before = self._subscriptions.assigned_partitions()
        self._subscriptions.assign_from_user(chosen)
        self._forget(before - set(chosen))
        self._drop_leftover({each.topic_partition for each in self._leftover} - set(chosen))
        self._wake()

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        """These are not read any more, by the user's own wish: no listener of his hears of it."""
        if self._first_listener is not None and partitions:
            self._first_listener.on_partitions_revoked(list(partitions))

    def _seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        self._check_open()
        to = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if to.offset < 0:
            raise ValueError(f"cannot seek to offset {to.offset}: offsets start at 0")
        position = FetchPosition(to.offset, to.leader_epoch, NO_LEADER)
        self._subscriptions.seek_unvalidated(partition, position)
        self._drop_leftover({partition})
        self._wake()

    def _seek_to(self, partitions: Iterable[TopicPartition], reset: OffsetReset) -> None:
        self._check_open()
        chosen = set(partitions) or self._subscriptions.assigned_partitions()
        for each in chosen:
            self._subscriptions.request_offset_reset(each, reset)
        self._drop_leftover(chosen)
        self._wake()

    def _pause(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._subscriptions.pause(each)

    def _resume(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._subscriptions.resume(each)
        self._wake()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return self._subscriptions.assigned_partitions()

    def subscription(self) -> set[str]:
        """The topics subscribed to, by name or because the pattern matches them."""
        return set(self._subscriptions.subscription)

    def paused(self) -> set[TopicPartition]:
        return self._subscriptions.paused_partitions()

    # What is known

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie before the end; None where the end is not known yet."""
        read_committed = self._settings["isolation_level"] == "read_committed"
        lag = self._subscriptions.lag(partition, read_committed=read_committed)
        if lag is None:
            self._post(lambda: self._driver.find_end_offset(partition))
        return lag

    def watermarks(self, partition: TopicPartition) -> Watermarks:
        """What the last fetch said of the log: its start, last stable offset, high watermark."""
        subscriptions = self._subscriptions
        return Watermarks(
            subscriptions.log_start_offset(partition),
            subscriptions.end_offset(partition, read_committed=True),
            subscriptions.end_offset(partition, read_committed=False),
        )

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group: for `Producer.send_offsets_to_transaction`."""
        return self._driver.needs_group().group_metadata()

    def metrics(self) -> dict[MetricName, float]:
        return self._driver.metrics.snapshot()

    def wakeup(self) -> None:
        """Make the poll that waits, or the next one, raise WakeupError. From any thread."""
        self._is_woken = True
        self._on_ready()

    # The parts of a poll

    def _begin_poll(self) -> None:
        self._check_open()
        if self._subscriptions.has_no_subscription_or_assignment:
            raise IllegalStateError("there is nothing to poll: subscribe() or assign() first")
        group = self._driver.group
        if group is not None:
            group.polled(self._clock.monotonic_ms())

    def _raise_errors(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        while self._driver.errors:
            error = self._driver.errors.popleft()
            if not self._is_settled(error):
                raise error
        group = self._driver.group
        if group is not None and group.last_error is not None:
            raise group.last_error

    def _is_settled(self, error: KafkaError) -> bool:
        """Whether a seek has come meanwhile to where the error said that an offset was missing."""
        if not isinstance(error, NoOffsetForPartitionError) or not error.partitions:
            return False
        waiting = self._subscriptions.initializing_partitions()
        return not any(each in waiting for each in error.partitions)

    def _auto_commit_is_due(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if not self._auto_commits or self._is_auto_committing or now_ms < self._next_auto_commit_ms:
            return False
        self._next_auto_commit_ms = now_ms + self._commits_interval_ms
        self._is_auto_committing = True
        return True

    def _next_event(self) -> RebalanceEvent | None:
        group = self._driver.group
        return group.events[0] if group is not None and group.events else None

    def _tell_listener(self, event: RebalanceEvent) -> Awaitable[None] | None:
        """Call the user's listener; a coroutine function's result is for the caller to await."""
        first = _tell(self._first_listener, event)
        if first is not None:
            return _tell_after(first, self._subscriptions.listener, event)
        return _tell(self._subscriptions.listener, event)

    def _event_done(self, event: RebalanceEvent, error: Exception | None) -> None:
        group = self._driver.needs_group()
        # Out of the queue here, so that this poll does not find it again before the loop ran.
        if group.events and group.events[0] is event:
            group.events.popleft()
        if event.kind is not RebalanceKind.ASSIGNED:
            self._drop_leftover(event.partitions)
        self._post(lambda: group.callback_done(event, error))
        self._wake()

    def _take(self, limit: int) -> list[ConsumerRecord] | None:
        if self._leftover:
            return [self._leftover.popleft() for _ in range(min(limit, len(self._leftover)))]
        records = self._driver.buffer.collect(limit)
        if not records:
            return None
        self._driver.fetch_metrics.consumed(len(records))
        if self._interceptors:
            records = self._interceptors.on_consume(records)
        return records

    def _drop_leftover(self, partitions: Collection[TopicPartition]) -> None:
        if self._leftover:
            self._leftover = deque(
                each for each in self._leftover if each.topic_partition not in partitions
            )

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where each partition is, but for what an iteration has still to give out."""
        consumed = self._subscriptions.all_consumed()
        for record in reversed(self._leftover):
            if record.topic_partition in consumed:
                consumed[record.topic_partition] = OffsetAndMetadata(record.offset)
        return consumed

    def _take_arrow(self, limit: int) -> "pa.RecordBatch | None":
        from penstock.client.consumer.arrow import take_arrow

        batch = take_arrow(self._driver.buffer, limit)
        if batch is not None:
            self._driver.fetch_metrics.consumed(batch.num_rows)
        return batch

    # Commits

    def _to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._check_open()
        self._driver.needs_group()
        if offsets is None:
            return self._consumed()
        return {
            TopicPartition(*each): OffsetAndMetadata(to) if isinstance(to, int) else to
            for each, to in offsets.items()
        }

    async def _commit_later(
        self, offsets: Offsets, callback: CommitCallback | None, *, is_auto: bool = False
    ) -> None:
        """On the loop: commit, and leave the outcome for the next poll to tell.

        Once only: a second attempt might come after a later commit, or after a rebalance, and turn
        back what others have committed since.
        """
        failure: KafkaError | None = None
        try:
            await self._driver.commit(offsets, self._driver.deadline(None), retry=False)
        except KafkaError as error:
            failure = error
        finally:
            if is_auto:
                self._is_auto_committing = False
        if is_auto and failure is not None:
            level = logging.WARNING
            if failure.code.retriable:
                soon_ms = self._clock.monotonic_ms() + self._settings["retry_backoff_ms"]
                self._next_auto_commit_ms = min(self._next_auto_commit_ms, soon_ms)
                if not isinstance(failure, KafkaTimeoutError):
                    level = logging.INFO
            logger.log(level, "offsets were not committed: %s", failure.message)
            return
        self._commits_done.append((callback, offsets, failure))
        self._on_ready()

    def _tell_commits(self) -> list[Awaitable[object]]:
        """Call the callbacks of commits that are done; what is to be awaited is returned."""
        waiting: list[Awaitable[object]] = []
        while self._commits_done:
            callback, offsets, error = self._commits_done.popleft()
            if error is None:
                self._interceptors.on_commit(offsets)
            if callback is not None:
                result = callback(offsets, error)
                if isinstance(result, Awaitable):
                    waiting.append(result)
        return waiting

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalStateError("this consumer is closed: make a new one")

    def _wake(self) -> None:
        self._post(self._driver.wake)


def _tell(listener: RebalanceListener | None, event: RebalanceEvent) -> Awaitable[None] | None:
    if listener is None:
        return None
    if event.kind is RebalanceKind.ASSIGNED:
        return listener.on_partitions_assigned(event.partitions)
    if event.kind is RebalanceKind.REVOKED:
        return listener.on_partitions_revoked(event.partitions)
    return listener.on_partitions_lost(event.partitions)


async def _tell_after(
    first: Awaitable[None], listener: RebalanceListener | None, event: RebalanceEvent
) -> None:
    await first
    second = _tell(listener, event)
    if second is not None:
        await second
