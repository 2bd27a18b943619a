"""The metadata store port: what the controller's host needs of a store, and the rules of stores.

A store is a tree of nodes as in ZooKeeper. Each node has a path, content and a version that is 0
when the node is created and rises by one with every change. A node is ephemeral if it is removed
with the session that created it. One record is the content of one node (`paths`, `znodes`).

Sessions. Opening a store starts a session, `close` ends it. Several sessions may share the nodes of
a ZooKeeper ensemble; the embedded store has one session at a time.

Conflicts. A commit fails with `StoreConflictError`, and changes nothing, if one of its changes does
not fit the nodes:

- A record that carries its node's version (`expected_version`) is put only on the version before.
- With `based_on`, no node in the commit may have changed after that version of the store. A caller
  passes the version of the image that it decided on, so that it never overwrites a change that it
  has not seen.

Fencing. After a store has committed a `ControllerEpochRecord`, each of its later commits succeeds
only while no other session has changed that node. In ZooKeeper that is a check of
`/controller_epoch` in the same multi; nobody else writes to the embedded store.

Subscriptions. A listener receives all changes in the order of their versions, each exactly once:
those of its own session, those of others, and the deletion of ephemeral nodes when a session ends.
`load` returns the version that its records belong to, so that a caller which subscribes first can
ignore what the records already contain.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.controller.metadata import (
    BrokerRecord,
    Change,
    ClusterIdRecord,
    ControllerRecord,
    FeaturesRecord,
    LoginSecretRecord,
    PartitionRecord,
    Record,
)
from penstock.core.errors import ErrorCode, KafkaError


class StoreConflictError(KafkaError):
    """A change that does not fit the store's nodes; nothing of its commit was done."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"metadata node {path} {problem}; nothing was changed: reload the metadata and retry",
        )
        self.path = path


class Snapshot(NamedTuple):
    """All records of a store as of one version, each topic before its partitions."""

    version: int
    records: list[Record]


class CommittedChanges(NamedTuple):
    """The changes that led to a version of the store, with the broker epochs that it assigned."""

    version: int
    changes: Sequence[Change]


Listener = Callable[[CommittedChanges], None]


class MetadataStore(Protocol):
    """One session with the store. It may move between threads, but only one uses it at a time."""

    def load(self) -> Snapshot:
        """Returns everything that is stored. It blocks."""

    def commit(self, changes: Sequence[Change], *, based_on: int | None = None) -> int:
        """Applies all changes in their order, or none; they are durable when it returns. It blocks.

        Returns the new version of the store, which rises with every commit, across restarts too.
        It is the epoch of each broker that was registered in this commit; the epoch in the given
        record is ignored. A partition is put after its topic and deleted before it. Before this
        returns, subscribers have received every change up to its version.

        Raises `StoreConflictError` if a deleted node is missing or a node does not have the
        expected version, and `KafkaStorageError` if the store failed.
        """

    def subscribe(self, listener: Listener) -> None:
        """Calls `listener` with every later commit, on any thread; it must not block or raise."""

    def close(self) -> None:
        """Ends the session. Its ephemeral nodes are removed, at the latest at the next opening."""


def is_ephemeral(record: Record) -> bool:
    """Whether the record's node is removed with the session that created it."""
    return isinstance(record, BrokerRecord | ControllerRecord)


def expected_version(record: Record) -> int | None:
    """The version that the record is put on; -1 if its node must be new, None if it carries none.

    A cluster keeps its id forever and has one controller at a time: the first session to put one
    wins.
    """
    match record:
        case PartitionRecord():
            return record.partition_epoch - 1
        case FeaturesRecord():
            return record.epoch - 1
        case ClusterIdRecord() | LoginSecretRecord() | ControllerRecord():
            return -1
    return None
