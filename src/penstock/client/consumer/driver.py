"""The part of a consumer that runs on the event loop: metadata, positions, fetches, the group.

One task maintains all of that: it is woken when something has changed and starts the requests that
are due. Errors that poll must raise are added to `errors`. Calls of the user that send requests of
their own (`committed`, `offsets_for_times` …) are methods of the driver, too.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from penstock.client.consumer.completed_fetch import FetchConfig
from penstock.client.consumer.deserializers import deserialize_with
from penstock.client.consumer.fetch_buffer import FetchBuffer
from penstock.client.consumer.fetch_metrics import FetchMetrics
from penstock.client.consumer.fetcher import Fetcher
from penstock.client.consumer.group.actions import RebalanceEvent
from penstock.client.consumer.offset_fetcher import OffsetFetcher
from penstock.client.consumer.position_updater import PositionUpdater
from penstock.client.consumer.positions import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    parse_offset_reset,
)
from penstock.client.consumer.record import OffsetAndMetadata, OffsetAndTimestamp
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.consumer.topic_metadata import TopicMetadataListener
from penstock.client.coordinators import Coordinators
from penstock.client.errors import (
    ClientError,
    ConfigError,
    IllegalStateError,
)
from penstock.client.metrics import Metrics
from penstock.client.network import create_network_client
from penstock.client.settings import ConsumerOptions
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster, PartitionInfo
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from penstock.client.consumer.group.coordinator import ConsumerCoordinator

logger = logging.getLogger(__name__)

_WARN_EVERY: Final = 20
"""Of so many failed attempts to get the first metadata, one is logged."""


class ConsumerDriver:
    """Runs on one loop from `start` on. Only members that are marked so are thread-safe."""

    def __init__(
        self, settings: ConsumerOptions, *, clock: Clock, on_ready: Callable[[], None]
    ) -> None:
        """`on_ready` is called on the loop when poll may have something to return."""
        self.settings = settings
        self.clock = clock
        self.errors: deque[KafkaError] = deque()
        """Errors that poll raises, the oldest first. Thread-safe."""
        self._on_ready = on_ready
        self.metrics = Metrics(
            clock,
            settings["metrics_num_samples"],
            settings["metrics_sample_window_ms"],
            {"client-id": settings["client_id"]},
        )
        try:
            reset = parse_offset_reset(settings["auto_offset_reset"])
        except ValueError as error:
            raise ConfigError(f"`auto_offset_reset`: {error}") from None
        read_committed = settings["isolation_level"] == "read_committed"
        config = FetchConfig(
            check_crcs=settings["check_crcs"],
            read_committed=read_committed,
            key=deserialize_with(settings["key_deserializer"], "key_deserializer"),
            value=deserialize_with(settings["value_deserializer"], "value_deserializer"),
        )
        self.subscriptions = SubscriptionState(reset)
        self.buffer = FetchBuffer(self.subscriptions)
        self.fetch_metrics = FetchMetrics(self.metrics, self._max_lag)
        self.network = create_network_client(
            settings, clock=clock, auto_create_topics=settings["allow_auto_create_topics"]
        )
        self.offset_fetcher = OffsetFetcher(self.network, read_committed=read_committed)
        self.group: ConsumerCoordinator | None = None
        if settings["group_id"] is not None:
            # Not imported for consumers without a group.
            from penstock.client.consumer.group import coordinator

            self.group = coordinator.ConsumerCoordinator(
                self.network,
                Coordinators(self.network),
                self.subscriptions,
                settings,
                clock,
                self.metrics,
            )
            self.group.on_event = self._on_group_event
        self._fetcher = Fetcher(
            self.network,
            self.subscriptions,
            self.buffer,
            settings,
            config,
            self.fetch_metrics,
            on_fetched=self._on_fetched,
            on_error=self.report,
            on_end=self._on_task_done,
        )
        self._positions = PositionUpdater(
            self.network,
            self.subscriptions,
            self.offset_fetcher,
            self.group,
            settings,
            start=self._start,
            report=self.report,
        )
        self._topic_metadata = TopicMetadataListener(
            self.subscriptions,
            excludes_internal=settings["exclude_internal_topics"],
            report=self.report,
        )
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._main_task: asyncio.Task[None] | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._metadata_topics: frozenset[str] | None = None

    async def start(self) -> None:
        await self.network.start()
        self.network.metadata.listeners.append(self._on_metadata)
        if self.group is not None:
            await self.group.start()
        self._main_task = asyncio.ensure_future(self._run())
        self._main_task.add_done_callback(self._on_task_done)

    async def close(self, deadline_ms: int) -> None:
        """Leaves the group and ends all tasks. The caller commits before."""
        tasks = [*self._tasks.values(), *self._background_tasks]
        if self._main_task is not None:
            tasks.append(self._main_task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            if self.group is not None:
                await self.group.close(deadline_ms)
            await self._fetcher.close()
        finally:
            await self.network.close()
            self.buffer.clear()

    def start_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a commit that the caller does not wait for."""
        task = asyncio.ensure_future(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def wait_for_background(self, deadline_ms: int) -> None:
        """Waits for the commits in the background, until the deadline."""
        if self._background_tasks:
            remaining_ms = max(0, deadline_ms - self.clock.monotonic_ms())
            await asyncio.wait(self._background_tasks, timeout=remaining_ms / 1000)

    async def prepare_leave(self) -> RebalanceEvent | None:
        """Returns the event to notify the listener of before the consumer leaves its group."""
        return None if self.group is None else self.group.prepare_leave()

    async def leave(self, deadline_ms: int) -> None:
        if self.group is not None:
            await self.group.leave(deadline_ms)

    def wake(self) -> None:
        """Has the main task start what is due. On the loop."""
        self._wake.set()

    def report(self, error: KafkaError) -> None:
        """Has poll raise the error, once if it is reported repeatedly before the next poll."""
        if not any(pending.message == error.message for pending in self.errors):
            self.errors.append(error)
        self._notify()

    # --- tasks

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            delay_ms = self._start_due_work()
            try:
                async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _start_due_work(self) -> int | None:
        """Returns the time in ms until the next call, or None to wait for an event."""
        now_ms = self.clock.monotonic_ms()
        self._update_metadata_topics(now_ms)
        if self.network.metadata.age_ms(now_ms) is None and (
            self._metadata_topics or self.network.metadata.all_topics
        ):
            self._start("metadata", self._first_metadata)
        # In this order: the fetcher may find that a position must be validated first.
        delays = [
            self._fetcher.send_fetches(now_ms),
            self._positions.update_positions(now_ms, has_errors=bool(self.errors)),
        ]
        return min((delay for delay in delays if delay is not None), default=None)

    def _start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Runs work unless work of that name is running; poll raises its errors."""
        if name in self._tasks:
            return False

        async def run() -> None:
            try:
                await work()
            except KafkaError as error:
                if not isinstance(error, IllegalStateError):
                    self.report(error)
            finally:
                del self._tasks[name]
            self.wake()
            self._notify()

        task = self._tasks[name] = asyncio.ensure_future(run())
        task.add_done_callback(self._on_task_done)
        return True

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        """Logs and reports an unexpected error."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task of the consumer failed", exc_info=error)
            self.report(ClientError(f"a task of the consumer failed: {error!r}"))

    def _on_fetched(self, has_result: bool) -> None:
        self._wake.set()
        if has_result:
            self._notify()

    def _max_lag(self) -> float:
        """Returns Kafka's records-lag-max; NaN while no lag is known."""
        read_committed = self.settings["isolation_level"] == "read_committed"
        lags = [
            lag
            for partition in self.subscriptions.assigned_partitions()
            if (lag := self.subscriptions.lag_if_known(partition, read_committed=read_committed))
            is not None
        ]
        return float(max(lags)) if lags else math.nan

    def _on_group_event(self) -> None:
        self._wake.set()
        self._notify()

    def _notify(self) -> None:
        """Wakes poll and the calls that wait on the loop."""
        self._on_ready()
        self._changed.set()
        self._changed.clear()

    # --- metadata

    def _update_metadata_topics(self, now_ms: int) -> None:
        metadata = self.network.metadata
        has_pattern = self.subscriptions.subscription.has_pattern
        if has_pattern != metadata.all_topics:
            metadata.all_topics = has_pattern
            if has_pattern:
                metadata.request_update()
        topics = self.subscriptions.subscription.metadata_topics()
        if topics != self._metadata_topics:
            self._metadata_topics = topics
            metadata.set_topics(topics, now_ms)

    async def _first_metadata(self) -> None:
        attempts = 0
        while True:
            try:
                await self.network.update_metadata()
                return
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                if attempts % _WARN_EVERY == 0:
                    logger.warning("no metadata has been received yet: %s", error.message)
                await asyncio.sleep(self.network.retry_backoff.delay_ms(attempts) / 1000)
                attempts += 1

    def _on_metadata(self, old: Cluster, new: Cluster) -> None:
        if self._topic_metadata.resolve_pattern(new) and self.group is not None:
            self.group.subscription_changed()
        self._topic_metadata.report_errors(new, self.clock.monotonic_ms())
        self._fetcher.update_leaders(new)
        self.wake()
        self._notify()

    # --- calls of the user

    def deadline(self, timeout_s: float | None) -> int:
        """Returns the deadline of a call, by default `default_api_timeout_ms` from now."""
        if timeout_s is None:
            timeout_ms = self.settings["default_api_timeout_ms"]
        else:
            timeout_ms = int(max(0.0, timeout_s) * 1000)
        return self.clock.monotonic_ms() + timeout_ms

    def require_group(self) -> "ConsumerCoordinator":
        if self.group is None:
            raise IllegalStateError(
                "this consumer has no group",
                remedy="give it a `group_id` to subscribe and to commit",
            )
        return self.group

    async def position(self, partition: TopicPartition, deadline_ms: int) -> int:
        """Returns the offset of the next record; waits until it is known."""
        while True:
            position = self.subscriptions.valid_position(partition)
            if position is not None:
                return position.offset
            if self.errors:
                raise self.errors.popleft()
            remaining_ms = deadline_ms - self.clock.monotonic_ms()
            try:
                async with asyncio.timeout(max(0, remaining_ms) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                raise self.network.timeout_error(
                    f"the position of {partition} could not be determined in time; check that the "
                    "brokers can be reached and the partition has a leader"
                ) from None

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the group's committed offsets, None for partitions without one."""
        return await self.require_group().offsets.committed(
            list(partitions), self.deadline(timeout)
        )

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first record at or after each time (ms since 1970), or None without one."""
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(f"{partition}: the time {timestamp} is negative")
        offsets = await self.offset_fetcher.fetch_offsets(timestamps, self.deadline(timeout))
        return {partition: offsets.get(partition) for partition in timestamps}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset that each partition still has."""
        return await self._offsets_at(EARLIEST_TIMESTAMP, partitions, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition, or its last stable offset.

        It is the last stable offset with `isolation_level="read_committed"`.
        """
        return await self._offsets_at(LATEST_TIMESTAMP, partitions, timeout)

    async def _offsets_at(
        self, timestamp: int, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, int]:
        timestamps = dict.fromkeys(partitions, timestamp)
        offsets = await self.offset_fetcher.fetch_offsets(timestamps, self.deadline(timeout))
        return {partition: at.offset for partition, at in offsets.items()}

    def request_end_offset(self, partition: TopicPartition) -> None:
        """Requests the end offset in the background, for the next `current_lag`."""

        async def fetch() -> None:
            for offset in (await self.end_offsets([partition])).values():
                self.subscriptions.update_watermarks(partition, offset, offset, -1)

        self._start(f"end of {partition}", fetch)

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """Returns the partitions of a topic."""
        info = self.network.metadata.cluster.topics.get(topic)
        if info is None or not info.partitions:
            cluster = await self.network.wait_for_topics([topic], self.deadline(timeout))
            info = cluster.topics[topic]
        return list(info.partitions)

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """Returns all topics that this client may describe, with their partitions."""

        def make(version: int) -> MetadataRequest:
            return MetadataRequest(
                topics=[] if version == 0 else None, allow_auto_topic_creation=True
            )

        response = await self.network.request_any(
            make, MetadataResponse, deadline_ms=self.deadline(timeout)
        )
        return {
            topic.name: [
                PartitionInfo(
                    topic.name,
                    partition.partition_index,
                    partition.leader_id,
                    partition.leader_epoch,
                    tuple(partition.replica_nodes),
                    tuple(partition.isr_nodes),
                    tuple(partition.offline_replicas),
                    ErrorCode.NONE,
                )
                for partition in sorted(topic.partitions, key=attrgetter("partition_index"))
            ]
            for topic in response.topics
            if topic.name is not None and not topic.error_code
        }
