"""Members of a group without records: only the `ConsumerCoordinator` of our client."""

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
PATIENCE_S = 20.0
CLOCK = SystemClock()


def soon(ms: int = 10_000) -> int:
    return CLOCK.monotonic_ms() + ms


class OwnMember:
    """Polls by itself, as long as `polls` is set; `events` is what its listener has heard."""

    def __init__(self, bootstrap: str, group: str, **options: object) -> None:
        value = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "heartbeat_interval_ms": 100,
            "session_timeout_ms": 6_000,
            "retry_backoff_ms": 20,
            "auto_offset_reset": "earliest",
        }
        settings = resolve(ConsumerOptions, {**value, **options})
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
        """A pattern of this client's is resolved here, as the consumer around a group does."""
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
    def heard(self) -> list[tuple[str, int]]:
        """The kinds of events, and of how many partitions each was."""
        return [(event.kind.value, len(event.partitions)) for event in self.events]

    async def commit(self, offsets: dict[tuple[str, int], int]) -> None:
        positions = {TopicPartition(*p): OffsetAndMetadata(o, "note") for p, o in offsets.items()}
        await self.group.commit(positions, soon())

    async def committed(self, *partitions: tuple[str, int]) -> list[int | None]:
        requested = [TopicPartition(*p) for p in partitions]
        results = await self.group.committed(requested, soon())
        offsets = [results[p] for p in requested]
        return [None if offset is None else offset.offset for offset in offsets]


async def until(ready: Callable[[], bool], what: str) -> None:
    """Wait for it, looking often; the event loop of the members is this one."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not ready():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"still not: {what}") from None


def share(*members: OwnMember) -> Callable[[], bool]:
    """Whether the partitions are spread over the members as evenly as can be."""

    def is_even() -> bool:
        sizes = [len(member.owned) for member in members]
        return min(sizes) > 0 and max(sizes) - min(sizes) <= 1

    return is_even


def all_of(topic: str, count: int, *members: OwnMember) -> Callable[[], bool]:
    """Whether each partition is owned by one of the members, and by one only."""
    everything = [TopicPartition(topic, p) for p in range(count)]

    def is_so() -> bool:
        return sorted(p for member in members for p in member.owned) == everything

    return is_so


@asynccontextmanager
async def members(
    bootstrap: str, group: str, topic: str, count: int, **options: object
) -> AsyncIterator[list[OwnMember]]:
    """So many members that subscribe to the topic."""
    made = [OwnMember(bootstrap, group, **options) for _ in range(count)]
    try:
        for member in made:
            await member.start()
            member.subscribe(topic)
        yield made
    finally:
        await asyncio.gather(*(member.close() for member in made))
