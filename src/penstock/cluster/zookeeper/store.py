"""The metadata store in ZooKeeper, under Kafka's own paths and JSON.

A session is one kazoo client with persistent recursive watches on the subtrees of its scope
(ZooKeeper 3.6 or newer). `ChangeStream` turns their events into deliveries on the client's thread,
callers commit and load on theirs, and the session's thread (`session`) reacts to lost connections
and sessions: it adds the watches again, reads the nodes again, delivers what has changed, and
reports the state.

Commits are one multi each, on the versions of the nodes that listeners have received (`commit`).
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from penstock.cluster.paths import path_of
from penstock.cluster.store import (
    CommittedChanges,
    Listener,
    Scope,
    SessionListener,
    SessionState,
    Snapshot,
)
from penstock.cluster.znodes import decode
from penstock.cluster.zookeeper.change_stream import ChangeStream, sorted_records
from penstock.cluster.zookeeper.client import ConnectionLostError, Response
from penstock.cluster.zookeeper.commit import Commit
from penstock.cluster.zookeeper.config import ZooKeeperConfig
from penstock.cluster.zookeeper.layout import NOTIFICATION_PARENTS, is_notified, watched_paths
from penstock.cluster.zookeeper.requests import DeleteNode, Multi, Node, ReadNodes, Sync
from penstock.cluster.zookeeper.session import ZooKeeperSession
from penstock.cluster.zookeeper.walk import find_paths
from penstock.controller.metadata import Change, Key, Put, Record

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_LOAD_ROUNDS: Final = 20
_NOTIFICATION_LIFETIME_MS: Final = 15 * 60 * 1000
_PURGE_INTERVAL_S: Final = 60.0
_RETRY_DELAY_S: Final = 0.02


class ZooKeeperStore:
    """A `MetadataStore` in ZooKeeper. Raises a KafkaError if the ensemble cannot be reached."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        self.is_secure = config.is_secure
        self.epoch_version: int | None = None
        """The version of `/controller_epoch` if this session put it: the fence of its commits."""
        self.stream = ChangeStream(self._read, self._deliver)
        self._scope: Scope | None = None
        """The scope that was requested last; that of the stream follows."""
        self._listeners: list[Listener] = []
        self._session_listeners: list[SessionListener] = []
        self._lock = threading.Lock()
        """Held by an operation that uses the session: there is one at a time."""
        self._purge_time = -_PURGE_INTERVAL_S
        self.session = ZooKeeperSession(config, self)
        self.session.open()

    def load(self, scope: Scope = Scope.ALL) -> Snapshot:
        return self._run(lambda: self._load(scope))

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        paths = [path_of(key) for key in keys]

        def fetch() -> list[Node | None]:
            self.session.request(Sync(self.session.full_path("/")))
            return self.session.read_nodes(paths)[0]

        nodes = self._run(fetch)
        return [
            record
            for path, node in zip(paths, nodes, strict=True)
            if node is not None and (record := _decode(path, node)) is not None
        ]

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        commit = Commit(self, changes, based_on, fenced)
        version = self._run(commit.run)
        if any(is_notified(_key_of(change)) for change in changes):
            self._purge_notifications()
        return version

    def subscribe(self, listener: Listener, scope: Scope = Scope.ALL) -> None:
        self._listeners.append(listener)
        if self._scope is not Scope.ALL:
            self.watch(scope)

    def watch(self, scope: Scope) -> None:
        """Does not block if the scope becomes smaller."""
        previous, self._scope = self._scope, scope
        if previous is Scope.ALL:
            self.session.client.run(lambda: self._reduce_scope(scope))
        elif previous is not scope:
            try:
                self._run(lambda: self._extend_scope(scope))
            except BaseException:
                self._scope = previous
                raise

    def _reduce_scope(self, scope: Scope) -> None:
        """Runs on the client's thread."""
        previous = watched_paths(self.stream.scope)
        self.stream.set_scope(scope)
        self.session.remove_watches(_without(previous, watched_paths(scope)))

    def _extend_scope(self, scope: Scope) -> None:
        current = self._on_client_thread(lambda: self.stream.scope)
        self.session.add_watches(_without(watched_paths(scope), watched_paths(current)))
        self._on_client_thread(lambda: self.stream.set_scope(scope))

    def subscribe_session(self, listener: SessionListener) -> None:
        self._session_listeners.append(listener)

    def close(self) -> None:
        self._listeners.clear()
        self.session.close()

    # --- called by the session

    def on_event(self, path: str) -> None:
        self.stream.on_event(path)

    def on_interrupted(self, is_expired: bool) -> None:
        self.stream.pause()
        if is_expired:
            self.epoch_version = None

    def restore(self) -> None:
        with self._lock:
            scope = self.stream.scope
            if scope is not None:
                self.session.add_watches(watched_paths(scope))
                self._walk(scope)
            self._on_client_thread(self.stream.resume)

    def on_state(self, state: SessionState) -> None:
        for listener in list(self._session_listeners):
            try:
                listener(state)
            except Exception:
                logger.exception("a listener failed to receive the state of the session")

    # --- the stream

    def _read(self, paths: Sequence[str]) -> None:
        """Sends the read of the stream, on the client's thread."""

        def on_response(response: Response[list[Node | None]]) -> None:
            try:
                nodes = response.value()
            except ConnectionLostError:
                self.stream.on_read_failed()
            except Exception:
                logger.exception("nodes that changed in ZooKeeper cannot be read: %s", paths)
                self.stream.on_unreadable()
            else:
                self.stream.on_read(nodes, response.zxid)

        full_paths = [self.session.full_path(path) for path in paths]
        self.session.client.send(ReadNodes(full_paths), on_response)

    def _deliver(self, committed: CommittedChanges) -> None:
        for listener in list(self._listeners):
            try:
                listener(committed)
            except Exception:
                logger.exception("a listener failed to receive metadata changes")

    def _on_client_thread(self, call: Callable[[], T]) -> T:
        """Runs `call` after everything that has arrived so far, and returns its result."""
        results: queue.SimpleQueue[T] = queue.SimpleQueue()
        self.session.client.run(lambda: results.put(call()))
        try:
            return results.get(timeout=self.session.timeout_s)
        except queue.Empty:
            raise self.session.unavailable() from None

    # --- operations

    def _run(self, operation: Callable[[], T]) -> T:
        """Runs an operation, again after a lost connection, until the timeout."""
        deadline = time.monotonic() + self.session.timeout_s
        while True:
            self.session.wait_until_ready(deadline)
            try:
                with self._lock:
                    return operation()
            except ConnectionLostError as error:
                if time.monotonic() >= deadline:
                    raise self.session.unavailable() from error
                time.sleep(_RETRY_DELAY_S)

    def _load(self, scope: Scope) -> Snapshot:
        complete = self.stream.complete_scope
        if complete is scope or complete is Scope.ALL:
            return self._cached_snapshot(scope)
        try:
            snapshot = self._walk(scope)
        finally:
            if self.session.is_ready:
                self._on_client_thread(self.stream.resume)
        return snapshot

    def _cached_snapshot(self, scope: Scope) -> Snapshot:
        """Returns what the cache has once all that was committed before is delivered."""
        results: queue.SimpleQueue[Snapshot | ConnectionLostError] = queue.SimpleQueue()

        def on_synced(response: Response[None]) -> None:
            try:
                response.value()
            except ConnectionLostError as error:
                results.put(error)
                return
            self.stream.when_quiet(
                response.zxid,
                lambda: results.put(Snapshot(self.stream.version, self.stream.records(scope))),
            )

        self.session.client.send(Sync(self.session.full_path("/")), on_synced)
        try:
            result = results.get(timeout=self.session.timeout_s)
        except queue.Empty:
            raise ConnectionLostError("no response in time") from None
        if isinstance(result, ConnectionLostError):
            raise result
        return result

    def _walk(self, scope: Scope) -> Snapshot:
        """Reads all nodes of a scope, and leaves the stream paused."""
        session = self.session
        extra_paths = _without(watched_paths(scope), watched_paths(self.stream.scope))
        self._on_client_thread(lambda: self.stream.pause(scope))
        session.add_watches(extra_paths)
        session.request(Sync(session.full_path("/")))
        paths = find_paths(scope, session.list_children)
        nodes: dict[str, Node | None] = {}
        version = previous = 0
        for _ in range(_MAX_LOAD_ROUNDS):
            contents, zxid = session.read_nodes(paths)
            nodes.update(zip(paths, contents, strict=True))
            paths = self._on_client_thread(self.stream.take_dirty)
            version, previous = zxid, version
            if not paths:
                break
        if paths:  # changes never stop: those that are left were made after the round before
            version = previous
            self._on_client_thread(partial(self.stream.put_back, paths))
        existing = {path: node for path, node in nodes.items() if node is not None}
        records = [_decode(path, node) for path, node in existing.items()]
        self._on_client_thread(lambda: self.stream.load(scope, existing, version))
        session.remove_watches(extra_paths)
        in_scope = (r for r in records if r is not None and scope.contains(r.key))
        return Snapshot(version, sorted_records(in_scope))

    def _purge_notifications(self) -> None:
        """Deletes notifications that every broker has had time to read, as Kafka's brokers do."""
        now = time.monotonic()
        if now - self._purge_time < _PURGE_INTERVAL_S:
            return
        self._purge_time = now
        try:
            self._run(self._delete_old_notifications)
        except Exception:
            logger.warning("old notifications in ZooKeeper were not deleted", exc_info=True)

    def _delete_old_notifications(self) -> None:
        oldest_ms = time.time() * 1000 - _NOTIFICATION_LIFETIME_MS
        children = self.session.list_children(NOTIFICATION_PARENTS)
        paths = [
            f"{parent}/{name}"
            for parent, names in zip(NOTIFICATION_PARENTS, children, strict=True)
            for name in names
        ]
        nodes, _ = self.session.read_nodes(paths)
        for path, node in zip(paths, nodes, strict=True):
            if node is not None and node.stat.ctime_ms < oldest_ms:
                operation = DeleteNode(self.session.full_path(path)).serialize()
                self.session.request(Multi([operation]))  # another broker may be faster


def _decode(path: str, node: Node) -> Record | None:
    return decode(path, node.data, node.stat.version, node.stat.czxid)


def _without(paths: Sequence[str], others: Sequence[str]) -> list[str]:
    return [path for path in paths if path not in others]


def _key_of(change: Change) -> Key:
    return change.record.key if isinstance(change, Put) else change.key
