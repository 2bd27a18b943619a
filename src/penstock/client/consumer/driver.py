"""The consumer's part that runs on the event loop: positions, fetches, questions to brokers.

One task looks after everything that is not a question of the user's: it is woken when something
changed and starts what is due. What it finds out that poll has to raise is put into `errors`.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from penstock.client.consumer.consumer_metrics import ConsumerMetrics
from penstock.client.consumer.deserializers import deserialize_with
from penstock.client.consumer.fetch_buffer import FetchBuffer
from penstock.client.consumer.fetched import Decoding
from penstock.client.consumer.fetcher import Fetcher
from penstock.client.consumer.group.actions import RebalanceEvent
from penstock.client.consumer.list_offsets import OffsetLookup
from penstock.client.consumer.membership import Membership
from penstock.client.consumer.position_updater import PositionUpkeep
from penstock.client.consumer.positions import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    parse_offset_reset,
)
from penstock.client.consumer.record import OffsetAndMetadata, OffsetAndTimestamp
from penstock.client.consumer.subscriptions import SubscriptionState
from penstock.client.consumer.topic_watch import TopicWatch
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
from penstock.net.client.network_client import RequestBuilder
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

logger = logging.getLogger(__name__)

_WARN_EVERY: Final = 20
"""Attempts to get the first metadata, of which one is worth a word in the log."""


class ConsumerDriver:
    """Made anywhere, used on one loop from `start` on; what is said to be is thread-safe."""

    def __init__(
        self, settings: ConsumerOptions, *, clock: Clock, on_ready: Callable[[], None]
    ) -> None:
        """`on_ready` is called on the loop when poll may find something: it must not block."""
        self.settings = settings
        self.clock = clock
        self.errors: deque[KafkaError] = deque()
        """For poll to raise, the oldest first. Thread-safe."""
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
            raise ConfigError(f"auto_offset_reset: {error}") from None
        read_committed = settings["isolation_level"] == "read_committed"
        decoding = Decoding(
            check_crcs=settings["check_crcs"],
            read_committed=read_committed,
            key=deserialize_with(settings["key_deserializer"], "key_deserializer"),
            value=deserialize_with(settings["value_deserializer"], "value_deserializer"),
        )
        self.subscriptions = SubscriptionState(reset)
        self.buffer = FetchBuffer(self.subscriptions)
        self.fetch_metrics = ConsumerMetrics(self.metrics, self._greatest_lag)
        self.network = create_network_client(
            settings, clock=clock, auto_create_topics=settings["allow_auto_create_topics"]
        )
        self.lookup = OffsetLookup(self.network, read_committed=read_committed)
        self.group: Membership | None = None
        if settings["group_id"] is not None:
            # Who only assigns need not wait for its modules.
            from penstock.client.consumer.group.group import Group

            self.group = Group(
                self.network,
                Coordinators(self.network),
                self.subscriptions,
                settings,
                clock,
                self.metrics,
            )
            self.group.on_event = self._group_changed
        self._fetcher = Fetcher(
            self.network,
            self.subscriptions,
            self.buffer,
            settings,
            decoding,
            self.fetch_metrics,
            on_fetched=self._fetched,
            on_error=self.report,
            on_end=self._told,
        )
        self._positions = PositionUpkeep(
            self.network,
            self.subscriptions,
            self.lookup,
            self.group,
            settings,
            start=self._start,
            report=self.report,
        )
        self._topics = TopicWatch(
            self.subscriptions,
            hides_internal=settings["exclude_internal_topics"],
            report=self.report,
        )
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._main: asyncio.Task[None] | None = None
        self._kept: set[asyncio.Task[None]] = set()
        self._wanted: frozenset[str] | None = None

    async def start(self) -> None:
        await self.network.start()
        self.network.metadata.listeners.append(self._metadata_changed)
        if self.group is not None:
            await self.group.start()
        self._main = asyncio.ensure_future(self._run())
        self._main.add_done_callback(self._told)

    async def close(self, deadline_ms: int) -> None:
        """Leave the group and end everything. Commits are the caller's business, before."""
        tasks = [*self._tasks.values(), *self._kept]
        if self._main is not None:
            tasks.append(self._main)
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
        """Run something of the user's besides: a commit that nobody waits for."""
        task = asyncio.ensure_future(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    async def wait_for_background(self, deadline_ms: int) -> None:
        """Wait for what is kept running, until the deadline."""
        if self._kept:
            left_ms = max(0, deadline_ms - self.clock.monotonic_ms())
            await asyncio.wait(self._kept, timeout=left_ms / 1000)

    async def prepare_leave(self) -> RebalanceEvent | None:
        """What the listener must hear before this consumer leaves its group."""
        return None if self.group is None else self.group.release()

    async def leave(self, deadline_ms: int) -> None:
        if self.group is not None:
            await self.group.leave(deadline_ms)

    def wake(self) -> None:
        """Something changed: look what is due. On the loop."""
        self._wake.set()

    def report(self, error: KafkaError) -> None:
        """Have poll raise it. The same again before poll has seen it is not said twice."""
        if not any(each.message == error.message for each in self.errors):
            self.errors.append(error)
        self._tell()

    # The task

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            delay_ms = self._look_after()
            try:
                async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _look_after(self) -> int | None:
        """Start what is due. In how many ms to look again, if nothing happens."""
        now_ms = self.clock.monotonic_ms()
        self._want_topics(now_ms)
        if self.network.metadata.age_ms(now_ms) is None and (
            self._wanted or self.network.metadata.all_topics
        ):
            self._start("metadata", self._first_metadata)
        # In this order: the fetcher may find that a position must be validated first.
        delays = [
            self._fetcher.pump(now_ms),
            self._positions.pump(now_ms, errors_wait=bool(self.errors)),
        ]
        return min((each for each in delays if each is not None), default=None)

    def _start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run it unless one of that name runs; its errors go to poll."""
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
            self._tell()

        task = self._tasks[name] = asyncio.ensure_future(run())
        task.add_done_callback(self._told)
        return True

    def _told(self, task: "asyncio.Task[None]") -> None:
        """What nobody expected must not end in silence."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task of the consumer failed", exc_info=error)
            self.report(ClientError(f"a task of the consumer failed: {error!r}"))

    def _fetched(self, added: bool) -> None:
        self._wake.set()
        if added:
            self._tell()

    def _greatest_lag(self) -> float:
        """Kafka's records-lag-max; NaN while no lag is known."""
        read_committed = self.settings["isolation_level"] == "read_committed"
        lags = [
            lag
            for each in self.subscriptions.assigned_partitions()
            if (lag := self.subscriptions.lag_if_known(each, read_committed=read_committed))
            is not None
        ]
        return float(max(lags)) if lags else math.nan

    def _group_changed(self) -> None:
        self._wake.set()
        self._tell()

    def _tell(self) -> None:
        """Wake poll, and the calls that wait on the loop."""
        self._on_ready()
        self._changed.set()
        self._changed.clear()

    # Metadata

    def _want_topics(self, now_ms: int) -> None:
        metadata = self.network.metadata
        has_pattern = self.subscriptions.has_pattern_subscription
        if has_pattern != metadata.all_topics:
            metadata.all_topics = has_pattern
            if has_pattern:
                metadata.request_update()
        wanted = self.subscriptions.metadata_topics()
        if wanted != self._wanted:
            self._wanted = wanted
            metadata.set_topics(wanted, now_ms)

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
                    logger.warning("no metadata yet: %s", error.message)
                await asyncio.sleep(self.network.retry_backoff.delay_ms(attempts) / 1000)
                attempts += 1

    def _metadata_changed(self, old: Cluster, new: Cluster) -> None:
        if self._topics.resolve(new) and self.group is not None:
            self.group.subscription_changed()
        self._topics.check(new, self.clock.monotonic_ms())
        self._fetcher.note_leaders(new)
        self.wake()
        self._tell()

    # What the user asks

    def deadline(self, timeout_s: float | None) -> int:
        """Of a call that takes so long at most; without a time `default_api_timeout_ms`."""
        if timeout_s is None:
            timeout_ms = self.settings["default_api_timeout_ms"]
        else:
            timeout_ms = int(max(0.0, timeout_s) * 1000)
        return self.clock.monotonic_ms() + timeout_ms

    def require_group(self) -> Membership:
        if self.group is None:
            raise IllegalStateError(
                "this consumer has no group: give it a group_id to subscribe and to commit"
            )
        return self.group

    async def position(self, partition: TopicPartition, deadline_ms: int) -> int:
        """The next offset to be given out; waits until there is one."""
        while True:
            position = self.subscriptions.valid_position(partition)
            if position is not None:
                return position.offset
            if self.errors:
                raise self.errors.popleft()
            left_ms = deadline_ms - self.clock.monotonic_ms()
            try:
                async with asyncio.timeout(max(0, left_ms) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                raise self.network.timeout_error(
                    f"the position of {partition} could not be found in time: check that the "
                    "brokers can be reached and the partition has a leader"
                ) from None

    async def committed(
        self, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self.require_group().committed(list(partitions), deadline_ms)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        retry: bool = True,
    ) -> None:
        await self.require_group().commit(dict(offsets), deadline_ms, retry=retry)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        for each, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(f"{each}: the time {timestamp} is negative")
        found = await self.lookup.look_up(timestamps, deadline_ms)
        return {each: found.get(each) for each in timestamps}

    async def edge_offsets(
        self, partitions: Iterable[TopicPartition], *, end: bool, deadline_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offsets of partitions, or the ends of what may be read of them."""
        timestamp = LATEST_TIMESTAMP if end else EARLIEST_TIMESTAMP
        found = await self.lookup.look_up(dict.fromkeys(partitions, timestamp), deadline_ms)
        return {each: at.offset for each, at in found.items()}

    def request_end_offset(self, partition: TopicPartition) -> None:
        """Ask for what `current_lag` needs, for the next time somebody wants to know it."""

        async def find() -> None:
            deadline_ms = self.deadline(None)
            ends = await self.edge_offsets([partition], end=True, deadline_ms=deadline_ms)
            for each, offset in ends.items():
                self.subscriptions.update_watermarks(each, offset, offset, -1)

        self._start(f"end of {partition}", find)

    async def partitions_for(self, topic: str, deadline_ms: int) -> list[PartitionInfo]:
        known = self.network.metadata.cluster.topics.get(topic)
        if known is None or not known.partitions:
            cluster = await self.network.wait_for_topics([topic], deadline_ms)
            known = cluster.topics[topic]
        return list(known.partitions)

    async def list_topics(self, deadline_ms: int) -> dict[str, list[PartitionInfo]]:
        """All topics that this client may see."""

        def make(version: int) -> MetadataRequest:
            return MetadataRequest(
                topics=[] if version == 0 else None, allow_auto_topic_creation=True
            )

        response = await self.network.request_any(
            RequestBuilder(MetadataRequest, make), MetadataResponse, deadline_ms=deadline_ms
        )
        return {
            topic.name: [
                PartitionInfo(
                    topic.name,
                    each.partition_index,
                    each.leader_id,
                    each.leader_epoch,
                    tuple(each.replica_nodes),
                    tuple(each.isr_nodes),
                    tuple(each.offline_replicas),
                    ErrorCode.NONE,
                )
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            ]
            for topic in response.topics
            if topic.name is not None and not topic.error_code
        }
