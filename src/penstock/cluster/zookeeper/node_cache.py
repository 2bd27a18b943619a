"""The nodes that a session follows, as it knows them, and the changes between two states of them.

The versions in the cache are those of the changes that listeners have received. A commit expects
exactly these versions, so that it fails if a node has changed in a way that no listener knows yet.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.cluster.paths import key_of
from penstock.cluster.store import Scope
from penstock.cluster.znode_json import DamagedNodeError
from penstock.cluster.znodes import decode
from penstock.cluster.zookeeper.requests import Node, Stat
from penstock.controller.metadata import Change, Delete, Key, Put, Record, TopicRecord
from penstock.core.ids import TopicPartition

logger = logging.getLogger(__name__)

_MAX_REMOVED: Final = 10_000


class CachedNode(NamedTuple):
    stat: Stat
    record: Record | None
    """None if the node is empty, such as the node of an entity without settings."""
    delivered_in: int
    """The version of the delivery that contained it."""


class NodeCache:
    """Nodes by path. One thread changes it; others may look up single nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, CachedNode] = {}
        self._removed: dict[str, int] = {}
        """The version in which nodes were removed, in that order, of those removed lately."""
        self._removed_before = 0
        """Nodes that were removed up to this version are no longer in `_removed`."""

    def changed_after(self, path: str, version: int) -> bool:
        """Whether a later delivery than that of `version` has changed the node, or may have."""
        node = self.nodes.get(path)
        if node is not None:
            return node.delivered_in > version
        return self._removed.get(path, self._removed_before) > version

    def put(self, path: str, stat: Stat, record: Record | None, version: int) -> None:
        self.nodes[path] = CachedNode(stat, record, version)
        self._removed.pop(path, None)

    def remove(self, path: str, version: int) -> CachedNode | None:
        """Removes a node that no longer exists; returns what it was."""
        node = self.nodes.pop(path, None)
        if node is not None:
            self._removed[path] = version
            if len(self._removed) > _MAX_REMOVED:
                oldest = next(iter(self._removed))
                self._removed_before = max(self._removed_before, self._removed.pop(oldest))
        return node

    def forget(self, scope: Scope | None) -> None:
        """Drops the nodes outside this scope, which are no longer followed."""
        self.nodes = {
            path: node
            for path, node in self.nodes.items()
            if (key := key_of(path)) is not None and scope is not None and scope.contains(key)
        }

    def update(self, nodes: Mapping[str, Node | None], version: int) -> list[Change]:
        """Applies nodes that were read, None for missing ones; returns the changes to deliver.

        A node that was removed and created again is deleted and put: it is another broker, topic
        or controller. Deletions come first, and topics before their partitions.
        """
        changes: list[Change] = []
        for path, node in nodes.items():
            key = key_of(path)
            if key is not None:
                changes += self._update(path, key, node, version)
        return in_order(changes)

    def _update(self, path: str, key: Key, node: Node | None, version: int) -> list[Change]:
        cached = self.nodes.get(path)
        had_record = cached is not None and cached.record is not None
        if node is None:
            self.remove(path, version)
            return [Delete(key)] if had_record else []
        stat = node.stat
        is_same_node = cached is not None and stat.czxid <= cached.stat.czxid
        if cached is not None and is_same_node and cached.stat.version >= stat.version:
            return []
        try:
            record = decode(path, node.data, stat.version, stat.czxid)
        except DamagedNodeError as error:
            logger.error("a change is ignored: %s", error)
            record = cached.record if cached is not None and is_same_node else None
            self.put(path, stat, record, version)
            return [Delete(key)] if had_record and record is None else []
        self.put(path, stat, record, version)
        changes: list[Change] = []
        if had_record and (record is None or not is_same_node):
            changes.append(Delete(key))
        if record is not None:
            changes.append(Put(record))
        return changes


def in_order(changes: Iterable[Change]) -> list[Change]:
    """Returns deletions before puts; partitions are deleted before topics and put after them."""
    deletes: list[Delete] = []
    puts: list[Put] = []
    for change in changes:
        if isinstance(change, Delete):
            deletes.append(change)
        else:
            puts.append(change)
    deletes.sort(key=lambda delete: not isinstance(delete.key, TopicPartition))
    puts.sort(key=lambda put: not isinstance(put.record, TopicRecord))
    return [*deletes, *puts]
