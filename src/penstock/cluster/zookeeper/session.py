"""A ZooKeeper session of the store: its connection, its chroot, and its recovery after a loss.

The client's thread reports what happens to the connection. One thread of the session reacts, in the
order of the reports: it has the store set its watches and read its nodes again
(`SessionOwner.restore`), and then reports the state. Only after that are operations of callers
allowed again.
"""

import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import Protocol, TypeVar

from penstock.cluster.store import SessionState, StoreUnavailableError
from penstock.cluster.zookeeper.client import (
    ConnectionLostError,
    OldServerError,
    Request,
    Response,
    ZooKeeperClient,
)
from penstock.cluster.zookeeper.config import ZooKeeperConfig
from penstock.cluster.zookeeper.layout import PERSISTENT_PATHS, acls_of, parents_of
from penstock.cluster.zookeeper.requests import (
    NO_AUTH,
    NODE_EXISTS,
    AddWatch,
    Create,
    Multi,
    MultiError,
    Node,
    ReadChildren,
    ReadNodes,
    RemoveWatches,
)
from penstock.cluster.zookeeper.walk import chunks
from penstock.core.errors import KafkaError, KafkaStorageError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_READ_SIZE = 500
"""Nodes that are read in one request."""
_RETRY_DELAY_S = 0.1
_FAILURE_DELAY_S = 1.0
_LOGIN_REMEDY = (
    "log in as the other brokers do: with the section Client of java.security.auth.login.config, "
    "zookeeper.auth.digest or zookeeper.ssl.keystore.location"
)


class SessionOwner(Protocol):
    """The store, as the session calls it."""

    def on_event(self, path: str) -> None:
        """A node changed. Called on the client's thread."""

    def on_interrupted(self, is_expired: bool) -> None:
        """The connection, or the session, was lost. Called on the client's thread."""

    def restore(self) -> None:
        """Adds the watches and reads the nodes. Called on the session's thread.

        May raise `ConnectionLostError`.
        """

    def on_state(self, state: SessionState) -> None:
        """Called on the session's thread."""


class ZooKeeperSession:
    """A connection that is set up again whenever it is lost or its session expires."""

    def __init__(self, config: ZooKeeperConfig, owner: SessionOwner) -> None:
        self.timeout_s = max(config.session_timeout_ms, config.connection_timeout_ms) / 1000
        self._config = config
        self._owner = owner
        self._condition = threading.Condition()
        self._is_ready = False
        self._is_closed = False
        self._failure: KafkaError | None = None
        self._interruptions = 0
        self._has_paths = False
        self._states: queue.SimpleQueue[SessionState | None] = queue.SimpleQueue()
        self.client = ZooKeeperClient(
            config.hosts, config.session_timeout_ms / 1000, config.tls, self, config.login
        )
        self._thread = threading.Thread(
            target=self._maintain, name="zookeeper-session", daemon=True
        )

    def open(self) -> None:
        """Waits for the first connection. Raises a KafkaError if there is none in time."""
        deadline = time.monotonic() + self._config.connection_timeout_ms / 1000
        self._thread.start()
        try:
            self.client.start()
            self.wait_until_ready(deadline)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with self._condition:
            if self._is_closed:
                return
            self._is_closed = True
            self._is_ready = False
            self._condition.notify_all()
        self._states.put(None)
        self.client.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    @property
    def session_id(self) -> int:
        session = self.client.session
        if session is None:
            raise ConnectionLostError("there is no connection")
        return session[0]

    def wait_until_ready(self, deadline: float) -> None:
        """Waits for a connection. Raises a KafkaError at the deadline, or if it is closed."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._is_ready or self._is_closed or self._failure is not None,
                max(deadline - time.monotonic(), 0),
            )
            if self._is_closed:
                raise KafkaStorageError(f"the session with ZooKeeper at {self._address} is closed")
            if self._is_ready:
                return
            if self._failure is not None:
                raise self._failure
        raise self.unavailable()

    def unavailable(self) -> StoreUnavailableError:
        failure = self.client.last_failure
        return StoreUnavailableError(
            f"ZooKeeper at {self._address} cannot be reached ({failure.reason})",
            remedy=failure.remedy,
        )

    # --- requests

    def full_path(self, path: str) -> str:
        return f"{self._config.chroot}{path}" if path != "/" else self._config.chroot or "/"

    def relative_path(self, path: str) -> str:
        return path.removeprefix(self._config.chroot) or "/"

    def request(self, request: Request[T]) -> Response[T]:
        """Sends a request and waits. Raises `ConnectionLostError`, or what the server refused."""
        response = self.client.request(request, self.timeout_s)
        try:
            response.value()
        except PermissionError as error:
            raise KafkaStorageError(
                f"{error}; the nodes of {self._address} have ACLs",
                remedy=_LOGIN_REMEDY,
            ) from error
        return response

    def read_nodes(self, paths: Sequence[str]) -> tuple[list[Node | None], int]:
        """Returns the nodes, None for missing ones, and the transaction of the last response."""
        nodes: list[Node | None] = []
        zxid = -1
        for part in chunks(paths, _READ_SIZE):
            response = self.request(ReadNodes([self.full_path(path) for path in part]))
            nodes += response.value()
            zxid = response.zxid
        return nodes, zxid

    def list_children(self, paths: Sequence[str]) -> list[list[str]]:
        names: list[list[str]] = []
        for part in chunks(paths, _READ_SIZE):
            names += self.request(ReadChildren([self.full_path(path) for path in part])).value()
        return names

    def add_watches(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.request(AddWatch(self.full_path(path)))

    def remove_watches(self, paths: Sequence[str]) -> None:
        """Does not wait: events that come nevertheless are ignored."""
        for path in paths:
            self.client.send(RemoveWatches(self.full_path(path)), lambda _response: None)

    # --- called on the client's thread

    def on_event(self, path: str) -> None:
        self._owner.on_event(self.relative_path(path))

    def on_connected(self) -> None:
        self._states.put(SessionState.CONNECTED)

    def on_disconnected(self) -> None:
        self._interrupt(SessionState.SUSPENDED)

    def on_expired(self) -> None:
        self._interrupt(SessionState.EXPIRED)

    def on_login_refused(self, reason: str) -> None:
        if self._failure is None:
            logger.warning("cannot log in to ZooKeeper: %s; retrying", reason)
        self._fail(
            StoreUnavailableError(
                f"cannot log in to ZooKeeper: {reason}",
                remedy="check the section Client of java.security.auth.login.config, and "
                "zookeeper.auth.digest",
            )
        )

    def _interrupt(self, state: SessionState) -> None:
        with self._condition:
            self._is_ready = False
            self._interruptions += 1
        self._owner.on_interrupted(state is SessionState.EXPIRED)
        self._states.put(state)

    # --- recovery, on the session's thread

    def _maintain(self) -> None:
        is_first = True
        while (state := self._states.get()) is not None:
            if state is SessionState.CONNECTED:
                if not self._restore():
                    continue
                logger.info("connected to ZooKeeper at %s", self._address)
                if is_first:
                    is_first = False
                    continue
            elif state is SessionState.SUSPENDED:
                logger.warning("lost the connection to ZooKeeper at %s; retrying", self._address)
            else:
                logger.warning("the session with ZooKeeper at %s has expired", self._address)
            self._owner.on_state(state)

    def _restore(self) -> bool:
        """Returns whether operations are possible; not if the connection is lost again."""
        interruptions = self._interruptions
        while interruptions == self._interruptions and not self._is_closed:
            try:
                if not self._has_paths:
                    self._create_paths()
                    self._has_paths = True
                self._owner.restore()
            except ConnectionLostError:
                time.sleep(_RETRY_DELAY_S)
                continue
            except OldServerError:
                self._fail(
                    KafkaStorageError(
                        f"ZooKeeper at {self._address} is older than version 3.6, which the "
                        "metadata store needs",
                        remedy="upgrade ZooKeeper",
                    )
                )
                return False
            except Exception as error:
                if not isinstance(error, KafkaError):
                    logger.exception("the session with ZooKeeper cannot be set up")
                    error = KafkaStorageError(
                        f"the session with ZooKeeper at {self._address} cannot be set up: {error}"
                    )
                self._fail(error)
                with self._condition:
                    self._condition.wait_for(lambda: self._is_closed, _FAILURE_DELAY_S)
                continue
            with self._condition:
                if interruptions == self._interruptions and not self._is_closed:
                    self._failure = None
                    self._is_ready = True
                    self._condition.notify_all()
                    return True
        return False

    def _fail(self, error: KafkaError) -> None:
        with self._condition:
            self._failure = error
            self._condition.notify_all()

    def _create_paths(self) -> None:
        """Creates the chroot and the nodes that Kafka creates at its first start."""
        chroot = self._config.chroot
        paths = dict.fromkeys((*parents_of(chroot), chroot) if chroot else ())
        for path in PERSISTENT_PATHS:
            paths.update(dict.fromkeys(f"{chroot}{node}" for node in (*parents_of(path), path)))
        nodes = self.request(ReadNodes(list(paths))).value()
        for path, node in zip(paths, nodes, strict=True):
            if node is None:
                acls = acls_of(path.removeprefix(chroot), self._config.is_secure)
                operation = Create(path, b"", acls=acls).serialize()
                (result,) = self.request(Multi([operation])).value()
                if isinstance(result, MultiError) and result.code != NODE_EXISTS:
                    raise KafkaStorageError(
                        f"ZooKeeper refuses to create {path} (error {result.code})",
                        remedy=_LOGIN_REMEDY
                        if result.code == NO_AUTH
                        else "check the ACLs of the nodes above it",
                    )

    @property
    def _address(self) -> str:
        return f"{self._config.hosts}{self._config.chroot}"
