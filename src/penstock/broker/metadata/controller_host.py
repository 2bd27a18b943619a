"""The host of the controller: runs its decisions one at a time and publishes every metadata change.

    response = await controller.run(lambda image: create_topics(image, …))

A decision is a pure function from the cluster image to changes and a response. The host runs it and
commits the changes to the metadata store on a thread. The store then delivers them, like the
changes that other brokers committed, and the host publishes each delivery exactly once and in order
of versions: the logs of new partitions are created on a thread, the image applies the changes, and
the listeners (replicas, coordinators, authorizer, quotas, settings) are notified. Many changes are
published topic by topic, so that requests are served in between.

If another broker changed the same metadata first, the store reports a conflict: the host reloads
the image and runs the decision again on what it now contains.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, TypeVar

from penstock.broker.pacer import Pacer
from penstock.broker.workers import Workers
from penstock.cluster.store import CommittedChanges, MetadataStore, Snapshot, StoreConflictError
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Change,
    ConfigKey,
    ConfigRecord,
    Delete,
    PartitionRecord,
    Put,
    TopicKey,
    TopicRecord,
)
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

logger = logging.getLogger(__name__)

R = TypeVar("R")
Decision = Callable[[ClusterImage], ControllerResult[R]]
Listener = Callable[[Sequence[Change]], None]
Preparation = Callable[[Sequence[Change]], Coroutine[Any, Any, None]]
Undo = Callable[[], Coroutine[Any, Any, None]]
"""Reverts what a `Requirement` has done."""
Requirement = Callable[[Sequence[Change]], Coroutine[Any, Any, Undo]]

_CHANGES_AT_ONCE: Final = 100
MAX_ATTEMPTS: Final = 5
"""How often a decision that conflicts with changes of other brokers is run."""


class ControllerHost:
    """Runs decisions on `image` and keeps it current. It belongs to the event loop's thread."""

    def __init__(
        self, image: ClusterImage, store: MetadataStore, workers: Workers, pacer: Pacer
    ) -> None:
        self.image = image
        self.listeners: list[Listener] = []
        """Called with the changes after the image has applied them.

        An error of one is logged; the others still receive the changes.
        """
        self.requirements: list[Requirement] = []
        """Awaited with the changes of a decision before they are committed, such as the creation of
        logs. If one raises a KafkaError, nothing is committed."""
        self.preparations: list[Preparation] = []
        """Awaited with the changes before the image applies them, for slow work such as new logs.

        Listeners must cope without it: an error here is logged, and the changes are published.
        """
        self._store = store
        self._workers = workers
        self._pacer = pacer
        self._version = -1
        """The version of the store that the image corresponds to."""
        self._delivered: deque[CommittedChanges] = deque()
        self._lock = asyncio.Lock()
        """Held while a decision runs or changes are published."""
        self._publishing: set[asyncio.Task[None]] = set()

    # --- start: before any request is served

    def load(self) -> None:
        """Subscribes to the store and fills the image, without notifying listeners. It blocks."""
        self._loop = asyncio.get_running_loop()
        self._store.subscribe(self._deliver)
        self._version, records = self._store.load()
        self.image.apply(map(Put, records))

    def run_at_start(self, decide: Decision[R]) -> R:
        """Runs a decision like `run`, but blocks the event loop, so that no request comes between.

        The preparations are left out: listeners do that work themselves.
        """
        for _ in range(MAX_ATTEMPTS):
            changes, response, _ = decide(self.image)
            if not changes:
                return response
            try:
                self._store.commit(changes, based_on=self._version)
            except StoreConflictError as error:
                conflict = error
                self._publish(self._changes_since(self._store.load()))
            else:
                while self._delivered:
                    self._publish(self._delivered.popleft())
                return response
        raise _too_many_conflicts(conflict) from conflict

    # --- requests

    async def run(self, decide: Decision[R]) -> R:
        """Runs a decision after all earlier ones; returns its response once it is published.

        `decide` runs on a thread, as it may take long. Nothing changes the image during that time.
        It may be called several times, each time on a newer image. Raises what it, or one of the
        `requirements`, raises, `KafkaStorageError` if the store failed, and REQUEST_TIMED_OUT,
        which clients retry, if other brokers changed the same metadata during `MAX_ATTEMPTS`
        attempts in a row.
        """
        async with self._lock:
            await self._publish_delivered()
            for _ in range(MAX_ATTEMPTS):
                changes, response, _ = await self._workers.run(
                    self._workers.store, lambda: decide(self.image)
                )
                if not changes:
                    return response
                try:
                    await self._commit(changes)
                except StoreConflictError as error:
                    conflict = error
                    await self._refresh()
                else:
                    await self._publish_delivered()
                    return response
            raise _too_many_conflicts(conflict) from conflict

    async def _commit(self, changes: Sequence[Change]) -> None:
        version = self._version
        undo_actions: list[Undo] = []
        try:
            for require in self.requirements:
                undo_actions.append(await require(changes))
            await self._workers.run(
                self._workers.store, lambda: self._store.commit(changes, based_on=version)
            )
        except Exception:
            for undo in reversed(undo_actions):
                await undo()
            raise

    async def _refresh(self) -> None:
        snapshot = await self._workers.run(self._workers.store, self._store.load)
        await self._prepare_and_publish(self._changes_since(snapshot))

    # --- publication

    def _deliver(self, committed: CommittedChanges) -> None:
        """Called by the store, on any thread."""
        self._delivered.append(committed)
        self._loop.call_soon_threadsafe(self._publish_soon)

    def _publish_soon(self) -> None:
        """Publishes the changes of other brokers, and those that a cancelled caller has left."""
        if self._delivered and not self._publishing:
            task = self._loop.create_task(self._publish_when_idle())
            self._publishing.add(task)
            task.add_done_callback(self._published)

    async def _publish_when_idle(self) -> None:
        async with self._lock:
            await self._publish_delivered()

    def _published(self, task: "asyncio.Task[None]") -> None:
        self._publishing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("metadata changes could not be published", exc_info=error)

    async def _publish_delivered(self) -> None:
        # Removed last, so that a cancelled caller leaves the changes to the next one.
        while self._delivered:
            await self._prepare_and_publish(self._delivered[0])
            self._delivered.popleft()

    async def _prepare_and_publish(self, committed: CommittedChanges) -> None:
        if committed.version > self._version:
            for prepare in self.preparations:
                try:
                    await prepare(committed.changes)
                except Exception:
                    logger.exception("a preparation for metadata changes failed")
            async for changes in self._pacer.each(_slices(committed.changes)):
                self._apply(changes)
            self._version = committed.version

    def _publish(self, committed: CommittedChanges) -> None:
        """Applies and announces changes, unless a reload has published them already."""
        if committed.version <= self._version:
            return
        self._version = committed.version
        self._apply(committed.changes)

    def _apply(self, changes: Sequence[Change]) -> None:
        self.image.apply(changes)
        if changes:
            for listener in self.listeners:
                try:
                    listener(changes)
                except Exception:
                    logger.exception("a listener failed to apply metadata changes")

    def _changes_since(self, snapshot: Snapshot) -> CommittedChanges:
        return CommittedChanges(snapshot.version, self.image.changes_to(snapshot.records))


def _slices(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Yields the changes in parts; those of one topic are in the same part."""
    start = 0
    topic: str | None = None
    for position, change in enumerate(changes):
        previous, topic = topic, _topic_of(change)
        if position - start >= _CHANGES_AT_ONCE and (topic is None or topic != previous):
            yield changes[start:position]
            start = position
    yield changes[start:]


def _topic_of(change: Change) -> str | None:
    match change:
        case Put(TopicRecord(topic) | PartitionRecord(topic)):
            return topic
        case Put(ConfigRecord(entity=(("topics", topic),))):
            return topic
        case Delete(TopicKey(topic) | TopicPartition(topic)):
            return topic
        case Delete(ConfigKey(entity=(("topics", topic),))):
            return topic
    return None


def _too_many_conflicts(conflict: StoreConflictError) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"other brokers changed the same metadata {MAX_ATTEMPTS} times in a row, last "
        f"{conflict.path}; nothing was changed",
        remedy="retry the request",
    )
