"""The deliveries of a ZooKeeper session: events become changes, in an order that listeners can use.

ZooKeeper's events name a node that changed and nothing else. The stream reads the nodes and
delivers what it finds. It assigns a version to each delivery such that

- versions rise, and everything that was committed up to a version is delivered with it or before;
- an own commit has the transaction that it was committed in, and what other sessions committed
  before it is delivered before it.

It relies on the order in which ZooKeeper sends: the events of a transaction come before every
response that carries this transaction's id or a later one. When a read is complete and no event has
arrived since it was sent, the nodes are thus delivered with the id of the read's response. If
events have arrived, their nodes are read first, and all are delivered together; only in a constant
flow of changes is part of them delivered, with the id of the response before the last.

The stream does no I/O: `read` sends a read whose response goes to `on_read`. All methods are called
on one thread.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.cluster.paths import key_of
from penstock.cluster.store import CommittedChanges, Scope
from penstock.cluster.zookeeper.node_cache import CachedNode, NodeCache, in_order
from penstock.cluster.zookeeper.requests import Node, Stat
from penstock.controller.metadata import Change, Key, Put, Record

_MAX_ROUNDS: Final = 20
"""Reads in a row, each interrupted by events, after which a part of the changes is delivered."""


class CommittedNode(NamedTuple):
    """The state of a node after an own commit; both are None if it was deleted."""

    stat: Stat | None
    record: Record | None


class OwnCommit(NamedTuple):
    """A commit of this session, to be delivered after all earlier commits."""

    version: int
    nodes: Mapping[str, CommittedNode]
    changes: Sequence[Change]
    on_delivered: Callable[[], None]
    awaited: set[str]
    """The nodes that must be read before it can be delivered."""


class ChangeStream:
    """Follows the nodes of `scope`, and delivers their changes."""

    def __init__(
        self,
        read: Callable[[Sequence[str]], None],
        deliver: Callable[[CommittedChanges], None],
    ) -> None:
        self.cache = NodeCache()
        self.scope: Scope | None = None
        """None while there is no subscription."""
        self.complete_scope: Scope | None = None
        """The scope whose nodes are all in the cache."""
        self.version = 0
        """The version of the last delivery, or of a snapshot that came after it."""
        self._read = read
        self._deliver = deliver
        self._dirty: dict[str, None] = {}
        """The nodes of which events have arrived, in the order of the first event of each."""
        self._reading: list[str] | None = None
        self._undelivered: dict[str, Node | None] = {}
        """The nodes that were read."""
        self._rounds = 0
        self._previous_zxid = 0
        self._commit: OwnCommit | None = None
        self._pause_scope: Scope | None = None
        self._is_paused = True
        self._on_quiet: list[Callable[[], None]] = []

    def follows(self, key: Key) -> bool:
        return self.scope is not None and self.scope.contains(key)

    def set_scope(self, scope: Scope | None) -> None:
        self.scope = scope
        if scope is not Scope.ALL:
            self.cache.forget(scope)
            if self.complete_scope is Scope.ALL:
                self.complete_scope = scope

    # --- events and reads

    def on_event(self, path: str) -> None:
        key = key_of(path)
        if key is None:
            return
        if self.follows(key) or (self._pause_scope is not None and self._pause_scope.contains(key)):
            self._dirty[path] = None
            self._read_dirty()

    def on_read(self, nodes: Sequence[Node | None], zxid: int) -> None:
        """Handles the response to the last `read`: the nodes at its paths, None if missing."""
        paths, self._reading = self._reading or [], None
        self._undelivered.update(zip(paths, nodes, strict=False))
        if self._commit is not None:
            self._commit.awaited.difference_update(paths)
            if not self._commit.awaited:
                self._deliver_commit(self._commit)
        elif not self._dirty:
            self._deliver_read(zxid)
        elif self._rounds > _MAX_ROUNDS:
            self._deliver_read(self._previous_zxid)
        self._previous_zxid = zxid
        self._read_dirty()
        self._report_quiet()

    def on_read_failed(self) -> None:
        """The connection was lost; a load follows when there is another one."""
        self._dirty.update(dict.fromkeys(self._reading or ()))
        self._reading = None

    def on_unreadable(self) -> None:
        """The nodes of the last read cannot be read: their changes are not delivered."""
        self.on_read([], self.version)

    def _read_dirty(self) -> None:
        if self._reading is None and self._dirty and not self._is_paused:
            self._reading = list(self._dirty)
            self._dirty.clear()
            self._rounds += 1
            self._read(self._reading)

    def _deliver_read(self, version: int) -> None:
        self._rounds = 0
        nodes, self._undelivered = self._undelivered, {}
        changes = self.cache.update(nodes, version)
        if changes:
            self._publish(version, changes)
        self.version = max(self.version, version)

    def _publish(self, version: int, changes: Sequence[Change]) -> None:
        self.version = version
        self._deliver(CommittedChanges(version, changes))

    # --- own commits

    def on_commit(
        self,
        version: int,
        nodes: Mapping[str, CommittedNode],
        changes: Sequence[Change],
        on_delivered: Callable[[], None],
    ) -> None:
        """Takes a commit that succeeded, when its response arrives."""
        for path in nodes:
            # The events are those of this commit: an earlier change would have made it fail.
            self._dirty.pop(path, None)
            self._undelivered.pop(path, None)
        awaited = {*self._dirty, *(self._reading or ())}
        self._commit = OwnCommit(version, nodes, changes, on_delivered, awaited)
        if awaited and not self._is_paused:
            self._read_dirty()
        else:
            self._deliver_commit(self._commit)

    def _deliver_commit(self, commit: OwnCommit) -> None:
        self._commit = None
        self._rounds = 0
        for path in commit.nodes:
            if path in self._undelivered:  # changed again, after this commit
                del self._undelivered[path]
                self._dirty[path] = None
        before = commit.version - 1
        foreign: list[Change] = []
        if not self._is_paused:
            nodes, self._undelivered = self._undelivered, {}
            foreign = self.cache.update(nodes, max(before, self.version))
            if foreign and before > self.version:
                self._publish(before, foreign)
                foreign = []
        for path, node in commit.nodes.items():
            key = key_of(path)
            if key is None or not self.follows(key):
                continue
            if node.stat is None:
                self.cache.remove(path, commit.version)
            else:
                self.cache.put(path, node.stat, node.record, commit.version)
        changes = [
            *foreign,
            *(change for change in commit.changes if self.follows(_key_of(change))),
        ]
        if changes:
            self._publish(commit.version, changes)
        self.version = max(self.version, commit.version)
        commit.on_delivered()

    # --- snapshots

    def when_quiet(self, zxid: int, call: Callable[[], None]) -> None:
        """Calls `call` once everything up to this transaction, whose id arrived, is delivered."""
        if self._is_quiet():
            self.version = max(self.version, zxid)
            call()
        else:
            self._on_quiet.append(call)

    def _is_quiet(self) -> bool:
        return not (self._dirty or self._undelivered or self._reading or self._commit)

    def _report_quiet(self) -> None:
        if self._on_quiet and self._is_quiet():
            calls, self._on_quiet = self._on_quiet, []
            for call in calls:
                call()

    def pause(self, scope: Scope | None = None) -> None:
        """Collects events, of this scope too, until `resume`; does not read or deliver."""
        self._is_paused = True
        self._pause_scope = scope
        if self._commit is not None:
            self._deliver_commit(self._commit)

    def take_dirty(self) -> list[str]:
        """Returns the nodes of which events have arrived since the last call, during a pause."""
        paths = list(self._dirty)
        self._dirty.clear()
        return paths

    def put_back(self, paths: Iterable[str]) -> None:
        """Reads these nodes, which `take_dirty` returned, after the pause."""
        self._dirty = {**dict.fromkeys(paths), **self._dirty}

    def load(self, scope: Scope, nodes: Mapping[str, Node], zxid: int) -> None:
        """Takes all nodes of a scope, as they were at this transaction, during a pause.

        Delivers the changes since the last delivery. Nodes that were not followed until now are
        no changes.
        """
        followed: dict[str, Node | None] = {}
        for path in self.cache.nodes:
            if path not in nodes and scope.contains(_required_key(path)):
                followed[path] = None
        for path in nodes:
            if self.follows(_required_key(path)):
                followed[path] = nodes[path]
        for path in followed:
            self._undelivered.pop(path, None)
        was_complete = self.complete_scope
        known_nodes = {
            path: node
            for path, node in followed.items()
            if path in self.cache.nodes
            or (was_complete is not None and was_complete.contains(_required_key(path)))
        }
        changes = self.cache.update(known_nodes, zxid)
        if changes:
            self._publish(zxid, changes)
        self.version = max(self.version, zxid)
        self.cache.update({path: followed[path] for path in followed if path not in known_nodes}, 0)
        if self.scope is not None and (scope is Scope.ALL or was_complete is None):
            self.complete_scope = min(scope, self.scope, key=lambda scope: scope.value)

    def resume(self) -> None:
        self._is_paused = False
        self._pause_scope = None
        self._dirty.update(dict.fromkeys(self._undelivered))
        self._undelivered.clear()
        self._read_dirty()
        self._report_quiet()

    def records(self, scope: Scope) -> list[Record]:
        """Returns the records in the cache, topics before their partitions."""
        return sorted_records(
            node.record
            for node in self.cache.nodes.values()
            if node.record is not None and scope.contains(node.record.key)
        )

    def cached(self, path: str) -> CachedNode | None:
        return self.cache.nodes.get(path)


def sorted_records(records: Iterable[Record]) -> list[Record]:
    """Returns topics before their partitions."""
    return [change.record for change in in_order(map(Put, records)) if isinstance(change, Put)]


def _key_of(change: Change) -> Key:
    return change.record.key if isinstance(change, Put) else change.key


def _required_key(path: str) -> Key:
    key = key_of(path)
    assert key is not None
    return key
