"""One commit to ZooKeeper, from the states of its nodes to its delivery.

Most commits are one multi. A commit of more than `MAX_REQUEST_BYTES` is several, each of which is
atomic and delivered on its own (see `transaction`). If the connection is lost before the response,
the nodes show whether the multi was done.
"""

import queue
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.cluster.paths import key_of
from penstock.cluster.store import ControllerMovedError, StoreConflictError
from penstock.cluster.znode_json import DamagedNodeError
from penstock.cluster.znodes import decode
from penstock.cluster.zookeeper.client import ConnectionLostError, Response
from penstock.cluster.zookeeper.requests import (
    BAD_VERSION,
    EPHEMERAL,
    NO_AUTH,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    SEQUENTIAL,
    CheckVersion,
    Create,
    DeleteNode,
    Multi,
    MultiError,
    MultiResponse,
    Node,
    Operation,
    SetData,
)
from penstock.cluster.zookeeper.transaction import (
    ChangeResult,
    NodeState,
    OperationGroup,
    TransactionBuilder,
    may_have_children,
    parent_paths,
    record_paths,
    requests_of,
    result_of,
)
from penstock.controller.metadata import Change, ControllerEpochRecord, Put
from penstock.core.errors import KafkaStorageError

if TYPE_CHECKING:
    from penstock.cluster.zookeeper.store import ZooKeeperStore

EPOCH_PATH: Final = "/controller_epoch"
_MAX_ATTEMPTS: Final = 10
_PROBLEMS: Final = {
    BAD_VERSION: "has changed",
    NODE_EXISTS: "exists already",
    NO_NODE: "is missing",
    NOT_EMPTY: "still has nodes below it",
}


class Commit:
    """The changes of one call of `MetadataStore.commit` that are still to be done.

    `run` may be called again after a lost connection.
    """

    def __init__(
        self,
        store: "ZooKeeperStore",
        changes: Sequence[Change],
        based_on: int | None,
        fenced: bool,
    ) -> None:
        self._store = store
        self._session = store.session
        self._stream = store.stream
        self._changes = list(changes)
        self._based_on = based_on
        self._fenced = fenced
        self._version = -1
        self._is_partial = False
        self._sent: list[OperationGroup] | None = None
        """The groups of a request whose response has not come."""
        self._refused_path = ""

    def run(self) -> int:
        if self._sent is not None:
            self._recover(self._sent)
        is_fresh = False
        for _ in range(_MAX_ATTEMPTS):
            if not self._changes and self._version >= 0:
                break
            try:
                self._send_all(is_fresh)
            except _RetryError:
                is_fresh = self._based_on is None
            except ControllerMovedError:
                raise
            except StoreConflictError as conflict:
                if is_fresh or self._based_on is not None:
                    raise StoreConflictError(
                        conflict.path, conflict.problem, is_partial=self._is_partial
                    ) from conflict
                is_fresh = True
            else:
                break
        else:
            raise StoreConflictError(
                self._refused_path, "changes all the time", is_partial=self._is_partial
            )
        return self._version

    # --- states

    def _node_states(self, is_fresh: bool) -> dict[str, NodeState | None]:
        """Returns the states of all nodes that the changes depend on; checks `based_on`."""
        states: dict[str, NodeState | None] = {}
        complete = self._stream.complete_scope
        unknown: list[str] = []
        with_children: list[str] = []
        for path in record_paths(self._changes):
            key = key_of(path)
            if key is None:
                raise StoreConflictError(path, "is not the path of a record")
            if is_fresh or complete is None or not complete.contains(key):
                unknown.append(path)
                continue
            cached = self._stream.cached(path)
            if self._based_on is not None and self._stream.cache.changed_after(
                path, self._based_on
            ):
                raise self._changed(path)
            states[path] = (
                None
                if cached is None
                else NodeState(
                    cached.stat.version, cached.record is not None, cached.stat.ephemeral_owner
                )
            )
            if cached is not None and may_have_children(key):
                with_children.append(path)
        for path, node in self._read([*unknown, *with_children]).items():
            cached_state = states.get(path)
            if cached_state is not None:
                children = 0 if node is None else node.stat.children
                states[path] = cached_state._replace(children=children)
            else:
                if (
                    self._based_on is not None
                    and node is not None
                    and node.stat.mzxid > self._based_on
                ):
                    raise self._changed(path)
                states[path] = _state_of(path, node)
        for path, node in self._read(parent_paths(self._changes, states)).items():
            states[path] = _state_of(path, node)
        return states

    def _changed(self, path: str) -> StoreConflictError:
        return StoreConflictError(path, f"has changed since version {self._based_on}")

    def _read(self, paths: Sequence[str]) -> dict[str, Node | None]:
        nodes, _ = self._session.read_nodes(paths)
        return dict(zip(paths, nodes, strict=True))

    # --- requests

    def _send_all(self, is_fresh: bool) -> None:
        states = self._node_states(is_fresh)
        builder = TransactionBuilder(states, self._session.session_id, self._store.is_secure)
        for groups, operations in requests_of(builder.build(self._changes), self._serialize):
            self._send(groups, operations)
            self._is_partial = True

    def _serialize(self, operation: Operation) -> bytes:
        return operation._replace(path=self._session.full_path(operation.path)).serialize()

    def _send(self, groups: list[OperationGroup], operations: list[bytes]) -> None:
        fence: list[CheckVersion] = []
        if self._fenced:
            if self._store.epoch_version is None:
                raise ControllerMovedError("was not put by this session")
            fence.append(CheckVersion(EPOCH_PATH, self._store.epoch_version))
        outcomes: queue.SimpleQueue[ChangeResult | MultiError | Exception] = queue.SimpleQueue()

        def on_response(response: Response[tuple[MultiResponse]]) -> None:
            try:
                (outcome,) = response.value()
            except Exception as error:  # noqa: BLE001 - raised on the caller's thread
                outcomes.put(error)
                return
            if isinstance(outcome, MultiError):
                outcomes.put(outcome)
                return
            results = outcome[len(fence) :]
            result = result_of(
                groups, results, response.zxid, session_id, self._session.relative_path
            )
            self._stream.on_commit(
                result.version, result.nodes, result.changes, lambda: outcomes.put(result)
            )

        session_id = self._session.session_id
        self._sent = groups
        request = Multi([*map(self._serialize, fence), *operations])
        self._session.client.send(request, on_response)
        try:
            outcome = outcomes.get(timeout=self._session.timeout_s)
        except queue.Empty:
            raise ConnectionLostError("no response in time") from None
        if isinstance(outcome, ConnectionLostError):
            raise outcome
        self._sent = None
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, MultiError):
            all_operations = [*fence, *(o for group in groups for o in group.operations)]
            self._refuse(all_operations[outcome.position], outcome.code)
        else:
            self._finish(groups, outcome)

    def _finish(self, groups: Sequence[OperationGroup], result: ChangeResult) -> None:
        self._version = result.version
        epoch = result.nodes.get(EPOCH_PATH)
        if epoch is not None and epoch.stat is not None:
            self._store.epoch_version = epoch.stat.version
        del self._changes[: sum(group.change is not None for group in groups)]

    def _refuse(self, operation: Operation, code: int) -> None:
        path = operation.path
        self._refused_path = path
        if isinstance(operation, CheckVersion):
            raise ControllerMovedError
        if code == NO_AUTH:
            raise KafkaStorageError(
                f"ZooKeeper refuses to change {path}",
                remedy="check the node's ACLs and zookeeper.set.acl",
            )
        problem = _PROBLEMS.get(code)
        if problem is None:
            raise KafkaStorageError(f"ZooKeeper failed to change {path} (error {code})")
        if self._based_on is None or key_of(path) is None:
            raise _RetryError
        raise StoreConflictError(path, problem)

    # --- after a lost connection

    def _recover(self, groups: list[OperationGroup]) -> None:
        """Finds out whether the request was processed; if so, its changes are delivered by now."""
        operations = [operation for group in groups for operation in group.operations]
        distinctive = next(
            (o for o in operations if not (isinstance(o, Create) and o.flags & SEQUENTIAL)), None
        )
        if distinctive is None:  # notifications alone: a second one does no harm
            self._sent = None
            return
        (node, epoch), _ = self._session.read_nodes([distinctive.path, EPOCH_PATH])
        self._sent = None
        if not self._was_done(distinctive, node):
            return
        self._version = max(self._version, 0 if node is None else node.stat.mzxid)
        committed = [group.change for group in groups if group.change is not None]
        del self._changes[: len(committed)]
        if epoch is not None and any(
            isinstance(change, Put) and isinstance(change.record, ControllerEpochRecord)
            for change in committed
        ):
            self._store.epoch_version = epoch.stat.version

    def _was_done(self, operation: Operation, node: Node | None) -> bool:
        if isinstance(operation, DeleteNode):
            return node is None
        if node is None:
            return False
        if isinstance(operation, SetData):
            return node.stat.version == operation.version + 1 and node.data == operation.data
        if isinstance(operation, Create):
            is_ours = not operation.flags & EPHEMERAL or (
                node.stat.ephemeral_owner == self._session.session_id
            )
            return is_ours and node.data == operation.data
        return False


class _RetryError(Exception):
    """The states of nodes were out of date; nothing was changed."""


def _state_of(path: str, node: Node | None) -> NodeState | None:
    if node is None:
        return None
    stat = node.stat
    try:
        has_record = key_of(path) is not None and (
            decode(path, node.data, stat.version, stat.czxid) is not None
        )
    except DamagedNodeError:
        has_record = True
    return NodeState(stat.version, has_record, stat.ephemeral_owner, stat.children)
