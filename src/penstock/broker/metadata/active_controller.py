"""The controller at work: its image, its reactions, and what it tells the brokers (R6, R7).

A broker has an `ActiveController` while it is elected; `controller_host` runs it. Each list of
committed changes is applied to the controller's image. Then every broker that is up gets one
`BrokerUpdate`: this broker directly, the others by requests (`ControllerChannels`). Changes that
the controller must react to, such as a broker that has failed, add decisions to `reactions`, which
the host commits one after another.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from penstock.broker.metadata.controller_channel import ControlResult, ResultListener
from penstock.broker.workers import Workers
from penstock.cluster.store import CommittedChanges, Snapshot
from penstock.controller.broker_updates import (
    BrokerUpdate,
    ReplicaStops,
    broker_updates,
    full_updates,
)
from penstock.controller.election import update_partition_states
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerKey, BrokerRecord, Change, Delete, Put
from penstock.controller.partition_state_machine import ElectionRules

Reaction = Callable[[ClusterImage], list[Change]]


class ControllerChannels(Protocol):
    """The connections from the controller to the other brokers."""

    def send(self, broker: BrokerRecord, update: BrokerUpdate) -> None:
        """Queues an update after all earlier ones; it is repeated until the broker has it."""

    def remove(self, broker_id: int) -> None:
        """Drops what is queued for a broker that is down."""

    async def close(self) -> None: ...


class ControllerContext(Protocol):
    """What the controller needs of its broker."""

    @property
    def broker_id(self) -> int: ...

    def rules(self, image: ClusterImage) -> ElectionRules:
        """Returns the election rules that follow from the settings in the image."""

    def open_channels(self, image: ClusterImage, on_result: ResultListener) -> ControllerChannels:
        """Returns channels to the brokers of the image, which passes responses to `on_result`."""

    def apply_update(self, update: BrokerUpdate) -> Awaitable[None]:
        """Applies an update to the controller's own broker."""


class ActiveController:
    """The controller of one epoch. It belongs to the event loop's thread."""

    def __init__(
        self, context: ControllerContext, workers: Workers, image: ClusterImage, version: int
    ) -> None:
        """`image` is what the store contains in `version`; nobody else changes it."""
        self.broker_id = context.broker_id
        self.image = image
        self.version = version
        self.shutting_down: set[int] = set()
        """Brokers in controlled shutdown: they get no leaderships until they register again."""
        self.reactions: deque[Reaction] = deque()
        """Decisions that follow from changes, to be committed in this order."""
        self.stops: ReplicaStops = {}
        """Replicas to stop with the next changes, as the decision behind them says."""
        self._context = context
        self._workers = workers
        self._channels = context.open_channels(image, self._on_result)
        self._is_started = False
        # Whatever this broker led, it led before it was started.
        self.reactions.append(lambda image: self._update_partitions(image, {self.broker_id}))

    def rules(self, image: ClusterImage) -> ElectionRules:
        """Returns the election rules as the settings and controlled shutdowns are now."""
        return self._context.rules(image)._replace(shutting_down=frozenset(self.shutting_down))

    async def start(self) -> None:
        """Sends everything to every broker: they may know it from another controller, or not."""
        updates = await self._workers.run(self._workers.store, lambda: full_updates(self.image))
        self._is_started = True
        await self._send(updates)

    async def close(self) -> None:
        """Stops sending; updates that are queued are dropped."""
        await self._channels.close()

    def changes_since(self, snapshot: Snapshot) -> CommittedChanges:
        """Returns the changes that the image lacks, compared with what the store contains."""
        return CommittedChanges(snapshot.version, self.image.changes_to(snapshot.records))

    async def apply(self, committed: CommittedChanges) -> None:
        """Applies changes that the store has delivered, and sends them to the brokers."""
        if committed.version <= self.version:
            return
        updates = await self._workers.run(
            self._workers.store, lambda: self._apply(committed.changes)
        )
        self.version = committed.version
        for change in committed.changes:
            if isinstance(change.key, BrokerKey) and isinstance(change, Delete):
                self._channels.remove(change.key.broker_id)
        await self._send(updates)

    async def send_stops(self) -> None:
        """Sends the stops of a decision that changes nothing."""
        if self.stops:
            stops, self.stops = self.stops, {}
            await self._send(broker_updates(self.image, [], stops))

    def _apply(self, changes: Sequence[Change]) -> dict[int, BrokerUpdate]:
        """Runs on a thread: an event may concern many thousand partitions."""
        stops, self.stops = self.stops, {}
        updates = broker_updates(self.image, changes, stops) if self._is_started else {}
        started, failed = self._moved_brokers(changes)
        self.image.apply(changes)
        self.shutting_down -= started | failed
        if started or failed:
            self.reactions.append(lambda image: self._update_partitions(image, started))
        return updates

    def _moved_brokers(self, changes: Sequence[Change]) -> tuple[set[int], set[int]]:
        """Returns the brokers that have registered, and those whose sessions have ended."""
        started: set[int] = set()
        failed: set[int] = set()
        for change in changes:
            match change:
                case Put(BrokerRecord() as broker):
                    registered = self.image.brokers.get(broker.broker_id)
                    if registered is None or registered.epoch != broker.epoch:
                        started.add(broker.broker_id)
                case Delete(BrokerKey(broker_id)):
                    failed.add(broker_id)
        return started, failed

    def _update_partitions(self, image: ClusterImage, restarted: set[int]) -> list[Change]:
        return update_partition_states(
            image, image.brokers.keys(), self.rules(image), restarted=restarted
        )

    def _on_result(self, result: ControlResult) -> None:
        """Handles the responses of another broker to an update."""

    async def _send(self, updates: dict[int, BrokerUpdate]) -> None:
        for broker_id, update in updates.items():
            if broker_id != self.broker_id:
                self._channels.send(self.image.brokers[broker_id], update)
        own_update = updates.get(self.broker_id)
        if own_update is not None:
            await self._context.apply_update(own_update)
