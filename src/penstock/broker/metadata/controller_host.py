"""The host of the controller: elections, decisions, and what the metadata store delivers.

    response = await controller.run(lambda image: create_topics(image, …))

Every broker has a host. It follows the store: settings and ACLs go to the broker's own image. While
its broker is the controller, the host has an `ActiveController` too, with an image of everything
that is stored.

A decision is a pure function from an image to changes and a response. `run` decides on the image of
the controller, and fails with NOT_CONTROLLER on other brokers. `write` decides about settings and
ACLs, which every broker may change. Both run the decision and commit the changes on a thread. The
store then delivers them, like the changes that other brokers committed, and each delivery is
applied once and in order of versions.

If another broker changed the same metadata first, the store reports a conflict: the host reloads
the image and runs the decision again on what it now contains.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from penstock.broker.metadata.active_controller import ActiveController
from penstock.broker.metadata.broker_metadata import BrokerMetadata
from penstock.broker.metadata.controller_queue import ControllerQueue
from penstock.broker.metadata.exclusive_tasks import ExclusiveTasks
from penstock.broker.metadata.session_status import SessionStatus
from penstock.broker.request import Request
from penstock.broker.workers import Workers
from penstock.cluster.store import (
    CommittedChanges,
    ControllerMovedError,
    MetadataStore,
    Scope,
    SessionState,
    Snapshot,
    StoreConflictError,
)
from penstock.controller.election_counts import ElectionCounts
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, ClusterKey, Delete, Put
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

logger = logging.getLogger(__name__)

R = TypeVar("R")
Decision = Callable[[ClusterImage], ControllerResult[R]]
Undo = Callable[[], Coroutine[Any, Any, None]]
"""Reverts what a `Requirement` has done."""
Requirement = Callable[[Sequence[Change]], Coroutine[Any, Any, Undo]]

MAX_ATTEMPTS: Final = 5
"""How often a decision that conflicts with changes of other brokers is run."""

_RETRY_S: Final = 1.0
"""The pause after which a reaction that could not be committed is tried again."""


class ControllerHost:
    """Runs decisions and follows the store. It belongs to the event loop's thread."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        store: MetadataStore,
        workers: Workers,
        new_controller: Callable[[ClusterImage, int], ActiveController],
        claim: Callable[[ClusterImage], list[Change]],
        queue: ControllerQueue | None = None,
    ) -> None:
        """`claim` returns the changes that make this broker the controller of an image.

        `new_controller` creates the controller from an image and its version in the store.
        """
        self.queue = ControllerQueue() if queue is None else queue
        self.requirements: list[Requirement] = []
        """Awaited with the changes of a decision before they are committed, such as the creation of
        logs. If one raises a KafkaError, nothing is committed."""
        self.active: ActiveController | None = None
        """The controller, while this broker is it."""
        self.election_counts = ElectionCounts()
        """The elections while this broker was the controller."""
        self.session_status = SessionStatus()
        self._metadata = metadata
        self._store = store
        self._workers = workers
        self._new_controller = new_controller
        self._claim = claim
        self._settings_version = -1
        """The version of the store that the settings of the broker's image correspond to."""
        self._has_missed_changes = False
        """Whether a session has expired: the next one delivers later changes only."""
        self._delivered: deque[CommittedChanges] = deque()
        self._tasks = ExclusiveTasks(self.queue)
        """Decisions, and the application of what was delivered."""
        self._is_applying = False
        """Whether a task that applies deliveries is waiting for the lock."""
        self._may_elect = False
        self._is_expired = False
        self._claimed_id: int | None = None
        """The id of this broker, once it has been the controller."""
        self.on_new_session: Callable[[], Coroutine[Any, Any, None]] = _do_nothing
        """Registers the broker in a new session with the store."""

    # --- start and stop

    def load(self) -> Snapshot:
        """Subscribes to the store and fills the broker's image with settings. It blocks.

        Listeners are not notified. Returns everything that is stored.
        """
        self._loop = asyncio.get_running_loop()
        self._store.subscribe(self._deliver, Scope.SETTINGS)
        self._store.subscribe_session(self._deliver_session_state)
        snapshot = self._store.load()
        self._settings_version = snapshot.version
        self._metadata.image.apply(
            Put(record) for record in snapshot.records if Scope.SETTINGS.contains(record.key)
        )
        return snapshot

    async def elect(self) -> None:
        """Becomes the controller unless there is one; from now on also when there is none later."""
        self._may_elect = True
        await self._tasks.run(self._apply_delivered)

    async def resign(self) -> None:
        """Stops being the controller, permanently; a decision in progress is completed.

        Another broker is elected at once: the session with the store lasts until the logs are
        closed, and without a controller no replica can leave the ISR.
        """
        self._may_elect = False
        async with self._tasks.lock:
            has_others = self.active is not None and len(self.active.image.brokers) > 1
            await self._resign()
        if has_others:
            try:
                await self._workers.run(
                    self._workers.store,
                    lambda: self._store.commit([Delete(ClusterKey("controller"))], fenced=True),
                )
            except KafkaError as error:
                logger.warning(
                    "the next controller is elected when this broker has stopped: %s", error.message
                )

    async def close(self) -> None:
        """Resigns; returns when no decision or delivery is in progress any more."""
        await self.resign()
        await self._tasks.wait()

    # --- decisions

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self.active is not None

    async def run(self, decide: Decision[R], request: Request | None = None) -> R:
        """Runs a decision of the controller; returns its response once its changes are applied.

        `decide` runs on a thread, as it may take long. Nothing changes the image during that time.
        It may be called several times, each time on a newer image. Raises what it, or one of the
        `requirements`, raises, NOT_CONTROLLER if another broker is the controller,
        `KafkaStorageError` if the store failed, and REQUEST_TIMED_OUT, which clients retry, if
        other brokers changed the same metadata during `MAX_ATTEMPTS` attempts in a row.

        The `request` of a client waits in the `queue`, and raises what `ControllerQueue.enter`
        does.
        """

        async def decide_and_apply() -> R:
            await self._apply_delivered()
            if self.active is not None:
                self.active.require_handled_losses()
            response = await self._decide_as_controller(decide)
            await self._apply_delivered()
            return response

        return await self._tasks.run(decide_and_apply, request)

    async def run_election(
        self,
        decide: Callable[[ClusterImage, ElectionRules], ControllerResult[R]],
        request: Request | None = None,
    ) -> R:
        """Like `run`, for decisions that may elect leaders."""

        def decide_by_rules(image: ClusterImage) -> ControllerResult[R]:
            assert self.active is not None  # it runs while this broker is the controller
            return decide(image, self.active.rules(image))

        return await self.run(decide_by_rules, request)

    async def shut_down_broker(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Moves the leaderships of a broker that is about to stop to others (R8)."""

        def decide(image: ClusterImage) -> ControllerResult[ControlledShutdownResponse]:
            assert self.active is not None
            return self.active.shut_down(image, request)

        return await self.run(decide)

    async def write(self, decide: Decision[R], request: Request | None = None) -> R:
        """Like `run`, but on any broker: for decisions about settings and ACLs only."""

        async def decide_and_apply() -> R:
            await self._apply_delivered()
            response = await self._decide_about_settings(decide)
            await self._apply_delivered()
            return response

        return await self._tasks.run(decide_and_apply, request)

    async def _decide_as_controller(self, decide: Decision[R]) -> R:
        for _ in range(MAX_ATTEMPTS):
            controller = self.active
            if controller is None:
                raise _not_controller(self._metadata.image.controller_id)
            image = controller.image
            changes, response, stops = await self._workers.run(
                self._workers.store, partial(decide, image)
            )
            controller.stops = stops
            if not changes:
                await controller.send_stops()
                return response
            try:
                await self._commit(changes, based_on=controller.version, fenced=True)
            except ControllerMovedError as error:
                await self._resign()
                raise _not_controller(-1) from error
            except StoreConflictError as error:
                conflict = error
                await self._refresh()
            else:
                return response
        raise _too_many_conflicts(conflict) from conflict

    async def _decide_about_settings(self, decide: Decision[R]) -> R:
        image = self._metadata.image
        for _ in range(MAX_ATTEMPTS):
            changes, response, _ = await self._workers.run(
                self._workers.store, partial(decide, image)
            )
            if not changes:
                return response
            try:
                await self._commit(changes, based_on=self._settings_version, fenced=False)
            except StoreConflictError as error:
                conflict = error
                await self._refresh()
            else:
                return response
        raise _too_many_conflicts(conflict) from conflict

    async def _commit(self, changes: Sequence[Change], *, based_on: int, fenced: bool) -> None:
        undo_actions: list[Undo] = []
        try:
            for require in self.requirements:
                undo_actions.append(await require(changes))
            await self._workers.run(
                self._workers.store,
                lambda: self._store.commit(changes, based_on=based_on, fenced=fenced),
            )
        except Exception:
            for undo in reversed(undo_actions):
                await undo()
            raise

    async def _refresh(self) -> None:
        """Reloads what a conflict has shown to be old."""
        scope = Scope.SETTINGS if self.active is None else Scope.ALL
        snapshot = await self._workers.run(self._workers.store, lambda: self._store.load(scope))
        await self._apply_snapshot(snapshot)
        if self.active is not None:
            await self.active.apply(self.active.changes_since(snapshot))

    # --- deliveries

    def _deliver(self, committed: CommittedChanges) -> None:
        """Called by the store, on any thread."""
        self._delivered.append(committed)
        self._loop.call_soon_threadsafe(self._apply_soon)

    def _apply_soon(self) -> None:
        """Applies the changes of other brokers."""
        if self._delivered:
            self._wake()

    def _wake(self) -> None:
        if not self._is_applying:
            self._is_applying = True
            self._tasks.spawn(self._apply_when_idle())

    async def _apply_when_idle(self) -> None:
        async with self._tasks.lock:
            self._is_applying = False
            try:
                await self._apply_delivered()
            except KafkaError as error:
                logger.error("metadata changes could not be applied: %s", error.message)

    async def _apply_delivered(self) -> None:
        """Applies deliveries, the controller's reactions to them, and elects if it has to."""
        while True:
            await self._drain()
            image = self._metadata.image
            if self.active is not None:
                if image.controller_id != self.active.broker_id:
                    await self._resign()
                elif not await self._react(self.active):
                    return
            elif self._may_elect and image.controller_id == -1:
                if not await self._elect():
                    return
            else:
                return

    async def _drain(self) -> None:
        while self._delivered:
            committed = self._delivered.popleft()
            await self._apply_settings(committed)
            if self.active is not None and self.active.is_replaced_by(committed):
                # Before it applies the epoch of its successor and speaks in its name.
                await self._resign()
            if self.active is not None:
                await self.active.apply(committed)

    async def _apply_settings(self, committed: CommittedChanges) -> None:
        if committed.version > self._settings_version:
            await self._metadata.publish(
                [change for change in committed.changes if Scope.SETTINGS.contains(change.key)]
            )
            self._settings_version = committed.version

    async def _apply_snapshot(self, snapshot: Snapshot) -> None:
        """Applies the settings that the store contains now."""
        if snapshot.version <= self._settings_version and not self._has_missed_changes:
            return
        settings = [record for record in snapshot.records if Scope.SETTINGS.contains(record.key)]
        changes = self._metadata.image.changes_to(settings, is_included=Scope.SETTINGS.contains)
        await self._metadata.publish(changes)
        self._settings_version = snapshot.version
        self._has_missed_changes = False

    async def _react(self, controller: ActiveController) -> bool:
        """Commits what the controller decides on its own; returns whether there was anything."""
        controller.observe_responses()
        if not controller.reactions.are_pending:
            return False
        try:
            facts = await self._decide_as_controller(controller.decide)
        except KafkaError as error:
            logger.error("the controller could not react to changes: %s; it retries", error.message)
            self._retry_soon()
            return False
        await self._drain()
        await controller.finish(facts)
        if self.active is controller and not controller.is_started:
            # Not before: a broker that has lost records must not lead in the epochs from before.
            await controller.start()
        return True

    def _retry_soon(self) -> None:
        self._loop.call_later(_RETRY_S, self._wake)

    # --- election

    async def _elect(self) -> bool:
        """Tries to become the controller; returns whether there is one now."""
        try:
            snapshot = await self._workers.run(self._workers.store, self._watch_all)
            image = ClusterImage()
            image.apply(map(Put, snapshot.records))
            if image.controller_id == -1:
                await self._commit(self._claim(image), based_on=snapshot.version, fenced=False)
                controller = self._new_controller(image, snapshot.version)
        except StoreConflictError:
            # Another broker was faster: the store delivers its claim.
            self._store.watch(Scope.SETTINGS)
            await self._refresh()
            return True
        except KafkaError as error:
            logger.error("the controller could not be elected: %s; it is retried", error.message)
            self._retry_soon()
            return False
        await self._apply_snapshot(snapshot)
        if image.controller_id == -1:
            await self._start_controller(controller)
        else:
            self._store.watch(Scope.SETTINGS)
        return True

    def _watch_all(self) -> Snapshot:
        self._store.watch(Scope.ALL)
        return self._store.load()

    async def _start_controller(self, controller: ActiveController) -> None:
        """Applies the claim, brings the partitions up to date, and then informs all brokers."""
        self.active = controller
        self._claimed_id = controller.broker_id
        controller.on_response = self._wake
        controller.election_counts = self.election_counts
        await self._drain()
        logger.info("this broker is the controller, in epoch %d", controller.image.controller_epoch)
        await self._react(controller)

    async def _resign(self) -> None:
        if self.active is not None:
            logger.info("this broker is no longer the controller")
            controller, self.active = self.active, None
            self._store.watch(Scope.SETTINGS)
            await controller.close()

    # --- the session with the store

    def _deliver_session_state(self, state: SessionState) -> None:
        """Called by the store, on any thread."""
        self._loop.call_soon_threadsafe(self._session_changed, state)

    def _session_changed(self, state: SessionState) -> None:
        self.session_status.update(state)
        if state is SessionState.EXPIRED:
            logger.warning(
                "the session with the metadata store has expired: this broker registers again"
            )
            self._is_expired = self._has_missed_changes = True
            self._tasks.spawn(self._leave())
        elif state is SessionState.CONNECTED and self._is_expired:
            self._is_expired = False
            self._tasks.spawn(self._begin_session())

    async def _leave(self) -> None:
        """Another broker may be the controller already."""
        async with self._tasks.lock:
            await self._resign()

    async def _begin_session(self) -> None:
        """Registers again after the ephemeral nodes of the last session have been removed."""
        while self._may_elect and not self._is_expired:
            try:
                await self._tasks.run(self._remove_claim)
                await self.on_new_session()
                await self.elect()
                return
            except KafkaError as error:
                logger.error("this broker could not register again: %s; it retries", error.message)
                await asyncio.sleep(_RETRY_S)

    async def _remove_claim(self) -> None:
        """Removes a claim of this broker, which has resigned when its last session ended.

        A commit that began in the last session may have been completed in the new one. Its node
        would last as long as the session, without a controller.
        """
        await self._refresh()
        if self.active is None and self._metadata.image.controller_id == self._claimed_id:
            await self._commit(
                [Delete(ClusterKey("controller"))], based_on=self._settings_version, fenced=False
            )
            await self._drain()


async def _do_nothing() -> None: ...


def _not_controller(controller_id: int) -> KafkaError:
    current = "no broker is elected yet" if controller_id == -1 else f"it is broker {controller_id}"
    return KafkaError(
        ErrorCode.NOT_CONTROLLER,
        f"this broker is not the controller: {current}",
        remedy="refresh the metadata and retry",
    )


def _too_many_conflicts(conflict: StoreConflictError) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"other brokers changed the same metadata {MAX_ATTEMPTS} times in a row, last "
        f"{conflict.path}; nothing was changed",
        remedy="retry the request",
    )
