"""A consumer's group as the consumer sees it, for both protocols. All of it runs on one loop.

Rebalances go on in the background up to where the listener must be called. Then an event lies in
`events` until a poll has called the listener (or has none) and said so with `callback_done`. With
`revoked`, auto-committing consumers commit first; nothing new of these partitions is given out
meanwhile. Before `leave` and `close` a consumer calls its listener with what `release` returns.
"""

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any
from uuid import UUID, uuid4

from penstock.client.consumer.assignors import TopicRacks, assignors_of
from penstock.client.consumer.group.actions import (
    Action,
    Assign,
    CallListener,
    FetchTopics,
    ForgetCoordinator,
    GroupMachine,
    Identity,
    MemberSettings,
    RebalanceEvent,
    RebalanceKind,
    Report,
    ResolveTopics,
    Send,
)
from penstock.client.consumer.group.classic import ClassicMember
from penstock.client.consumer.group.commits import leave_request
from penstock.client.consumer.group.consumer_protocol import ConsumerMember
from penstock.client.consumer.group.group_metrics import GroupMetrics
from penstock.client.consumer.group.offsets import GroupOffsets
from penstock.client.consumer.record import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.consumer.subscription import SubscriptionKind
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.errors import ConfigError
from penstock.client.metrics import Metrics
from penstock.client.settings import ConsumerOptions
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster
from penstock.net.client.network_client import NetworkClient, RequestBuilder
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

logger = logging.getLogger(__name__)

_SHORTEST_WAIT_S = 0.001
_IDS_IN_METADATA = 12
"""The first version of Metadata that can be asked by topic ids alone."""


class ConsumerCoordinator:
    """Made anywhere, used on one loop from `start` on; `polled`, `events`, `last_error` and
    `group_metadata` may be used from any thread."""

    def __init__(
        self,
        network: NetworkClient,
        coordinators: Coordinators,
        subscriptions: SubscriptionState,
        settings: ConsumerOptions,
        clock: Clock,
        metrics: Metrics | None = None,
    ) -> None:
        self._network = network
        self._coordinators = coordinators
        self._subscriptions = subscriptions
        self._clock = clock
        self._settings = _member_settings(settings)
        self._is_consumer_protocol = settings["group_protocol"] == "consumer"
        self._machine = _machine(self._settings, settings)
        self.events: deque[RebalanceEvent] = deque()
        """What the listener must hear, the oldest first."""
        self.on_event: Callable[[], None] = lambda: None
        """Called on the loop when a poll has something to do: an event, or an error."""
        self.is_polling: Callable[[], bool] = lambda: False
        """Whether a poll is under way: however long it waits, that is no silence."""
        self._error: KafkaError | None = None
        self._error_is_fatal = False
        self._error_was_read = False
        self._polled_ms = clock.monotonic_ms()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._joins = 0
        """JoinGroups under way: the connection for them is taken as long."""
        self._is_closed = False
        self._metrics = (
            None if metrics is None else GroupMetrics(metrics, lambda: len(subscriptions.assigned))
        )
        self._offsets = GroupOffsets(network, coordinators, self._settings.group_id, self)

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._network.metadata.listeners.append(self._metadata_changed)

    async def close(self, deadline_ms: int) -> None:
        """Leave, if there is time, and end everything. May be called twice."""
        if self._is_closed:
            return
        await self.leave(deadline_ms, reason="the consumer is being closed")
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._metadata_changed in self._network.metadata.listeners:
            self._network.metadata.listeners.remove(self._metadata_changed)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What the consumer says

    def subscription_changed(self) -> None:
        """`subscriptions` has another subscription than before. On the loop."""
        now = self._now()
        kind = self._subscriptions.subscription.kind
        pattern = self._subscriptions.subscription.server_pattern
        if kind is SubscriptionKind.SERVER_PATTERN and pattern is not None:
            try:
                self._machine.subscribe_regex(pattern.pattern, now)
            except KafkaError as error:
                self._perform(Report(error, is_fatal=False))
        elif kind is SubscriptionKind.PATTERN:
            if self._network.metadata.age_ms(now) is None:
                # Resolved with the first metadata: joining before would join with nothing.
                return
            matches = self._subscriptions.subscription.matches_pattern
            self._machine.subscribe(self._subscriptions.subscription.topics, now, matches)
        elif kind is SubscriptionKind.TOPICS:
            self._network.metadata.add_topics(self._subscriptions.subscription.topics, now)
            self._machine.subscribe(self._subscriptions.subscription.topics, now)
        self._go_on()

    def polled(self, now_ms: int) -> None:
        """Poll was called. Cheap, and from any thread."""
        self._polled_ms = now_ms
        if self._loop is not None and (self._machine.needs_poll or self._error_was_read):
            self._loop.call_soon_threadsafe(self._take_poll)

    def _take_poll(self) -> None:
        if self._is_closed:
            return
        if self._error_was_read and not self._error_is_fatal:
            self._error = None
            self._error_was_read = False
        self._machine.polled(self._polled_ms, self._now())
        self._go_on()

    def callback_done(self, event: RebalanceEvent, error: Exception | None = None) -> None:
        """The listener has been called with `event`, which is out of `events`. On the loop."""
        # With KIP-848 a listener that failed is called again, and reading waits for it.
        is_heard = error is None or not self._is_consumer_protocol
        if event.kind is RebalanceKind.ASSIGNED and is_heard:
            self._subscriptions.enable_partitions_awaiting_callback(
                self._subscriptions.assigned_partitions()
            )
        self._machine.callback_done(event, error, self._now())
        self._go_on()

    @property
    def last_error(self) -> KafkaError | None:
        """For poll to raise; the poll after one that has seen it tries again, unless it is fatal:
        then it stays."""
        if self._error is not None:
            self._error_was_read = True
        return self._error

    @property
    def is_settled(self) -> bool:
        """A member, with all that it was assigned, and no rebalance under way."""
        return self._machine.is_settled

    def prepare_leave(self) -> RebalanceEvent | None:
        """What the listener must hear before `leave` or `close`; not in `events`, and
        `callback_done` need not follow."""
        return self._machine.release()

    async def leave(
        self, deadline_ms: int | None = None, *, reason: str = "the consumer unsubscribed"
    ) -> None:
        """Out of the group: its partitions go to others. Waits for the coordinator to know."""
        now = self._now()
        known = self._coordinators.cached(CoordinatorKind.GROUP, self._settings.group_id)
        self.events.clear()
        self._machine.leave(reason, now)
        actions, self._machine.actions = self._machine.actions, []
        goodbyes = []
        for action in actions:
            if not isinstance(action, Send):
                self._perform(action)
            elif known is not None and self._loop is not None:
                goodbyes.append(self._spawn(self._say_goodbye(action, known)))
        if deadline_ms is None:
            deadline_ms = now + self._settings.request_timeout_ms
        if goodbyes:
            await asyncio.wait(goodbyes, timeout=max(0, deadline_ms - now) / 1000)
        self._set_timer()

    async def _say_goodbye(self, action: Send, node_id: int) -> None:
        try:
            await self._ask(action, node_id)
        except KafkaError as error:
            logger.info("group %s: could not leave: %s", self._settings.group_id, error.message)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For transactions that commit offsets of this group."""
        who = self._machine.metadata_identity()
        return ConsumerGroupMetadata(
            self._settings.group_id, who.generation_or_epoch, who.member_id, who.group_instance_id
        )

    # Offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        retry: bool = True,
    ) -> None:
        """Commit; with `retry`, again until the deadline where that can help."""
        begin = self._now()
        await self._offsets.commit(offsets, deadline_ms, retry=retry)
        if self._metrics is not None:
            self._metrics.committed(self._now() - begin)

    async def committed(
        self, partitions: Collection[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._offsets.committed(partitions, deadline_ms)

    def committing_as(self) -> Identity:
        """Partitions chosen by hand are committed by nobody in particular."""
        if self._subscriptions.subscription.has_auto_assigned_partitions:
            return self._machine.identity()
        return Identity()

    def fetching_as(self) -> Identity | None:
        if self._is_consumer_protocol and self._machine.is_member:
            return self._machine.metadata_identity()
        return None

    def commit_refused(self, code: ErrorCode, who: Identity) -> KafkaError | None:
        error = self._machine.commit_refused(code, who, self._now())
        self._go_on()
        return error

    def connection(self, node_id: int) -> int:
        return node_id if self._joins else self._network.dedicated_connection(node_id)

    # The machine

    def _now(self) -> int:
        return self._clock.monotonic_ms()

    def _go_on(self) -> None:
        """Do what the machine asks for, and come back when it is time."""
        while self._machine.actions:
            actions, self._machine.actions = self._machine.actions, []
            for action in actions:
                self._perform(action)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = self._machine.wake_at()
        if wake_at is not None and self._loop is not None and not self._is_closed:
            delay = max((wake_at - self._now()) / 1000, _SHORTEST_WAIT_S)
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        if self.is_polling():
            self._polled_ms = self._now()
        if not self._machine.needs_poll:
            self._machine.polled(self._polled_ms, self._now())
        self._machine.tick(self._now())
        self._go_on()

    def _perform(self, action: Action) -> None:
        match action:
            case Send():
                if isinstance(action.request, JoinGroupRequest):
                    self._watch(())
                self._spawn(self._send(action))
            case CallListener(event):
                if event.kind is not RebalanceKind.ASSIGNED:
                    self._subscriptions.mark_pending_revocation(event.partitions)
                self.events.append(event)
                self.on_event()
            case Assign():
                self._assign(action)
            case FetchTopics():
                self._spawn(self._fetch_topics(action))
            case ResolveTopics(topic_ids):
                self._spawn(self._resolve(topic_ids))
            case ForgetCoordinator():
                self._coordinators.forget(CoordinatorKind.GROUP, self._settings.group_id)
            case Report(error, is_fatal):
                self._error = error
                self._error_is_fatal = self._error_is_fatal or is_fatal
                self._error_was_read = False
                self.on_event()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._loop is not None
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _assign(self, action: Assign) -> None:
        subscriptions = self._subscriptions
        if not subscriptions.subscription.has_auto_assigned_partitions:
            return
        topics = {partition.topic for partition in action.partitions}
        if subscriptions.subscription.has_pattern:
            subscriptions.subscription.subscribe_from_pattern(
                subscriptions.subscription.topics | topics
            )
        elif subscriptions.subscription.kind is SubscriptionKind.SERVER_PATTERN:
            self._watch(topics)
        self._network.metadata.add_topics(topics, self._now())
        subscriptions.assign_from_subscribed_awaiting_callback(action.partitions, action.added)

    def _watch(self, topics: Collection[str]) -> None:
        """Metadata of these is kept fresh as well: those of all members at a leader."""
        if self._subscriptions.subscription.has_auto_assigned_partitions:
            self._subscriptions.subscription.group_subscribe(topics)

    # Requests

    async def _send(self, action: Send) -> None:
        deadline_ms = self._now() + self._settings.request_timeout_ms
        joining = isinstance(action.request, JoinGroupRequest)
        try:
            node_id = await self._coordinators.find(
                CoordinatorKind.GROUP, self._settings.group_id, deadline_ms
            )
            self._joins += joining
            try:
                await self._ask(action, node_id)
            finally:
                self._joins -= joining
        except KafkaError as error:
            self._machine.failed(action.number, error, self._now())
            self._go_on()

    async def _ask(self, action: Send, node_id: int) -> None:
        request = action.request
        begin = self._now()
        response = await self._network.request(
            self.connection(node_id)
            if isinstance(request, LeaveGroupRequest)
            else self._network.dedicated_connection(node_id),
            RequestBuilder(LeaveGroupRequest, leave_request(request))
            if isinstance(request, LeaveGroupRequest)
            else request,
            action.answer,
            timeout_ms=action.timeout_ms,
        )
        if self._metrics is not None:
            self._metrics.answered(request, self._now() - begin)
        self._machine.answered(action.number, response, self._now())
        self._go_on()

    async def _fetch_topics(self, action: FetchTopics) -> None:
        """All members' topics, as fresh as need be, for the leader to assign."""
        metadata = self._network.metadata
        self._watch(action.topics)
        is_new = metadata.add_topics(action.topics, self._now())
        deadline_ms = self._now() + self._settings.max_poll_interval_ms
        attempts = 0
        while is_new or metadata.age_ms(self._now()) is None:
            try:
                await self._network.within(deadline_ms, self._network.update_metadata)
                break
            except KafkaError as error:
                try:
                    await self._network.wait_before_retry(error, attempts, deadline_ms)
                except KafkaError as final:
                    self._machine.failed(action.number, final, self._now())
                    self._go_on()
                    return
            attempts += 1
        self._machine.topics_fetched(action.number, racks_of(metadata.cluster), self._now())
        self._go_on()

    async def _resolve(self, topic_ids: Collection[UUID]) -> None:
        """Names of topics that the metadata does not have: those of a pattern, or new ones."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id, None) for topic_id in topic_ids],
            allow_auto_topic_creation=False,
        )
        deadline_ms = self._now() + self._settings.request_timeout_ms
        try:
            response = await self._network.request_any(
                request, MetadataResponse, deadline_ms=deadline_ms, min_version=_IDS_IN_METADATA
            )
        except KafkaError as error:
            # The machine asks again: the assignment still has a topic without a name.
            logger.info("group %s: topic names: %s", self._settings.group_id, error.message)
            return
        names = {topic.topic_id: topic.name for topic in response.topics if topic.name}
        self._machine.topics_resolved(names, self._now())
        self._go_on()

    def _metadata_changed(self, old: Cluster, new: Cluster) -> None:
        if self._subscriptions.subscription.kind is SubscriptionKind.PATTERN:
            self.subscription_changed()
        if new.topics is not old.topics:
            self._machine.metadata_changed(racks_of(new), new.topic_names, self._now())
            self._go_on()


def racks_of(cluster: Cluster) -> TopicRacks:
    """Of every topic with partitions: the racks in which their replicas are."""
    racks = {node.id: frozenset((node.rack,)) for node in cluster.nodes.values() if node.rack}
    nowhere: frozenset[str] = frozenset()
    return {
        name: [
            nowhere.union(*(racks.get(replica, nowhere) for replica in partition.replicas))
            if racks
            else nowhere
            for partition in topic.partitions
        ]
        for name, topic in cluster.topics.items()
        if topic.partitions
    }


def _member_settings(settings: ConsumerOptions) -> MemberSettings:
    group_id = settings["group_id"]
    if not group_id:
        raise ConfigError("group_id is missing: name the group that this consumer belongs to")
    return MemberSettings(
        group_id,
        settings["group_instance_id"],
        settings["session_timeout_ms"],
        settings["heartbeat_interval_ms"],
        settings["max_poll_interval_ms"],
        settings["retry_backoff_ms"],
        settings["request_timeout_ms"],
        settings["client_rack"] or None,
        settings["group_remote_assignor"],
    )


def _machine(member: MemberSettings, settings: ConsumerOptions) -> GroupMachine:
    if settings["group_protocol"] == "consumer":
        member_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        return ConsumerMember(member, member_id)
    return ClassicMember(member, assignors_of(settings["partition_assignment_strategy"]))
