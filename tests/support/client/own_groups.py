"""Group members without records: only the `ConsumerCoordinator` of Penstock's client."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

from penstock.client.consumer.group.actions import RebalanceEvent, RebalanceKind
from penstock.client.consumer.group.coordinator import ConsumerCoordinator
from penstock.client.consumer.positions import parse_offset_reset
from penstock.client.consumer.record import OffsetAndMetadata, SubscriptionPattern
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.coordinators import Coordinators
from penstock.client.network import create_network_client
from penstock.client.settings import ConsumerOptions, resolve
from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock

POLL_S = 0.01
PATIENCE_S = 60.0
CLOCK = SystemClock()


def soon(ms: int = 10_000) -> int:
    return CLOCK.monotonic_ms() + ms


class OwnMember:
    """A member that polls in a task while `polls` is set; `events` are those of its listener."""

    def __init__(self, bootstrap: str, group: str, **options: object) -> None:
        defaults = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "heartbeat_interval_ms": 100,
            "session_timeout_ms": 6_000,
            "retry_backoff_ms": 20,
            "auto_offset_reset": "earliest",
        }
        settings = resolve(ConsumerOptions, {**defaults, **options})
        self.subscriptions = SubscriptionState(parse_offset_reset("earliest"))
        self.network = create_network_client(settings, clock=CLOCK)
        self.group = ConsumerCoordinator(
            self.network, Coordinators(self.network), self.subscriptions, settings, CLOCK
        )
        self.events: list[RebalanceEvent] = []
        self.errors: list[KafkaError] = []
        self.polls = True
        self.on_revoked: Callable[[RebalanceEvent], None] = lambda event: None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.network.start()
        await self.group.start()
        self._tasks.append(asyncio.ensure_future(self._poll()))

    async def _poll(self) -> None:
        while True:
            if self.polls and self.subscriptions.subscription.has_auto_assigned_partitions:
                self.group.polled(CLOCK.monotonic_ms())
                while self.group.events:
                    event = self.group.events.popleft()
                    self.events.append(event)
                    if event.kind is RebalanceKind.REVOKED:
                        self.on_revoked(event)
                    self.group.callback_done(event, None)
                error = self.group.last_error
                if error is not None and error not in self.errors:
                    self.errors.append(error)
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.group.close(soon())
        await self.network.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def subscribe(self, *topics: str) -> Self:
        self.subscriptions.subscription.subscribe(topics)
        self.group.subscription_changed()
        return self

    def subscribe_pattern(self, pattern: str, *, on_server: bool = False) -> Self:
        """A client-side pattern is resolved here, as in the consumer."""
        if on_server:
            self.subscriptions.subscription.subscribe_pattern(SubscriptionPattern(pattern))
            self.group.subscription_changed()
            return self
        self.subscriptions.subscription.subscribe_pattern(re.compile(pattern))
        metadata = self.network.metadata
        metadata.all_topics = True

        def resolve_pattern() -> None:
            names = [n for n in metadata.cluster.topics if re.fullmatch(pattern, n)]
            if self.subscriptions.subscription.subscribe_from_pattern(names):
                self.group.subscription_changed()

        metadata.listeners.insert(0, lambda old, new: resolve_pattern())
        self._tasks.append(asyncio.ensure_future(self._first_metadata()))
        return self

    async def _first_metadata(self) -> None:
        await self.network.update_metadata()

    @property
    def owned(self) -> set[TopicPartition]:
        return self.subscriptions.assigned_partitions()

    @property
    def event_sizes(self) -> list[tuple[str, int]]:
        """Returns the kind of each event, and its number of partitions."""
        return [(event.kind.value, len(event.partitions)) for event in self.events]

    async def commit(self, offsets: dict[tuple[str, int], int]) -> None:
        positions = {TopicPartition(*p): OffsetAndMetadata(o, "note") for p, o in offsets.items()}
        await self.group.offsets.commit(positions, soon())

    async def committed(self, *partitions: tuple[str, int]) -> list[int | None]:
        requested = [TopicPartition(*p) for p in partitions]
        results = await self.group.offsets.committed(requested, soon())
        offsets = [results[p] for p in requested]
        return [None if offset is None else offset.offset for offset in offsets]


async def until(ready: Callable[[], bool], goal: str) -> None:
    """Waits until `ready()`; the members run on this event loop."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not ready():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"still not: {goal}") from None


def share(*members: OwnMember) -> Callable[[], bool]:
    """Returns a check that the partitions are spread evenly over the members."""

    def is_even() -> bool:
        sizes = [len(member.owned) for member in members]
        return min(sizes) > 0 and max(sizes) - min(sizes) <= 1

    return is_even


def all_of(topic: str, count: int, *members: OwnMember) -> Callable[[], bool]:
    """Returns a check that each partition is owned by exactly one of the members."""
    everything = [TopicPartition(topic, p) for p in range(count)]

    def is_complete() -> bool:
        return sorted(p for member in members for p in member.owned) == everything

    return is_complete


@asynccontextmanager
async def members(
    bootstrap: str, group: str, topic: str, count: int, **options: object
) -> AsyncIterator[list[OwnMember]]:
    """Starts members that subscribe to the topic."""
    group_members = [OwnMember(bootstrap, group, **options) for _ in range(count)]
    try:
        for member in group_members:
            await member.start()
            member.subscribe(topic)
        yield group_members
    finally:
        await asyncio.gather(*(member.close() for member in group_members))
