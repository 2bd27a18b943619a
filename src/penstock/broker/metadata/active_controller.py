"""The controller at work: its image, its reactions, and its updates of brokers (R6, R7).

A broker has an `ActiveController` while it is elected; `controller_host` runs it. Each list of
committed changes is applied to the controller's image. Then every broker that is up gets one
`BrokerUpdate`: this broker directly, the others by requests (`ControllerChannels`). What the
controller must do on its own, such as the election of new leaders when a broker has failed, is
decided by its `reactions`; the host commits it.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol
from uuid import uuid4

from penstock.broker.metadata.controller_channel import ControlResult, ResultListener
from penstock.broker.metadata.controller_requests import UpdateResult
from penstock.broker.workers import Workers
from penstock.cluster.store import CommittedChanges, Snapshot
from penstock.controller.broker_updates import (
    BrokerUpdate,
    OfflineReplicas,
    ReplicaStops,
    broker_updates,
    deletion_errors,
    full_update,
    full_updates,
)
from penstock.controller.election_counts import ElectionCounts
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    BrokerKey,
    BrokerRecord,
    Change,
    ClusterKey,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    Put,
)
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.reactions import ControllerReactions, ControlResponse, HandledFacts
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


class ControllerChannels(Protocol):
    """The connections from the controller to the other brokers."""

    def prepare(self, updates: Mapping[int, BrokerUpdate]) -> None:
        """Builds the requests of updates that are sent next. It may run on another thread."""

    def send(self, broker: BrokerRecord, update: BrokerUpdate) -> None:
        """Queues an update after all earlier ones; it is repeated until the broker has it."""

    def remove(self, broker_id: int) -> None:
        """Drops what is queued for a broker that is down."""

    async def close(self) -> None: ...


class ControllerContext(Protocol):
    """What the controller needs of its broker."""

    @property
    def broker_id(self) -> int: ...

    @property
    def is_starting(self) -> bool:
        """Whether the broker has just been started, and led nothing since."""

    @property
    def is_deletion_enabled(self) -> bool:
        """`delete.topic.enable`"""

    def rules(self, image: ClusterImage) -> ElectionRules:
        """Returns the election rules that follow from the settings in the image."""

    def open_channels(
        self,
        image: ClusterImage,
        on_result: ResultListener,
        offline_replicas: OfflineReplicas,
    ) -> ControllerChannels:
        """Returns channels to the brokers of the image, which passes responses to `on_result`.

        `offline_replicas` are always the current ones.
        """

    def apply_update(self, update: BrokerUpdate) -> Awaitable[UpdateResult]:
        """Applies an update to the controller's own broker."""


class ActiveController:
    """The controller of one epoch. It belongs to the event loop's thread."""

    def __init__(
        self, context: ControllerContext, workers: Workers, image: ClusterImage, version: int
    ) -> None:
        """`image` is what the store contains in `version`; only the controller changes it."""
        self.broker_id = context.broker_id
        self.image = image
        self.version = version
        self.epoch = image.controller_epoch + 1
        """The controller epoch that this broker has claimed."""
        self.reactions = ControllerReactions(context.is_deletion_enabled, uuid4)
        self.stops: ReplicaStops = {}
        """Replicas to stop with the next changes, as the decision behind them says, or after the
        full updates of a controller that has not started yet."""
        self._context = context
        self._workers = workers
        self._channels = context.open_channels(
            image, self._add_response, self.reactions.offline_replicas
        )
        self._changed_replicas: frozenset[TopicPartition] = frozenset()
        """Partitions to send with the next changes, because their offline replicas changed."""
        self._responses: deque[ControlResponse] = deque()
        self.is_started = False
        """Whether brokers get updates: the first decision has been committed."""
        self.election_counts = ElectionCounts()
        """The host replaces it with its own, which counts the elections of all terms."""
        self.on_response: Callable[[], None] = lambda: None
        """Called when a broker has responded: there may be reactions to it."""
        self.reactions.begin(image)
        own = image.brokers.get(self.broker_id)
        if context.is_starting and own is not None:
            # If this broker is a leader in the image, it was elected before it was started.
            self.reactions.observe(ClusterImage(), [Put(own)])

    def rules(self, image: ClusterImage) -> ElectionRules:
        """Returns the election rules as settings, shutdowns and offline replicas are now."""
        return self.reactions.rules(self._context.rules(image))

    def require_handled_losses(self) -> None:
        """Raises `KafkaStorageError` if the reaction to a broker's losses could not be committed.

        Any other decision could elect that broker, or forget the replicas that have its records.
        """
        if self.reactions.has_unhandled_losses(self.image):
            raise KafkaStorageError(
                "the controller could not store yet which replicas are in sync without a broker "
                "that has lost records",
                remedy="retry; see the controller's log if it lasts",
            )

    async def start(self) -> None:
        """Sends everything to every broker: they may know it from another controller, or not."""
        updates = await self._workers.run(
            self._workers.store, lambda: self._prepared(full_updates(self.image))
        )
        self.is_started = True
        await self._send(updates)
        await self.send_stops()

    async def close(self) -> None:
        """Stops sending; updates that are queued are dropped."""
        await self._channels.close()

    # --- changes

    def changes_since(self, snapshot: Snapshot) -> CommittedChanges:
        """Returns the changes that the image lacks, compared with what the store contains."""
        return CommittedChanges(snapshot.version, self.image.changes_to(snapshot.records))

    def is_replaced_by(self, committed: CommittedChanges) -> bool:
        """Returns whether changes end the term of this controller."""
        if committed.version <= self.version:
            return False
        for change in committed.changes:
            match change:
                case Put(ControllerEpochRecord(epoch)) if epoch != self.epoch:
                    return True
                case Put(ControllerRecord(broker_id)) if broker_id != self.broker_id:
                    return True
                case Delete(ClusterKey("controller")):
                    return True
        return False

    async def apply(self, committed: CommittedChanges) -> None:
        """Applies changes that the store has delivered, and sends them to the brokers."""
        if committed.version <= self.version:
            return
        updates = await self._workers.run(
            self._workers.store, lambda: self._apply(committed.changes)
        )
        self.version = committed.version
        for change in committed.changes:
            if isinstance(change, Delete) and isinstance(change.key, BrokerKey):
                self._channels.remove(change.key.broker_id)
        await self._send(updates)

    def _apply(self, changes: Sequence[Change]) -> dict[int, BrokerUpdate]:
        """Runs on a thread: an event may concern many thousand partitions."""
        updates: dict[int, BrokerUpdate] = {}
        if self.is_started:
            stops, self.stops = self.stops, {}
            updates = self._updates(changes, stops)
        self.reactions.observe(self.image, changes)
        self.election_counts.add(self.image, changes)
        self.image.apply(changes)
        return self._prepared(updates)

    def _prepared(self, updates: dict[int, BrokerUpdate]) -> dict[int, BrokerUpdate]:
        """Builds the requests of the updates, of which the image contains the changes."""
        self._channels.prepare(
            {key: update for key, update in updates.items() if key != self.broker_id}
        )
        return updates

    def _updates(self, changes: Sequence[Change], stops: ReplicaStops) -> dict[int, BrokerUpdate]:
        changed_replicas, self._changed_replicas = self._changed_replicas, frozenset()
        return broker_updates(self.image, changes, stops, self.reactions.awaiting, changed_replicas)

    # --- reactions

    def decide(self, image: ClusterImage) -> ControllerResult[HandledFacts]:
        """Returns what follows from the changes and responses so far. It may run on a thread."""
        result = self.reactions.decide(image, self._context.rules(image))
        self._changed_replicas = result.response.changed_replicas
        return result

    async def finish(self, facts: HandledFacts) -> None:
        """Ends a decision whose changes have been applied."""
        refreshed = self.reactions.finish(facts)
        if refreshed and self.is_started:
            updates = await self._workers.run(
                self._workers.store,
                lambda: self._prepared({key: full_update(self.image, key) for key in refreshed}),
            )
            await self._send(updates)

    def shut_down(
        self, image: ClusterImage, request: ControlledShutdownRequest
    ) -> ControllerResult[ControlledShutdownResponse]:
        """Decides about a controlled shutdown (R8)."""
        return self.reactions.controlled_shutdown(image, request, self._context.rules(image))

    def observe_responses(self) -> None:
        """Takes the responses of brokers into account."""
        while self._responses:
            self.reactions.observe_response(self.image, self._responses.popleft())

    def _add_response(self, result: ControlResult) -> None:
        """Keeps the responses of another broker to an update."""
        self._keep_response(
            ControlResponse(
                result.broker_id, result.broker_epoch, result.partition_errors, result.stop_errors
            )
        )
        self.on_response()

    def _keep_response(self, response: ControlResponse) -> None:
        """Keeps a response, with the errors of replicas that are offline, or were until now.

        A broker that is alone stays the leader of partitions that no other broker could lead.
        """
        offline = self.reactions.offline_replicas
        is_alone = len(self.image.brokers) == 1
        errors = {
            key: error
            for key, error in response.partition_errors.items()
            if (error is not ErrorCode.NONE or key in offline)
            and (topic := self.image.topics.get(key.topic)) is not None
            and (assignment := topic.assignments.get(key.partition)) is not None
            and not (is_alone and len(assignment.replicas) == 1)
        }
        self._responses.append(response._replace(partition_errors=errors))

    # --- updates

    async def send_stops(self) -> None:
        """Sends the stops of a decision that changes nothing, and offline replicas."""
        if self.is_started and (self.stops or self._changed_replicas):
            stops, self.stops = self.stops, {}
            updates = await self._workers.run(
                self._workers.store, lambda: self._prepared(self._updates([], stops))
            )
            await self._send(updates)

    async def _send(self, updates: Mapping[int, BrokerUpdate]) -> None:
        for broker_id, update in updates.items():
            if broker_id != self.broker_id:
                self._channels.send(self.image.brokers[broker_id], update)
        update_of_own_broker = updates.get(self.broker_id)
        if update_of_own_broker is not None:
            offline_replicas = dict(self.reactions.offline_replicas)
            result = await self._context.apply_update(
                update_of_own_broker._replace(offline_replicas=offline_replicas)
            )
            self._keep_response(
                ControlResponse(
                    self.broker_id,
                    update_of_own_broker.broker_epoch,
                    result.partitions,
                    deletion_errors(update_of_own_broker.stops, result.stops),
                )
            )
