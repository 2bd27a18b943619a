"""The sessions that share one embedded store: their ephemeral nodes, fencing and deliveries.

The embedded store has one session, that of the supervisor. `SharedStore` divides it among the
brokers: it remembers which of them created each ephemeral node and which of them put the
controller's epoch, and passes every commit to all of them. It has no threads or sockets; the server
calls it from one thread.
"""

import logging
from collections.abc import Callable, Sequence

from penstock.cluster.store import (
    CommittedChanges,
    ControllerMovedError,
    MetadataStore,
    Scope,
    Snapshot,
    is_ephemeral,
)
from penstock.controller.metadata import Change, ControllerEpochRecord, Delete, Key, Record
from penstock.core.errors import KafkaStorageError

logger = logging.getLogger(__name__)


class SharedSession:
    """One session. `deliver` is called with every commit, before the commit returns."""

    def __init__(self, session_id: int, deliver: Callable[[CommittedChanges], None]) -> None:
        self.session_id = session_id
        self.deliver = deliver


class SharedStore:
    """An embedded store that several sessions use, one call at a time."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._sessions: dict[int, SharedSession] = {}
        self._last_session_id = 0
        self._owners: dict[Key, int | None] = {}
        """The session that created each ephemeral node; None if it has ended."""
        self._controller_session: int | None = None
        self._committing: SharedSession | None = None
        store.subscribe(self._deliver)

    def open(self, deliver: Callable[[CommittedChanges], None]) -> SharedSession:
        """Starts a session, after removing what ended sessions have left behind."""
        self.remove_orphans()
        self._last_session_id += 1
        session = SharedSession(self._last_session_id, deliver)
        self._sessions[session.session_id] = session
        return session

    def load(self) -> Snapshot:
        return self._store.load(Scope.ALL)

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        return self._store.fetch(keys)

    def commit(
        self,
        session: SharedSession,
        changes: Sequence[Change],
        *,
        based_on: int | None,
        fenced: bool,
    ) -> int:
        """Commits for `session`; raises what `MetadataStore.commit` raises."""
        if fenced and self._controller_session != session.session_id:
            raise ControllerMovedError
        self._committing = session
        try:
            return self._store.commit(changes, based_on=based_on)
        finally:
            self._committing = None

    def end(self, session: SharedSession) -> None:
        """Ends the session and removes its ephemeral nodes. It may be called more than once."""
        if self._sessions.pop(session.session_id, None) is None:
            return
        if self._controller_session == session.session_id:
            self._controller_session = None
        for key, owner in self._owners.items():
            if owner == session.session_id:
                self._owners[key] = None
        self.remove_orphans()

    def remove_orphans(self) -> None:
        """Removes the ephemeral nodes of ended sessions.

        If the store fails, which is logged, the nodes remain until the next call.
        """
        orphans = [key for key, owner in self._owners.items() if owner is None]
        if not orphans:
            return
        try:
            self._store.commit([Delete(key) for key in orphans])
        except KafkaStorageError as error:
            logger.error("ended sessions cannot be removed from the store: %s", error.message)

    def _deliver(self, committed: CommittedChanges) -> None:
        """Records the owners of the changed nodes, then passes the commit to all sessions."""
        session_id = None if self._committing is None else self._committing.session_id
        for change in committed.changes:
            if isinstance(change, Delete):
                self._owners.pop(change.key, None)
            elif is_ephemeral(change.record):
                if self._owners.get(change.record.key) is None:
                    self._owners[change.record.key] = session_id
            elif isinstance(change.record, ControllerEpochRecord):
                self._controller_session = session_id
        for session in list(self._sessions.values()):
            session.deliver(committed)
