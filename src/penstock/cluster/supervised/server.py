"""The store server of the supervisor: serves its embedded store to the broker processes.

    server = StoreServer(EmbeddedStore(directory / "penstock-metadata.db"), directory / "x.sock")
    ...
    server.close()

One connection is one session. The session ends when the connection closes, which the kernel does
for a process that was killed, or when nothing arrives for the session timeout: the process is
stopped or hangs. A client that sends an invalid message loses its own session only.

All of it runs on one thread with an event loop of its own, so that commits, which wait for the
disk, are in one order and delay nothing else in the supervisor.
"""

import asyncio
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.cluster.store import (
    CommittedChanges,
    ControllerMovedError,
    MetadataStore,
    StoreConflictError,
)
from penstock.cluster.supervised.messages import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Commit,
    Committed,
    Delivery,
    Failed,
    Fetch,
    FrameBuffer,
    Goodbye,
    Heartbeat,
    Hello,
    Load,
    Records,
    Request,
    ServerMessage,
    Welcome,
    decode_request,
    encode_frame,
    from_wire,
    key_of_path,
    to_wire,
)
from penstock.cluster.supervised.shared_store import SharedSession, SharedStore
from penstock.cluster.supervised.unix_socket import listen_unix
from penstock.core.errors import KafkaStorageError, ProtocolError

logger = logging.getLogger(__name__)

_HELLO_TIMEOUT_MS: Final = 10_000
"""How long a connection may take to start its session."""
_MIN_TIMEOUT_MS: Final = 100
_CHECKS: Final = 10
"""How often a session is checked within its timeout."""
_MAX_UNREAD_BYTES: Final = 2 * MAX_FRAME_BYTES
"""A session ends when its client leaves more than this unread."""


class StoreServer:
    """Serves `store`, which it owns from now on, at the Unix socket `path`."""

    def __init__(self, store: MetadataStore, path: Path) -> None:
        """Returns once clients can connect; raises KafkaStorageError if the socket fails."""
        self._store = store
        self._path = path
        self.sessions = SharedStore(store)
        self.connections: set[_Connection] = set()
        self._delivery: tuple[CommittedChanges, bytes] | None = None
        self._listener = listen_unix(path)
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="metadata-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all sessions, closes the store and removes the socket. It may be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def delivery_frame(self, committed: CommittedChanges) -> bytes:
        """Returns the frame that delivers a commit; it is encoded once for all connections."""
        if self._delivery is None or self._delivery[0] is not committed:
            message = Delivery(committed.version, to_wire(committed.changes))
            self._delivery = committed, encode_frame(message)
        return self._delivery[1]

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._store.close()
            self._loop.close()

    async def _serve(self) -> None:
        server = await self._loop.create_unix_server(lambda: _Connection(self), sock=self._listener)
        await self._closing.wait()
        server.close()
        for connection in list(self.connections):
            connection.close()
        # The transports close in the next iteration.
        await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    """One client and its session. All methods run on the server's loop."""

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._frames = FrameBuffer()
        self._session: SharedSession | None = None
        self._name = "a client"
        self._transport: asyncio.Transport
        self._timeout_ms = _HELLO_TIMEOUT_MS
        self._missed_checks = 0
        self._timer: asyncio.TimerHandle | None = None

    # --- the protocol's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        self._missed_checks = 0
        try:
            for frame in self._frames.receive(data):
                if self._transport.is_closing():
                    return
                self._handle(decode_request(frame))
        except ProtocolError as error:
            logger.warning("%s sent an invalid message: %s", self._name, error.message)
            self.close()
        except Exception:
            logger.exception("a message of %s failed; its session ends", self._name)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self.close()

    # --- the session

    def close(self) -> None:
        """Ends the session at once, and drops what the client has not read."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport.abort()
        if self._session is not None:
            session, self._session = self._session, None
            self._server.sessions.end(session)
            logger.debug("the session of %s has ended", self._name)

    def _set_timer(self) -> None:
        delay_s = self._timeout_ms / _CHECKS / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._check_timeout)

    def _check_timeout(self) -> None:
        """Counts checks instead of measuring time.

        So a session does not expire because this thread was slow or the machine was suspended:
        between two checks the loop has read what arrived.
        """
        self._missed_checks += 1
        self._server.sessions.remove_orphans()
        if self._missed_checks > _CHECKS:
            logger.warning(
                "%s has not responded for %d ms: its session has expired",
                self._name,
                self._timeout_ms,
            )
            self.close()
        else:
            self._set_timer()

    # --- requests

    def _handle(self, request: Request) -> None:
        if isinstance(request, Hello):
            self._start_session(request)
            return
        if self._session is None:
            raise ProtocolError(f"{type(request).__name__} was sent before Hello")
        match request:
            case Heartbeat():
                self._send(request)
            case Goodbye():
                self.close()
            case _:
                self._send(self._respond(self._session, request))

    def _start_session(self, hello: Hello) -> None:
        if self._session is not None:
            raise ProtocolError("Hello was sent twice")
        if hello.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"its version {hello.version} differs from the supervisor's {PROTOCOL_VERSION}",
                remedy="use the same release for all processes",
            )
        self._name = hello.name
        self._timeout_ms = max(hello.session_timeout_ms, _MIN_TIMEOUT_MS)
        self._session = self._server.sessions.open(self._deliver)
        if self._timer is not None:
            self._timer.cancel()
        self._set_timer()
        self._send(Welcome(self._session.session_id))

    def _respond(self, session: SharedSession, request: Load | Fetch | Commit) -> ServerMessage:
        sessions = self._server.sessions
        try:
            match request:
                case Load():
                    snapshot = sessions.load()
                    return Records(snapshot.version, snapshot.records)
                case Fetch(paths):
                    keys = [key_of_path(path) for path in paths]
                    return Records(0, sessions.fetch(keys))
                case Commit(changes, based_on, fenced):
                    version = sessions.commit(
                        session, from_wire(changes), based_on=based_on, fenced=fenced
                    )
                    return Committed(version)
        except ControllerMovedError as error:
            return Failed("controller_moved", error.problem, path=error.path)
        except StoreConflictError as error:
            return Failed("conflict", error.problem, path=error.path)
        except KafkaStorageError as error:
            return Failed("storage", error.cause, error.subject, error.remedy)

    def _deliver(self, committed: CommittedChanges) -> None:
        try:
            self._write(self._server.delivery_frame(committed))
        except ProtocolError as error:
            logger.error("a commit cannot be sent to %s: %s", self._name, error.message)
            self._transport.abort()

    def _send(self, message: ServerMessage) -> None:
        self._write(encode_frame(message))

    def _write(self, frame: bytes) -> None:
        self._transport.write(frame)
        if self._transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            logger.warning(
                "%s left more than %d bytes unread: its session ends",
                self._name,
                _MAX_UNREAD_BYTES,
            )
            self._transport.abort()
