"""The metadata store of a broker process under a supervisor: a session with its store server.

Calls block the thread that makes them until the server responds. A thread of the store reads the
connection, calls the listeners with each delivery and sends heartbeats.

A session ends with its connection. If the server was silent for the session timeout, or it closed
the connection because this process was, the state becomes `EXPIRED`. The store then connects again
until it succeeds, which starts a new session (`CONNECTED`). A call that was waiting fails with
KafkaStorageError; whether a commit was made is then unknown.
"""

import logging
import threading
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Final, TypeVar

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
)
from penstock.cluster.supervised.connection import StoreConnection, failure_reason
from penstock.cluster.supervised.messages import (
    PROTOCOL_VERSION,
    Commit,
    Committed,
    Delivery,
    Failed,
    Fetch,
    Hello,
    Load,
    Records,
    Request,
    Response,
    from_wire,
    to_wire,
)
from penstock.controller.metadata import Change, Key, Record
from penstock.core.errors import KafkaError, KafkaStorageError, ProtocolError

logger = logging.getLogger(__name__)

_RECONNECT_DELAYS_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_CLOSE_TIMEOUT_S: Final = 5.0

R = TypeVar("R", bound=Response)


class SupervisedStore:
    """A `MetadataStore` that a supervisor serves at the Unix socket `path`."""

    def __init__(self, path: Path, *, name: str, session_timeout_ms: int) -> None:
        """Connects; raises KafkaStorageError if no supervisor serves the socket.

        `name` is this process in the supervisor's log messages: `broker 2`.
        """
        self._path = path
        self._hello = Hello(PROTOCOL_VERSION, name, session_timeout_ms)
        self._listeners: list[Listener] = []
        self._session_listeners: list[SessionListener] = []
        self._call_lock = threading.Lock()
        self._closing = threading.Event()
        try:
            self._connection: StoreConnection | None = StoreConnection(path, self._hello)
        except (OSError, ProtocolError) as error:
            raise KafkaStorageError(
                f"the supervisor's metadata store at {path} cannot be reached: "
                f"{failure_reason(error)}",
                remedy="start the broker with penstock serve --brokers",
            ) from error
        self._reader = threading.Thread(
            target=self._read, args=(self._connection,), name="metadata-store", daemon=True
        )
        self._reader.start()

    # --- the store's calls

    def load(self, scope: Scope = Scope.ALL) -> Snapshot:
        response = self._call(Load(), Records)
        in_scope = [record for record in response.records if scope.contains(record.key)]
        return Snapshot(response.version, in_scope)

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        return self._call(Fetch([path_of(key) for key in keys]), Records).records

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        return self._call(Commit(to_wire(changes), based_on, fenced), Committed).version

    def subscribe(self, listener: Listener, scope: Scope = Scope.ALL) -> None:
        self._listeners.append(listener)

    def watch(self, scope: Scope) -> None:
        """Does nothing: listeners receive every change."""

    def subscribe_session(self, listener: SessionListener) -> None:
        self._session_listeners.append(listener)

    def close(self) -> None:
        """Ends the session and waits until the server has removed its ephemeral nodes."""
        self._closing.set()
        connection = self._connection
        if connection is not None:
            connection.say_goodbye()
            self._reader.join(_CLOSE_TIMEOUT_S)
            connection.end("it is closed")
        self._reader.join(_CLOSE_TIMEOUT_S)

    def _call(self, request: Request, response_type: type[R]) -> R:
        with self._call_lock:
            connection = self._connection
            if self._closing.is_set():
                raise KafkaStorageError(f"the session with {self._path} is closed")
            if connection is None:
                raise KafkaStorageError(
                    f"the session with the supervisor's metadata store at {self._path} has expired",
                    remedy="retry when the supervisor responds again",
                )
            response = connection.call(request)
        if isinstance(response, Failed):
            raise _error_of(response)
        if not isinstance(response, response_type):
            raise KafkaStorageError(
                f"the supervisor responded to {type(request).__name__} with "
                f"{type(response).__name__}"
            )
        return response

    # --- the reader thread

    def _read(self, connection: StoreConnection) -> None:
        while True:
            reason = connection.read(self._deliver, self._notify)
            self._connection = None
            connection.end(reason)
            connection.close()
            if self._closing.is_set():
                return
            logger.warning("the session with the supervisor has expired: %s", reason)
            self._notify(SessionState.EXPIRED)
            new_connection = self._reconnect()
            if new_connection is None:
                return
            connection = self._connection = new_connection
            if self._closing.is_set():
                connection.say_goodbye()
                continue
            logger.info("a new session with the supervisor has started")
            self._notify(SessionState.CONNECTED)

    def _reconnect(self) -> StoreConnection | None:
        """Tries until it succeeds; returns None when the store is closed."""
        for delay_s in chain(_RECONNECT_DELAYS_S, repeat(_RECONNECT_DELAYS_S[-1])):
            if self._closing.wait(delay_s):
                break
            try:
                return StoreConnection(self._path, self._hello)
            except (OSError, KafkaError) as error:
                logger.debug("the supervisor cannot be reached: %s", failure_reason(error))
        return None

    def _deliver(self, delivery: Delivery) -> None:
        committed = CommittedChanges(delivery.version, from_wire(delivery.changes))
        for listener in self._listeners:
            listener(committed)

    def _notify(self, state: SessionState) -> None:
        for listener in self._session_listeners:
            listener(state)


def _error_of(failed: Failed) -> KafkaError:
    match failed.kind:
        case "controller_moved":
            return ControllerMovedError(failed.cause)
        case "conflict":
            return StoreConflictError(failed.path, failed.cause)
    return KafkaStorageError(failed.cause, subject=failed.subject, remedy=failed.remedy)
