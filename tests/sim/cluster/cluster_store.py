"""Sessions with a simulated ZooKeeper: late deliveries, lost connections, sessions that expire."""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from penstock.cluster.store import (
    CommittedChanges,
    Listener,
    Scope,
    SessionListener,
    SessionState,
    Snapshot,
)
from penstock.controller.metadata import Change, ControllerRecord, Key, Put, Record
from penstock.core.errors import KafkaStorageError
from tests.sim.txn_loop import Incarnation, SimLoop
from tests.support.cluster.memory_store import MemoryStore, MemoryStoreServer


class SimSession:
    """The session of one process; a `MetadataStore`."""

    def __init__(
        self, server: MemoryStoreServer, loop: SimLoop, process: Incarnation, rng: Random
    ) -> None:
        self._server = server
        self._loop = loop
        self._process = process
        self._rng = rng
        self._inner: MemoryStore = server.open()
        self._listeners: list[Listener] = []
        self._session_listeners: list[SessionListener] = []
        self._undelivered: deque[CommittedChanges] = deque()
        self._is_committing = False
        self.on_elected: Callable[[int], None] = lambda broker_id: None
        """Called when this session has made its broker the controller."""
        self.is_cut = False
        """Whether the process cannot reach the store."""
        self._is_expired = False
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return not (self.is_cut or self._is_expired or self._is_closed)

    # --- faults

    def expire(self) -> None:
        """Ends the session, which the process learns when it reaches the store again."""
        if not self._is_expired and not self._is_closed:
            self._is_expired = True
            self._server.end(self._inner)

    def reconnect(self) -> None:
        """Ends the cut; a session that has expired is replaced by a new one."""
        self.is_cut = False
        if self._is_closed:
            return
        if self._is_expired:
            self._is_expired = False
            self._undelivered.clear()
            self._server.begin(self._inner)
            self._schedule(self._notify)
        else:
            self._schedule(self._deliver_all)

    def end(self) -> None:
        """Ends the session with its process; the store notices at once, or by a timeout."""
        self._is_closed = True
        self._server.end(self._inner)

    def _notify(self) -> None:
        for state in (SessionState.EXPIRED, SessionState.CONNECTED):
            for listener in self._session_listeners:
                listener(state)

    def _schedule(self, callback: Callable[[], None]) -> None:
        delay_s = self._rng.randrange(1, 30) / 1000
        self._loop.call_later(delay_s, callback, context=self._process.context)

    # --- the port

    def load(self, scope: Scope = Scope.ALL) -> Snapshot:
        self._check()
        return self._inner.load(scope)

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        self._check()
        return self._inner.fetch(keys)

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        self._check()
        self._is_committing = True
        try:
            version = self._inner.commit(changes, based_on=based_on, fenced=fenced)
        finally:
            self._is_committing = False
        for change in changes:
            if isinstance(change, Put) and isinstance(change.record, ControllerRecord):
                self.on_elected(change.record.broker_id)
        return version

    def subscribe(self, listener: Listener, scope: Scope = Scope.ALL) -> None:
        if not self._listeners:
            self._inner.subscribe(self._receive, scope)
        self._listeners.append(listener)

    def watch(self, scope: Scope) -> None:
        self._inner.watch(scope)

    def subscribe_session(self, listener: SessionListener) -> None:
        self._session_listeners.append(listener)

    def close(self) -> None:
        if not self._is_closed:
            self.end()

    def _check(self) -> None:
        if not self.is_connected:
            raise KafkaStorageError("the metadata store cannot be reached, says the simulation")

    # --- deliveries

    def _receive(self, committed: CommittedChanges) -> None:
        self._undelivered.append(committed)
        if self._is_committing:
            # An own commit: everything before it is delivered first.
            self._deliver_all()
        else:
            self._schedule(self._deliver_one)

    def _deliver_one(self) -> None:
        if self._undelivered and not self.is_cut and not self._is_expired:
            committed = self._undelivered.popleft()
            for listener in self._listeners:
                listener(committed)

    def _deliver_all(self) -> None:
        while self._undelivered and not self.is_cut and not self._is_expired:
            self._deliver_one()
