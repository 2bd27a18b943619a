"""The metadata store port: what brokers and the controller's host need of a store, and its rules.

A store is a tree of nodes as in ZooKeeper. Each node has a path, content and a version that is 0
when the node is created and rises by one with every change. A node is ephemeral if it is removed
with the session that created it. One record is the content of one node (`paths`, `znodes`).

Sessions. Opening a store starts a session, `close` ends it. Several sessions may share the nodes of
a ZooKeeper ensemble; the embedded store has one session at a time. A session may be interrupted,
or expire, and be replaced by a new one; `subscribe_session` reports that.

Conflicts. A commit fails with `StoreConflictError`, and changes nothing, if one of its changes does
not fit the nodes:

- A record that carries its node's version (`expected_version`) is put only on the version before.
- With `based_on`, no node in the commit may have changed after that version of the store. A caller
  passes the version of the image that it decided on, so that it never overwrites a change that it
  has not seen.

Fencing. A session becomes the controller's when it puts a `ControllerEpochRecord`. Its commits with
`fenced` then succeed only while no other session has changed that node. In ZooKeeper that is a
check of `/controller_epoch` in the same multi; the embedded store has no other writer.

Subscriptions. A listener receives the changes of each node in the order of their versions, each
exactly once: those of its own session, those of others, and the deletion of ephemeral nodes when a
session ends. `load` returns the version that its records belong to, so that a caller which
subscribes first can ignore what the records already contain. The version rises with each delivery.
Own commits are delivered before `commit` returns, after all changes with a lower version. A commit
of another session may be delivered in several parts, and if a node changed several times, a store
may deliver only the last of these changes.

Scopes. Only the controller needs the brokers, topics and partitions, and what the nodes under
`/admin` and the notifications request of it. Other sessions use `Scope.SETTINGS`, so that a large
cluster does not send every change to every broker twice. A store may deliver more than its scope.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol, Unpack

from penstock.controller.metadata import (
    AclKey,
    BrokerRecord,
    Change,
    ClusterIdRecord,
    ClusterKey,
    ConfigKey,
    ControllerRecord,
    DelegationTokenKey,
    FeaturesRecord,
    Key,
    LoginSecretRecord,
    PartitionRecord,
    Record,
)
from penstock.core.errors import ErrorCode, ErrorDetails, KafkaError


class StoreConflictError(KafkaError):
    """A change that does not fit the store's nodes; nothing of its commit was done."""

    def __init__(self, path: str, problem: str, *, is_partial: bool = False) -> None:
        """`is_partial`: earlier parts of a commit that was too large for one request were done."""
        outcome = "a part was changed" if is_partial else "nothing was changed"
        super().__init__(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"metadata node {path} {problem}; {outcome}: reload the metadata and retry",
        )
        self.path = path
        self.problem = problem


class StoreUnavailableError(KafkaError):
    """The store was not reachable for the time that an operation may take; it may be later."""

    def __init__(self, cause: str, **details: Unpack[ErrorDetails]) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, cause, **details)


class ControllerMovedError(StoreConflictError):
    """A fenced commit of a session that is not, or no longer, the controller's."""

    def __init__(self, problem: str = "was changed by another controller") -> None:
        super().__init__("/controller_epoch", problem)


class Scope(Enum):
    """Which nodes a session follows."""

    SETTINGS = auto()
    """Cluster id, features, controller and its epoch, producer ids, settings, ACLs and tokens."""
    ALL = auto()
    """Also brokers, topics, partitions, and the requests and notifications to the controller."""

    def contains(self, key: Key) -> bool:
        if self is Scope.ALL or isinstance(key, ConfigKey | AclKey | DelegationTokenKey):
            return True
        return isinstance(key, ClusterKey) and key.name not in _CONTROLLER_REQUESTS


_CONTROLLER_REQUESTS = ("reassign_partitions", "preferred_election")


class SessionState(Enum):
    """A change of the session of a store, as its listeners receive it."""

    CONNECTED = auto()
    """The store is reachable. After `EXPIRED`, the caller must load and register again."""
    SUSPENDED = auto()
    """The store is not reachable; the session and its ephemeral nodes may still exist."""
    EXPIRED = auto()
    """The ephemeral nodes are removed. The store starts a new session, and reports `CONNECTED`."""


class Snapshot(NamedTuple):
    """The records of a store as of one version, each topic before its partitions."""

    version: int
    records: list[Record]


class CommittedChanges(NamedTuple):
    """Changes that led to a version of the store, with broker epochs and sequences assigned."""

    version: int
    changes: Sequence[Change]


Listener = Callable[[CommittedChanges], None]
SessionListener = Callable[[SessionState], None]


class MetadataStore(Protocol):
    """One session with the store. It may move between threads, but only one uses it at a time."""

    def load(self, scope: Scope = Scope.ALL) -> Snapshot:
        """Returns everything of this scope that is stored. It blocks.

        Before this returns, subscribers have received every change up to the snapshot's version.
        """

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        """Returns the current records of these keys, without those that do not exist. It blocks."""

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        """Applies all changes in their order, or none; they are durable when it returns. It blocks.

        Returns the new version of the store, which rises with every commit, across restarts too.
        It is the epoch of each broker that was registered in this commit; the epoch in the given
        record is ignored. A notification with `UNASSIGNED_SEQUENCE` gets the next sequence number.
        A partition is put after its topic and deleted before it. Before this returns, subscribers
        have received every change up to its version.

        In ZooKeeper, a commit of more than 700,000 bytes (some 2,000 new partitions) is done in
        parts, in the order of the changes: each part is atomic, durable and delivered with a
        version of its own, and a conflict in a later part says that a part was changed. Order the
        changes so that a controller can continue from any of these states. With `fenced`, every
        part is.

        Raises `StoreConflictError` if a deleted node is missing or a node does not have the
        expected version, `ControllerMovedError` if it is `fenced` and this session is not the
        controller's (see Fencing), `StoreUnavailableError` if the store cannot be reached, in
        which case it may have been done nevertheless, and `KafkaStorageError` if the store failed.
        """

    def subscribe(self, listener: Listener, scope: Scope = Scope.ALL) -> None:
        """Calls `listener` with every later commit, on any thread; it must not block or raise.

        The session's scope becomes `scope`, unless it is larger already.
        """

    def watch(self, scope: Scope) -> None:
        """Changes the session's scope, which its listeners share. It blocks.

        Changes that are committed after it returns are delivered; `load` returns earlier ones.
        """

    def subscribe_session(self, listener: SessionListener) -> None:
        """Calls `listener` with every later state, on any thread; it must not block or raise."""

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
