"""A metadata store in memory that several sessions share: a stand-in for a ZooKeeper ensemble.

server = MemoryStoreServer()
first, second = server.open(), server.open()
"""

from collections.abc import Sequence

from penstock.cluster.paths import path_of
from penstock.cluster.store import (
    CommittedChanges,
    Listener,
    Snapshot,
    StoreConflictError,
    is_ephemeral,
)
from penstock.controller.metadata import Change, Key
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

    def open(self, kind: "type[MemoryStore] | None" = None) -> "MemoryStore":
        """Starts a session, of a class of the test's own if it names one."""
        session = (kind or MemoryStore)(self)
        self._sessions.append(session)
        return session

    def load(self) -> Snapshot:
        records = sorted(
            self._model.records.values(), key=lambda record: isinstance(record.key, TopicPartition)
        )
        return Snapshot(self.version, records)

    def commit(
        self, session: "MemoryStore", changes: Sequence[Change], based_on: int | None
    ) -> int:
        keys = [key_of(change) for change in changes]
        for key in keys:
            if based_on is not None and self._changed.get(key, 0) > based_on:
                raise StoreConflictError(path_of(key), f"has changed since version {based_on}")
        applied = self._model.commit(changes, self.version + 1)
        for key in keys:
            record = self._model.records.get(key)
            if record is not None and is_ephemeral(record):
                self._owners.setdefault(key, session)
            else:
                self._owners.pop(key, None)
        return self._publish(keys, applied)

    def end(self, session: "MemoryStore") -> None:
        if session in self._sessions:
            self._sessions.remove(session)
            keys = [key for key, owner in self._owners.items() if owner is session]
            if keys:
                for key in keys:
                    del self._owners[key]
                self._publish(keys, self._model.end_session(keys))

    def _publish(self, keys: Sequence[Key], applied: Sequence[Change]) -> int:
        self.version += 1
        self._changed.update(dict.fromkeys(keys, self.version))
        for session in list(self._sessions):
            for listener in session.listeners:
                listener(CommittedChanges(self.version, applied))
        return self.version


class MemoryStore:
    """One session."""

    def __init__(self, server: MemoryStoreServer) -> None:
        self._server = server
        self._is_closed = False
        self.listeners: list[Listener] = []

    def load(self) -> Snapshot:
        return self._server.load()

    def commit(self, changes: Sequence[Change], *, based_on: int | None = None) -> int:
        if self._is_closed:
            raise KafkaStorageError("the session is closed")
        return self._server.commit(self, changes, based_on)

    def subscribe(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def close(self) -> None:
        self._is_closed = True
        self._server.end(self)
