"""A metadata store in memory that several sessions share: a stand-in for a ZooKeeper ensemble.

server = MemoryStoreServer()
first, second = server.open(), server.open()
"""

from collections.abc import Sequence

from penstock.cluster.paths import path_of
from penstock.cluster.store import (
    CommittedChanges,
    ControllerMovedError,
    Listener,
    Scope,
    SessionListener,
    SessionState,
    Snapshot,
    StoreConflictError,
    is_ephemeral,
)
from penstock.controller.metadata import BrokerKey, Change, ClusterKey, Key, Record
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from tests.support.cluster.metadata_changes import StoreModel, key_of


class MemoryStoreServer:
    """The nodes that all sessions share."""

    def __init__(self) -> None:
        self.version = 0
        self._model = StoreModel()
        self._changed: dict[Key, int] = {}
        self._owners: dict[Key, MemoryStore] = {}
        self._sessions: list[MemoryStore] = []
        self._controller: MemoryStore | None = None
        """The session that put the controller's epoch last."""

    def open(self, kind: "type[MemoryStore] | None" = None) -> "MemoryStore":
        """Starts a session, of a class of the test's own if it names one."""
        session = (kind or MemoryStore)(self)
        self._sessions.append(session)
        return session

    def load(self, scope: Scope) -> Snapshot:
        records = sorted(
            (record for key, record in self._model.records.items() if scope.contains(key)),
            key=lambda record: isinstance(record.key, TopicPartition),
        )
        return Snapshot(self.version, records)

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        return [self._model.records[key] for key in keys if key in self._model.records]

    def commit(
        self,
        session: "MemoryStore",
        changes: Sequence[Change],
        based_on: int | None,
        fenced: bool,
    ) -> int:
        if fenced and self._controller is not session:
            raise ControllerMovedError
        keys = [key_of(change) for change in changes]
        for key in keys:
            if based_on is not None and self._changed.get(key, 0) > based_on:
                raise StoreConflictError(path_of(key), f"has changed since version {based_on}")
            if self._owners.get(key, session) is not session and isinstance(key, BrokerKey):
                raise StoreConflictError(path_of(key), "belongs to another session")
        applied = self._model.commit(changes, self.version + 1)
        keys = [key_of(change) for change in applied]
        if ClusterKey("controller_epoch") in keys:
            self._controller = session
        for key in keys:
            record = self._model.records.get(key)
            if record is not None and is_ephemeral(record):
                self._owners.setdefault(key, session)
            else:
                self._owners.pop(key, None)
        return self._publish(keys, applied)

    def expire(self, session: "MemoryStore") -> None:
        """Ends the session as if it had timed out; its store continues with a new one."""
        self.end(session)
        session.notify(SessionState.EXPIRED)
        self.begin(session)
        session.notify(SessionState.CONNECTED)

    def begin(self, session: "MemoryStore") -> None:
        """Starts a new session of a store whose last one has ended."""
        self._sessions.append(session)

    def end(self, session: "MemoryStore") -> None:
        if session in self._sessions:
            self._sessions.remove(session)
            if self._controller is session:
                self._controller = None
            keys = [key for key, owner in self._owners.items() if owner is session]
            if keys:
                for key in keys:
                    del self._owners[key]
                self._publish(keys, self._model.end_session(keys))

    def _publish(self, keys: Sequence[Key], applied: Sequence[Change]) -> int:
        self.version += 1
        self._changed.update(dict.fromkeys(keys, self.version))
        for session in list(self._sessions):
            session.deliver(CommittedChanges(self.version, applied))
        return self.version


class MemoryStore:
    """One session."""

    def __init__(self, server: MemoryStoreServer) -> None:
        self._server = server
        self._is_closed = False
        self._listeners: list[Listener] = []
        self._session_listeners: list[SessionListener] = []
        self._scope = Scope.SETTINGS

    def load(self, scope: Scope = Scope.ALL) -> Snapshot:
        return self._server.load(scope)

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        return self._server.fetch(keys)

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        if self._is_closed:
            raise KafkaStorageError("the session is closed")
        return self._server.commit(self, changes, based_on, fenced)

    def subscribe(self, listener: Listener, scope: Scope = Scope.ALL) -> None:
        self._listeners.append(listener)
        if scope is Scope.ALL:
            self._scope = scope

    def watch(self, scope: Scope) -> None:
        self._scope = scope

    def subscribe_session(self, listener: SessionListener) -> None:
        self._session_listeners.append(listener)

    def deliver(self, committed: CommittedChanges) -> None:
        """Called by the server with each commit."""
        changes = [change for change in committed.changes if self._scope.contains(key_of(change))]
        if changes:
            for listener in self._listeners:
                listener(CommittedChanges(committed.version, changes))

    def notify(self, state: SessionState) -> None:
        """Called by the server when the session expires, and when it is replaced."""
        for listener in self._session_listeners:
            listener(state)

    def close(self) -> None:
        self._is_closed = True
        self._server.end(self)
