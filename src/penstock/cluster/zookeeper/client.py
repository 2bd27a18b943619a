"""A ZooKeeper connection: kazoo's session, with events and responses in the order they arrived.

ZooKeeper sends the events of a transaction before any response that reflects it. The store relies
on that order, which kazoo's handler loses by using two threads. `OrderedHandler` has one: events,
the callbacks of responses and changes of the session's state run on it one after the other. They
must not wait for a response to a later request.

This is the only module that uses kazoo. It replaces methods of kazoo's connection and client that
are not part of its public interface; the pinned version and the tests of the store cover that.
"""

import logging
import secrets
import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    AuthFailedError,
    ConnectionDropped,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL, Watch
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from penstock.cluster.zookeeper.config import NO_LOGIN, ZooKeeperLogin
from penstock.cluster.zookeeper.connect_errors import (
    NO_RESPONSE,
    ConnectFailure,
    explain_failure,
)
from penstock.cluster.zookeeper.digest_md5 import DigestMd5Exchange, SaslExchangeError
from penstock.cluster.zookeeper.requests import AddAuth
from penstock.core.errors import drop_traceback

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_RECONNECT_DELAY_S: Final = 0.05
_MAX_RECONNECT_DELAY_S: Final = 1.0
_MAX_CONNECT_S: Final = 4.0
"""The time after which another server is tried."""
_AUTH_XID: Final = -4


class ConnectionLostError(Exception):
    """The connection ended before the response came; whether the request was done is unknown."""


class OldServerError(Exception):
    """The server does not know a request: it is older than ZooKeeper 3.6."""


class Request(Protocol[T_co]):
    """A request of `requests`."""

    @property
    def type(self) -> int: ...

    def serialize(self) -> bytes: ...

    def deserialize(self, data: bytes, offset: int) -> T_co: ...


class Response(Generic[T]):
    """The response to a request, or the error that arrived instead."""

    def __init__(self, result: "_Result") -> None:
        self._result = result

    @property
    def zxid(self) -> int:
        """The last transaction that the server had processed when it responded."""
        return self._result.zxid

    def value(self) -> T:
        """Returns the value, or raises the error.

        `ConnectionLostError`, `OldServerError`, `FileNotFoundError` for a missing node,
        `PermissionError`, or another error of kazoo.
        """
        error = self._result.exception
        if error is None:
            value: T = self._result.value
            return value
        drop_traceback(error)
        if isinstance(error, ConnectionLoss | SessionExpiredError | AuthFailedError):
            raise ConnectionLostError(str(error) or type(error).__name__) from error
        if isinstance(error, UnimplementedError):
            raise OldServerError from error
        if isinstance(error, NoNodeError):
            raise FileNotFoundError("the node does not exist") from error
        if isinstance(error, NoAuthError):
            raise PermissionError("ZooKeeper refuses a request") from error
        raise error


class SessionEvents(Protocol):
    """The methods that a client calls on the handler's thread, in the order things happened."""

    def on_event(self, path: str) -> None:
        """The node was created, changed or deleted."""

    def on_connected(self) -> None:
        """A connection exists; watches must be added to it."""

    def on_disconnected(self) -> None:
        """The connection was lost; the session may continue."""

    def on_expired(self) -> None:
        """The session has ended; kazoo starts another one."""

    def on_login_refused(self, reason: str) -> None:
        """A server refused the login; the client tries again."""


class _Result(AsyncResult):  # type: ignore[misc]
    zxid = -1


class OrderedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Runs all callbacks on one thread, in order. Connections use the given TLS context."""

    _running: bool

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue
        self._tls = tls

    def start(self) -> None:
        with self._state_change:
            if not self._running:
                self._workers.append(self._create_thread_worker(self.completion_queue))
                self._running = True

    def stop(self) -> None:
        """Stops the thread after the callbacks that are queued."""
        with self._state_change:
            if not self._running:
                return
            self._running = False
            worker = self._workers.pop()
            self.completion_queue.put(_end_thread)
            if worker is not threading.current_thread():
                worker.join()

    def _create_thread_worker(self, work_queue: Any) -> threading.Thread:
        def work() -> None:
            while True:
                call = work_queue.get()
                try:
                    call()
                except _EndThread:
                    return
                except Exception:
                    logger.exception("a callback of the ZooKeeper connection failed")
                del call  # released before a possible idle time

        thread = threading.Thread(target=work, name="zookeeper-events", daemon=True)
        thread.start()
        return thread

    def select(
        self,
        readable: Sequence[socket.socket],
        writable: Sequence[socket.socket],
        _exceptional: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """Waits as `select.select` does, for any file descriptor.

        kazoo waits several times for each event. Its own function creates and closes an epoll each
        time, which took most of the time of large commits.
        """
        poll = select.poll()
        for end in readable:
            poll.register(end, select.POLLIN)
        for end in writable:
            poll.register(end, select.POLLOUT)
        ready = dict(poll.poll(None if timeout is None else max(timeout, 0) * 1000))
        return (
            [end for end in readable if end.fileno() in ready],
            [end for end in writable if end.fileno() in ready],
            [],
        )

    def async_result(self) -> _Result:
        return _Result(self)

    def run(self, call: Callable[[], None]) -> None:
        """Runs `call` on the handler's thread, after everything that is queued."""
        self.completion_queue.put(call)

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_options: Any
    ) -> socket.socket:
        connection = socket.create_connection(address, min(timeout, _MAX_CONNECT_S))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return connection
            return self._tls.wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise


def _kazoo_logger() -> logging.Logger:
    """Returns a logger without a line for each attempt to connect: the session logs its states."""
    kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
    if kazoo_logger.level == logging.NOTSET:
        kazoo_logger.setLevel(logging.ERROR)
        kazoo_logger.addFilter(_is_unexpected)
    return kazoo_logger


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Returns False for refusals in a response, which are raised where the request was sent."""
    return not (record.exc_info and isinstance(record.exc_info[1], PermissionError))


class _EndThread(BaseException):
    pass


def _end_thread() -> None:
    raise _EndThread


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, with persistent watches and the transaction ids of responses."""

    last_failure = NO_RESPONSE

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = Watch.deserialize(buffer, offset)
        path: str = watch.path
        self.client.handler.run(lambda: self.client.session_events.on_event(path))

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        _, result, _ = self.client._pending[0]
        if result is not None:
            result.zxid = header.zxid
        return super()._read_response(header, buffer, offset)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        client = self.client
        client.is_logging_in = client.login != NO_LOGIN
        try:
            timeouts = super()._connect(host, hostip, port)
            if client.is_logging_in:
                self._log_in(timeouts[1] / 1000)
                client.is_logging_in = False
                client._session_callback(KeeperState.CONNECTED)
        except _LoginRefusedError as error:
            reason = f"{host}:{port}: {error}"
            self.handler.run(lambda: client.session_events.on_login_refused(reason))
            raise ConnectionDropped(reason) from error
        except Exception as error:
            self.last_failure = explain_failure(f"{host}:{port}", error, uses_tls=client.use_ssl)
            raise
        else:
            return timeouts

    def _log_in(self, timeout_s: float) -> None:
        login: ZooKeeperLogin = self.client.login
        if login.sasl is not None:
            username, password = login.sasl
            exchange = DigestMd5Exchange(username, password, secrets.token_hex(16))
            try:
                self._exchange_sasl(exchange, timeout_s)
            except (KazooException, SaslExchangeError, OSError) as error:
                raise _LoginRefusedError(
                    f"the SASL login of {username} failed ({_describe(error)})"
                ) from error
        if login.digest is not None:
            try:
                self._invoke(timeout_s, AddAuth("digest", login.digest), xid=_AUTH_XID)
            except AuthFailedError as error:
                raise _LoginRefusedError("the login with scheme digest failed") from error

    def _exchange_sasl(self, exchange: DigestMd5Exchange, timeout_s: float) -> None:
        message, xid = b"", 0
        while not exchange.is_complete:
            xid += 1
            self._submit(SASL(message), timeout_s, xid)
            header, buffer, offset = self._read_header(timeout_s)
            if header.err:
                raise EXCEPTIONS[header.err]()
            challenge, _ = SASL.deserialize(buffer, offset)
            message = exchange.respond(challenge or b"")


def _describe(error: Exception) -> str:
    if isinstance(error, AuthFailedError):
        return "ZooKeeper refuses the user name or password"
    if isinstance(error, ConnectionDropped | OSError):
        return "ZooKeeper closed the connection; it may not have SASL"
    return str(error) or type(error).__name__


class _LoginRefusedError(Exception):
    pass


class _Client(KazooClient):  # type: ignore[misc]
    session_events: SessionEvents
    login = NO_LOGIN
    is_logging_in = False

    def _session_callback(self, state: str) -> None:
        # kazoo reports a connection before its logins; requests have to wait for them.
        if not (self.is_logging_in and state == KeeperState.CONNECTED):
            super()._session_callback(state)


class ZooKeeperClient:
    """A session with a ZooKeeper ensemble; a new one is started whenever it expires."""

    def __init__(
        self,
        hosts: str,
        session_timeout_s: float,
        tls: ssl.SSLContext | None,
        events: SessionEvents,
        login: ZooKeeperLogin = NO_LOGIN,
    ) -> None:
        self.hosts = hosts
        self._events = events
        self._handler = OrderedHandler(tls)
        retry = KazooRetry(
            max_tries=-1,
            delay=_RECONNECT_DELAY_S,
            backoff=2,
            max_delay=_MAX_RECONNECT_DELAY_S,
            sleep_func=self._handler.sleep_func,
        )
        self._kazoo = _Client(
            hosts=hosts,
            timeout=session_timeout_s,
            handler=self._handler,
            connection_retry=retry,
            use_ssl=tls is not None,
            logger=_kazoo_logger(),
        )
        self._kazoo.session_events = events
        self._kazoo.login = login
        self._connection = _Connection(
            self._kazoo, self._kazoo._conn_retry.copy(), logger=self._kazoo.logger
        )
        self._kazoo._connection = self._connection
        self._kazoo.add_listener(self._on_state)
        self._is_closed = False

    @property
    def session(self) -> tuple[int, bytes] | None:
        """The session's id and password; None while there is no connection."""
        session: tuple[int, bytes] | None = self._kazoo.client_id
        return session

    @property
    def last_failure(self) -> ConnectFailure:
        """The reason why the last attempt to connect failed; `NO_RESPONSE` if none did."""
        return self._connection.last_failure

    def start(self) -> None:
        """Starts to connect."""
        self._kazoo.start_async()

    def close(self) -> None:
        """Ends the session, or gives up on it if there is no connection."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except KazooException:
            logger.warning("the connection to ZooKeeper was not closed cleanly", exc_info=True)

    def run(self, call: Callable[[], None]) -> None:
        """Runs `call` on the handler's thread, after everything that has arrived so far."""
        self._handler.run(call)

    def send(self, request: Request[T], on_response: Callable[[Response[T]], None]) -> None:
        """Sends a request; `on_response` is called once, on the handler's thread."""
        result = self._handler.async_result()
        result.rawlink(lambda done: on_response(Response(done)))
        self._kazoo._call(request, result)

    def request(self, request: Request[T], timeout_s: float) -> Response[T]:
        """Sends a request and waits for the response, on a thread other than the handler's.

        Raises `ConnectionLostError` if none arrives in time.
        """
        result = self._handler.async_result()
        self._kazoo._call(request, result)
        if not result.wait(timeout_s):
            raise ConnectionLostError(f"no response within {timeout_s:g} s")
        return Response(result)

    def _on_state(self, state: str) -> None:
        """Called by kazoo on its connection's thread."""
        if self._is_closed:
            return
        if state == KazooState.CONNECTED:
            self._handler.run(self._events.on_connected)
        elif state == KazooState.SUSPENDED:
            self._handler.run(self._events.on_disconnected)
        else:
            self._handler.run(self._events.on_expired)
