"""The group membership of a consumer, for both group protocols, on one event loop.

Rebalances proceed in the background until the listener must be called. Then an event stays in
`events` until a poll has called the listener, if there is one, and `callback_done`. Before it calls
the listener with revoked partitions, a consumer with automatic commits commits; it does not return
records of these partitions any more. Before `leave` and `close`, a consumer calls its listener with
the event of `prepare_leave`.
"""

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from typing import Any
from uuid import UUID, uuid4

from penstock.client.consumer.assignors import TopicRacks, assignors_of
from penstock.client.consumer.group.actions import (
    Action,
    Assign,
    CallListener,
    FetchTopics,
    ForgetCoordinator,
    Identity,
    MemberSettings,
    RebalanceEvent,
    RebalanceKind,
    ReportError,
    ResolveTopics,
    Send,
)
from penstock.client.consumer.group.classic import ClassicMember
from penstock.client.consumer.group.commits import leave_request
from penstock.client.consumer.group.consumer_protocol import ConsumerMember
from penstock.client.consumer.group.group_metrics import GroupMetrics
from penstock.client.consumer.group.member import Member
from penstock.client.consumer.group.offsets import GroupOffsets
from penstock.client.consumer.record import ConsumerGroupMetadata
from penstock.client.consumer.subscription import SubscriptionKind
from penstock.client.consumer.subscription_state import SubscriptionState
from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.errors import ConfigError
from penstock.client.metrics import Metrics
from penstock.client.settings import ConsumerOptions
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.client.cluster import Cluster
from penstock.net.client.network_client import NetworkClient
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

logger = logging.getLogger(__name__)

_MIN_DELAY_S = 0.001
_FIRST_METADATA_WITH_IDS = 12
"""The first version of Metadata that takes topic ids alone."""


class ConsumerCoordinator:
    """Drives a membership machine: sends its requests, sets its timers, applies its assignments.

    It runs on one loop from `start` on; `polled`, `events`, `last_error` and `group_metadata` may
    be used from any thread.
    """

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
        """The events for the listener, the oldest first."""
        self.on_event: Callable[[], None] = lambda: None
        """Is called on the loop when a poll has an event or an error to handle."""
        self.is_polling: Callable[[], bool] = lambda: False
        """Whether a poll is under way: it may wait longer than `max_poll_interval_ms`."""
        self._error: KafkaError | None = None
        self._error_is_fatal = False
        self._error_was_read = False
        self._polled_ms = clock.monotonic_ms()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._joins = 0
        """The number of JoinGroup requests under way, which occupy the dedicated connection."""
        self._is_closed = False
        self._metrics = (
            None if metrics is None else GroupMetrics(metrics, lambda: len(subscriptions.assigned))
        )
        self.offsets = GroupOffsets(
            network,
            coordinators,
            self._settings.group_id,
            self,
            latency=None if self._metrics is None else self._metrics.commit,
        )

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._network.metadata.listeners.append(self._on_metadata)

    async def close(self, deadline_ms: int) -> None:
        """Leaves the group, if there is time, and ends all tasks. May be called twice."""
        if self._is_closed:
            return
        await self.leave(deadline_ms, reason="the consumer is being closed")
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._on_metadata in self._network.metadata.listeners:
            self._network.metadata.listeners.remove(self._on_metadata)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- calls of the consumer

    def subscription_changed(self) -> None:
        """Notifies the machine of a new subscription. On the loop."""
        now = self._now()
        kind = self._subscriptions.subscription.kind
        pattern = self._subscriptions.subscription.server_pattern
        if kind is SubscriptionKind.SERVER_PATTERN and pattern is not None:
            try:
                self._machine.subscribe_regex(pattern.pattern, now)
            except KafkaError as error:
                self._perform(ReportError(error, is_fatal=False))
        elif kind is SubscriptionKind.PATTERN:
            if self._network.metadata.age_ms(now) is None:
                # The first metadata resolves it; until then there is no topic to join with.
                return
            matches = self._subscriptions.subscription.matches_pattern
            self._machine.subscribe(self._subscriptions.subscription.topics, now, matches)
        elif kind is SubscriptionKind.TOPICS:
            self._network.metadata.add_topics(self._subscriptions.subscription.topics, now)
            self._machine.subscribe(self._subscriptions.subscription.topics, now)
        self._perform_actions()

    def polled(self, now_ms: int) -> None:
        """Notes a call of poll. Inexpensive, and for any thread."""
        self._polled_ms = now_ms
        if self._loop is not None and (self._machine.needs_poll or self._error_was_read):
            self._loop.call_soon_threadsafe(self._handle_poll)

    def _handle_poll(self) -> None:
        if self._is_closed:
            return
        if self._error_was_read and not self._error_is_fatal:
            self._error = None
            self._error_was_read = False
        self._machine.polled(self._polled_ms, self._now())
        self._perform_actions()

    def callback_done(self, event: RebalanceEvent, error: Exception | None = None) -> None:
        """Notes that the listener was called with `event`, which was removed from `events`.

        On the loop.
        """
        # With KIP-848 a listener that failed is called again, and the partitions wait for it.
        is_notified = error is None or not self._is_consumer_protocol
        if event.kind is RebalanceKind.ASSIGNED and is_notified:
            self._subscriptions.enable_partitions_awaiting_callback(
                self._subscriptions.assigned_partitions()
            )
        self._machine.callback_done(event, error, self._now())
        self._perform_actions()

    @property
    def last_error(self) -> KafkaError | None:
        """The error that poll raises. The poll after that retries, unless it is fatal."""
        if self._error is not None:
            self._error_was_read = True
        return self._error

    @property
    def is_stable(self) -> bool:
        """Whether it is a member that owns its whole assignment, and no rebalance is under way."""
        return self._machine.is_stable

    def prepare_leave(self) -> RebalanceEvent | None:
        """Returns the event to call the listener with before `leave` or `close`.

        It is not added to `events` and needs no `callback_done`.
        """
        return self._machine.prepare_leave()

    async def leave(
        self, deadline_ms: int | None = None, *, reason: str = "the consumer unsubscribed"
    ) -> None:
        """Leaves the group and waits for the coordinator's response, until the deadline."""
        now = self._now()
        coordinator = self._coordinators.cached(CoordinatorKind.GROUP, self._settings.group_id)
        self.events.clear()
        self._machine.leave(reason, now)
        actions, self._machine.actions = self._machine.actions, []
        leave_tasks = []
        for action in actions:
            if not isinstance(action, Send):
                self._perform(action)
            elif coordinator is not None and self._loop is not None:
                leave_tasks.append(self._spawn(self._send_leave(action, coordinator)))
        if deadline_ms is None:
            deadline_ms = now + self._settings.request_timeout_ms
        if leave_tasks:
            await asyncio.wait(leave_tasks, timeout=max(0, deadline_ms - now) / 1000)
        self._set_timer()

    async def _send_leave(self, action: Send, node_id: int) -> None:
        try:
            await self._request(action, node_id)
        except KafkaError as error:
            logger.info("group %s: leaving failed: %s", self._settings.group_id, error.message)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the membership, for transactions that commit offsets of this group."""
        identity = self._machine.metadata_identity()
        return ConsumerGroupMetadata(
            self._settings.group_id,
            identity.generation_or_epoch,
            identity.member_id,
            identity.group_instance_id,
        )

    # --- offsets

    def commit_identity(self) -> Identity:
        """Returns the member that commits; none for partitions that the user has assigned."""
        if self._subscriptions.subscription.has_auto_assigned_partitions:
            return self._machine.identity()
        return Identity()

    def fetch_identity(self) -> Identity | None:
        if self._is_consumer_protocol and self._machine.is_member:
            return self._machine.metadata_identity()
        return None

    def handle_commit_error(self, code: ErrorCode, identity: Identity) -> KafkaError | None:
        error = self._machine.handle_commit_error(code, identity, self._now())
        self._perform_actions()
        return error

    def connection(self, node_id: int) -> int:
        return node_id if self._joins else self._network.dedicated_connection(node_id)

    # --- the machine

    def _now(self) -> int:
        return self._clock.monotonic_ms()

    def _perform_actions(self) -> None:
        """Performs the actions of the machine and sets its timer."""
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
            delay = max((wake_at - self._now()) / 1000, _MIN_DELAY_S)
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        if self.is_polling():
            self._polled_ms = self._now()
        if not self._machine.needs_poll:
            self._machine.polled(self._polled_ms, self._now())
        self._machine.tick(self._now())
        self._perform_actions()

    def _perform(self, action: Action) -> None:
        match action:
            case Send():
                if isinstance(action.request, JoinGroupRequest):
                    self._watch_topics(())
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
            case ReportError(error, is_fatal):
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
            self._watch_topics(topics)
        self._network.metadata.add_topics(topics, self._now())
        subscriptions.assign_from_subscribed_awaiting_callback(action.partitions, action.added)

    def _watch_topics(self, topics: Collection[str]) -> None:
        """Keeps metadata of these topics up to date, too: a leader needs those of all members."""
        if self._subscriptions.subscription.has_auto_assigned_partitions:
            self._subscriptions.subscription.group_subscribe(topics)

    # --- requests

    async def _send(self, action: Send) -> None:
        deadline_ms = self._now() + self._settings.request_timeout_ms
        is_join = isinstance(action.request, JoinGroupRequest)
        try:
            node_id = await self._coordinators.find(
                CoordinatorKind.GROUP, self._settings.group_id, deadline_ms
            )
            self._joins += is_join
            try:
                await self._request(action, node_id)
            finally:
                self._joins -= is_join
        except KafkaError as error:
            self._machine.handle_failure(action.number, error, self._now())
            self._perform_actions()

    async def _request(self, action: Send, node_id: int) -> None:
        request = action.request
        started_ms = self._now()
        response = await self._network.request(
            self.connection(node_id)
            if isinstance(request, LeaveGroupRequest)
            else self._network.dedicated_connection(node_id),
            leave_request(request) if isinstance(request, LeaveGroupRequest) else request,
            action.response_type,
            timeout_ms=action.timeout_ms,
        )
        if self._metrics is not None:
            self._metrics.record_request(request, self._now() - started_ms)
        self._machine.handle_response(action.number, response, self._now())
        self._perform_actions()

    async def _fetch_topics(self, action: FetchTopics) -> None:
        """Fetches the metadata of all members' topics, from which the leader assigns."""
        metadata = self._network.metadata
        self._watch_topics(action.topics)
        is_new = metadata.add_topics(action.topics, self._now())
        deadline_ms = self._now() + self._settings.max_poll_interval_ms
        if is_new or metadata.age_ms(self._now()) is None:
            try:
                await self._network.retry(deadline_ms, self._network.update_metadata)
            except KafkaError as error:
                self._machine.handle_failure(action.number, error, self._now())
                self._perform_actions()
                return
        self._machine.topics_fetched(action.number, racks_of(metadata.cluster), self._now())
        self._perform_actions()

    async def _resolve(self, topic_ids: Collection[UUID]) -> None:
        """Looks up the names of topics that the metadata lacks: of a pattern, or new ones."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id, None) for topic_id in topic_ids],
            allow_auto_topic_creation=False,
        )
        deadline_ms = self._now() + self._settings.request_timeout_ms
        try:
            response = await self._network.request_any(
                request,
                MetadataResponse,
                deadline_ms=deadline_ms,
                min_version=_FIRST_METADATA_WITH_IDS,
            )
        except KafkaError as error:
            # The machine repeats the action while its assignment has a topic without a name.
            logger.info(
                "group %s: names of topics could not be resolved: %s",
                self._settings.group_id,
                error.message,
            )
            return
        names = {topic.topic_id: topic.name for topic in response.topics if topic.name}
        self._machine.topics_resolved(names, self._now())
        self._perform_actions()

    def _on_metadata(self, old: Cluster, new: Cluster) -> None:
        if self._subscriptions.subscription.kind is SubscriptionKind.PATTERN:
            self.subscription_changed()
        if new.topics is not old.topics:
            self._machine.metadata_changed(racks_of(new), new.topic_names, self._now())
            self._perform_actions()


def racks_of(cluster: Cluster) -> TopicRacks:
    """Returns the racks of the replicas, by topic and partition."""
    racks = {node.id: frozenset((node.rack,)) for node in cluster.nodes.values() if node.rack}
    no_racks: frozenset[str] = frozenset()
    return {
        name: [
            no_racks.union(*(racks.get(replica, no_racks) for replica in partition.replicas))
            if racks
            else no_racks
            for partition in topic.partitions
        ]
        for name, topic in cluster.topics.items()
        if topic.partitions
    }


def _member_settings(settings: ConsumerOptions) -> MemberSettings:
    group_id = settings["group_id"]
    if not group_id:
        raise ConfigError(
            "`group_id` is missing", remedy="name the group that this consumer belongs to"
        )
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


def _machine(member: MemberSettings, settings: ConsumerOptions) -> Member:
    if settings["group_protocol"] == "consumer":
        member_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        return ConsumerMember(member, member_id)
    return ClassicMember(member, assignors_of(settings["partition_assignment_strategy"]))
