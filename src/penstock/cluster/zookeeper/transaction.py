"""A commit as ZooKeeper operations: which nodes to create, change and delete, on which versions.

Pure: it takes the states of the nodes, as the session knows them or has just read them, and returns
operations in groups. A group belongs to one change and is never cut. A commit that is too large for
one request is cut between groups: each request is atomic, and since a topic is put before its
partitions and deleted after them, every state in between is one that a controller can continue
from, as it can after a crash of Kafka's controller.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.cluster.paths import key_of, parent_record, path_of, sequence_prefix
from penstock.cluster.store import StoreConflictError, expected_version, is_ephemeral
from penstock.cluster.znodes import encode
from penstock.cluster.zookeeper.change_stream import CommittedNode
from penstock.cluster.zookeeper.layout import (
    acls_of,
    is_always_there,
    notifications,
    owned_parents,
    parents_of,
)
from penstock.cluster.zookeeper.requests import (
    EPHEMERAL,
    SEQUENTIAL,
    Create,
    DeleteNode,
    Operation,
    OperationResult,
    SetData,
    Stat,
    new_stat,
)
from penstock.controller.metadata import (
    AclKey,
    BrokerRecord,
    Change,
    ConfigKey,
    Delete,
    IsrChangeRecord,
    Key,
    LogDirEventRecord,
    Put,
    Record,
    TopicKey,
    TopicRecord,
)
from penstock.core.ids import TopicPartition

MAX_REQUEST_BYTES: Final = 700_000
"""Below `jute.maxbuffer`, 1 MiB by default, which also limits what ZooKeeper's servers exchange."""


class NodeState(NamedTuple):
    """An existing node."""

    version: int
    has_record: bool
    owner: int = 0
    """The session of an ephemeral node."""
    children: int = 0
    """Only known of nodes that may have children when they are deleted (`may_have_children`)."""


NodeStates = Mapping[str, NodeState | None]
"""The nodes that a commit depends on; None for those that do not exist."""


class OperationGroup(NamedTuple):
    """The operations of one change."""

    change: Change | None
    """None for a notification."""
    operations: list[Operation]


class ChangeResult(NamedTuple):
    """The effect of a request that ZooKeeper has processed."""

    version: int
    nodes: dict[str, CommittedNode]
    changes: list[Change]


# --- the nodes that a commit depends on


def record_paths(changes: Iterable[Change]) -> list[str]:
    """Returns the paths of the records and of the topics that they need.

    Paths of which ZooKeeper assigns a part are left out.
    """
    paths: dict[str, None] = {}
    for change in changes:
        key = change.record.key if isinstance(change, Put) else change.key
        if sequence_prefix(key) is None:
            paths[path_of(key)] = None
        if isinstance(change, Put) and (parent := parent_record(key)) is not None:
            paths[path_of(parent)] = None
    return list(paths)


def parent_paths(changes: Sequence[Change], states: NodeStates) -> list[str]:
    """Returns the parents of new nodes that may be missing, given the states of `record_paths`."""
    new_topics = {
        path_of(change.record.key)
        for change in changes
        if isinstance(change, Put)
        and isinstance(change.record, TopicRecord)
        and states[path_of(change.record.key)] is None
    }
    paths: dict[str, None] = {}
    for change in changes:
        if isinstance(change, Delete):
            if isinstance(change.key, TopicKey):
                paths.update(dict.fromkeys(owned_parents(change.key)))
            continue
        key = change.record.key
        if isinstance(key, TopicPartition) and path_of(TopicKey(key.topic)) in new_topics:
            continue
        if sequence_prefix(key) is None and states.get(path_of(key)) is None:
            paths.update(dict.fromkeys(parents_of(path_of(key))))
    for prefix, _ in notifications(changes):
        paths.update(dict.fromkeys(parents_of(prefix)))
    return [path for path in paths if not is_always_there(path) and path not in states]


def may_have_children(key: Key) -> bool:
    """Whether other records may lie below this one's node, so that it cannot always be deleted."""
    match key:
        case AclKey():
            return True
        case ConfigKey(entity=(("users", _),)):
            return True
    return False


# --- operations


class TransactionBuilder:
    """Turns changes into operations. Changes build on each other."""

    def __init__(self, states: NodeStates, session_id: int, is_secure: bool) -> None:
        self._states = dict(states)
        self._session_id = session_id
        self._is_secure = is_secure

    def build(self, changes: Sequence[Change]) -> list[OperationGroup]:
        """Raises `StoreConflictError` if a change does not fit the nodes."""
        groups = [OperationGroup(change, self._operations(change)) for change in changes]
        for prefix, data in notifications(changes):
            operations = [*self._missing_parents(prefix), self._create(prefix, data, SEQUENTIAL)]
            groups.append(OperationGroup(None, operations))
        return groups

    def _operations(self, change: Change) -> list[Operation]:
        if isinstance(change, Delete):
            return self._delete(change.key)
        return self._put(change.record)

    def _put(self, record: Record) -> list[Operation]:
        data = encode(record)
        prefix = sequence_prefix(record.key)
        if prefix is not None:
            return [*self._missing_parents(prefix), self._create(prefix, data, SEQUENTIAL)]
        path = path_of(record.key)
        state = self._states[path]
        expected = expected_version(record)
        if expected is not None and expected >= 0:
            if state is None or state.version != expected:
                raise StoreConflictError(path, f"does not have version {expected}")
            return [self._set(path, data, state)]
        parent = parent_record(record.key)
        if parent is not None and not self._has_record(path_of(parent)):
            raise StoreConflictError(path_of(parent), "is missing")
        if state is None:
            flags = EPHEMERAL if is_ephemeral(record) else 0
            operations = [*self._missing_parents(path), self._create(path, data, flags)]
            owner = self._session_id if flags else 0
            self._states[path] = NodeState(0, has_record=True, owner=owner)
            return operations
        if expected is not None and state.has_record:
            raise StoreConflictError(path, "exists already")
        if state.owner not in (0, self._session_id):
            raise StoreConflictError(path, "belongs to another session")
        return [self._set(path, data, state)]

    def _set(self, path: str, data: bytes, state: NodeState) -> SetData:
        self._states[path] = state._replace(version=state.version + 1, has_record=True)
        return SetData(path, data, state.version)

    def _delete(self, key: Key) -> list[Operation]:
        path = path_of(key)
        state = self._states[path]
        if state is None or not state.has_record:
            raise StoreConflictError(path, "is missing")
        if state.children and may_have_children(key):
            self._states[path] = state._replace(version=state.version + 1, has_record=False)
            return [SetData(path, b"", state.version)]
        operations: list[Operation] = [DeleteNode(path, state.version)]
        for parent in owned_parents(key):
            if isinstance(key, TopicPartition):
                operations.append(DeleteNode(parent))
            elif (parent_state := self._states.get(parent)) is not None:
                if parent_state.children:
                    raise StoreConflictError(path, "still has partitions")
                operations.insert(0, DeleteNode(parent))
        for operation in operations:
            self._states[operation.path] = None
            self._count_child(operation.path, -1)
        return operations

    def _missing_parents(self, path: str) -> Iterator[Operation]:
        for parent in parents_of(path):
            if self._states.get(parent) is None and not is_always_there(parent):
                self._states[parent] = NodeState(0, has_record=False)
                yield self._create(parent, b"", 0)

    def _count_child(self, path: str, number: int) -> None:
        parent = path.rpartition("/")[0]
        state = self._states.get(parent)
        if state is not None:
            self._states[parent] = state._replace(children=state.children + number)

    def _create(self, path: str, data: bytes, flags: int) -> Create:
        self._count_child(path, 1)
        return Create(path, data, flags, acls_of(path, self._is_secure))

    def _has_record(self, path: str) -> bool:
        state = self._states.get(path)
        return state is not None and state.has_record


def requests_of(
    groups: Sequence[OperationGroup], prefix: Callable[[Operation], bytes]
) -> Iterator[tuple[list[OperationGroup], list[bytes]]]:
    """Yields the groups of each request with their serialized operations.

    `prefix` serializes an operation, with the path in the chroot.
    """
    batch: list[OperationGroup] = []
    serialized: list[bytes] = []
    size = 0
    for group in groups:
        data = [prefix(operation) for operation in group.operations]
        length = sum(map(len, data))
        if batch and size + length > MAX_REQUEST_BYTES:
            yield batch, serialized
            batch, serialized, size = [], [], 0
        batch.append(group)
        serialized += data
        size += length
    if batch:
        yield batch, serialized


# --- results


def result_of(
    groups: Sequence[OperationGroup],
    results: Sequence[OperationResult],
    zxid: int,
    session_id: int,
    without_chroot: Callable[[str], str],
) -> ChangeResult:
    """Returns the nodes and changes, given the results of all operations of these groups.

    ZooKeeper does not return the facts about a new node. It was created in the transaction whose
    id `zxid` the response carries: the server responds to a write before it processes the next one.
    """
    nodes: dict[str, CommittedNode] = {}
    changes: list[Change] = []
    position = 0
    for group in groups:
        record = group.change.record if isinstance(group.change, Put) else None
        for operation in group.operations:
            result = results[position]
            position += 1
            stat: Stat | None = None
            path = operation.path
            if isinstance(operation, Create) and isinstance(result, str):
                owner = session_id if operation.flags & EPHEMERAL else 0
                path, stat = without_chroot(result), new_stat(zxid, owner)
            elif isinstance(result, Stat):
                stat = result
            is_record = record is not None and operation is group.operations[-1]
            if is_record and record is not None and stat is not None:
                record = _as_stored(record, path, stat)
            nodes[path] = CommittedNode(stat, record if is_record else None)
        if record is not None:
            changes.append(Put(record))
        elif group.change is not None:
            changes.append(group.change)
    return ChangeResult(zxid, nodes, changes)


def _as_stored(record: Record, path: str, stat: Stat) -> Record:
    """Returns the record with what ZooKeeper has assigned."""
    if isinstance(record, BrokerRecord):
        return replace(record, epoch=stat.czxid)
    if isinstance(record, IsrChangeRecord | LogDirEventRecord):
        key = key_of(path)
        if isinstance(key, type(record.key)):
            return replace(record, sequence=key.sequence)
    return record
