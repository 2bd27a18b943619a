"""A client's connection with the supervisor's store server: one session, calls and deliveries."""

import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.cluster.store import SessionState
from penstock.cluster.supervised.messages import (
    Delivery,
    FrameBuffer,
    Goodbye,
    Heartbeat,
    Hello,
    Request,
    Response,
    Welcome,
    decode_server_message,
    encode_frame,
)
from penstock.cluster.supervised.unix_socket import connect_unix
from penstock.core.errors import KafkaStorageError, ProtocolError

_HEARTBEATS: Final = 3
"""How many heartbeats are sent within the session timeout."""
_SUSPENDED_AFTER: Final = 2
"""The number of missing responses to heartbeats after which the server is not reachable."""
_RECEIVE_BYTES: Final = 1 << 18


class StoreConnection:
    """A connection with a session. One thread calls `read`; one at a time calls `call`."""

    def __init__(self, path: Path, hello: Hello) -> None:
        """Connects and starts the session. Raises OSError or ProtocolError."""
        self._timeout_s = hello.session_timeout_ms / 1000
        self._frames = FrameBuffer()
        self._send_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._response: Future[Response] | None = None
        """The response that a call waits for."""
        self._end_reason: str | None = None
        self._socket = connect_unix(path, self._timeout_s)
        try:
            self._socket.sendall(encode_frame(hello))
            self._received = self._receive_welcome()
        except BaseException:
            self._socket.close()
            raise

    def call(self, request: Request) -> Response:
        """Sends a request and returns its response; KafkaStorageError if the session ends first.

        Without a response in time the connection is dropped: it is unknown what the server did.
        """
        frame = encode_frame(request)
        response: Future[Response] = Future()
        with self._state_lock:
            if self._end_reason is not None:
                raise _lost(self._end_reason)
            self._response = response
        try:
            with self._send_lock:
                self._socket.sendall(frame)
            return response.result(self._timeout_s)
        except (OSError, TimeoutError) as error:
            self._shut_down()
            raise _lost(failure_reason(error)) from error
        finally:
            self._response = None

    def say_goodbye(self) -> None:
        """Requests the end of the session; `read` returns when the server has ended it."""
        with suppress(OSError), self._send_lock:
            self._socket.sendall(encode_frame(Goodbye()))

    def end(self, reason: str) -> None:
        """Closes the connection; a call that waits, and every later one, fails for `reason`."""
        with self._state_lock:
            self._end_reason = self._end_reason or reason
            response = self._response
        self._shut_down()
        if response is not None and not response.done():
            response.set_exception(_lost(reason))

    def read(
        self, deliver: Callable[[Delivery], None], notify: Callable[[SessionState], None]
    ) -> str:
        """Handles messages and sends heartbeats until the session ends; returns why it did.

        It calls `notify` when the server stops responding, and when it responds again.
        """
        try:
            for frame in self._received:
                self._handle(frame, deliver)
            return self._read_until_end(deliver, notify)
        except (OSError, ProtocolError) as error:
            return failure_reason(error)

    def close(self) -> None:
        """Releases the socket. Only the thread that called `read` may call it, after `end`."""
        with self._send_lock:
            self._socket.close()

    # --- reading

    def _read_until_end(
        self, deliver: Callable[[Delivery], None], notify: Callable[[SessionState], None]
    ) -> str:
        interval_s = self._timeout_s / _HEARTBEATS
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        next_heartbeat = time.monotonic()
        missing = -1
        # Missing responses are counted instead of measuring time: if this process was stopped, the
        # responses are there when it continues.
        while True:
            delay_s = next_heartbeat - time.monotonic()
            if poller.poll(max(0.0, delay_s) * 1000):
                data = self._socket.recv(_RECEIVE_BYTES)
                if not data:
                    return "the supervisor has closed the connection"
                if missing >= _SUSPENDED_AFTER:
                    notify(SessionState.CONNECTED)
                missing = -1
                for frame in self._frames.receive(data):
                    self._handle(frame, deliver)
            if delay_s <= 0:
                missing += 1
                if missing == _HEARTBEATS:
                    return f"the supervisor has not responded for {self._timeout_s:g} s"
                if missing == _SUSPENDED_AFTER:
                    notify(SessionState.SUSPENDED)
                self._send_heartbeat()
                next_heartbeat = time.monotonic() + interval_s

    def _handle(self, frame: bytes, deliver: Callable[[Delivery], None]) -> None:
        match decode_server_message(frame):
            case Delivery() as delivery:
                deliver(delivery)
            case Heartbeat():
                pass
            case response:
                with self._state_lock:
                    waiting = self._response
                if waiting is None or waiting.done():
                    raise ProtocolError(f"{type(response).__name__} is a response to no request")
                waiting.set_result(response)

    def _receive_welcome(self) -> list[bytes]:
        """Waits for the first message; returns the frames that arrived after it."""
        frames: list[bytes] = []
        while not frames:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                raise ProtocolError("the supervisor has closed the connection")
            frames += self._frames.receive(data)
        welcome = decode_server_message(frames[0])
        if not isinstance(welcome, Welcome):
            raise ProtocolError(f"the supervisor sent {type(welcome).__name__}, not Welcome")
        return frames[1:]

    # --- sending

    def _send_heartbeat(self) -> None:
        """Does nothing while a call sends its request, which shows as well that we are alive."""
        if self._send_lock.acquire(blocking=False):
            try:
                self._socket.sendall(encode_frame(Heartbeat()))
            finally:
                self._send_lock.release()

    def _shut_down(self) -> None:
        """Wakes the thread that reads, which then closes the socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def failure_reason(error: BaseException) -> str:
    match error:
        case TimeoutError():
            return "it did not respond in time"
        case ProtocolError():
            return error.message
        case OSError():
            return error.strerror or str(error)
    return str(error)


def _lost(reason: str) -> KafkaStorageError:
    return KafkaStorageError(
        f"the session with the supervisor's metadata store has ended: {reason}",
        remedy="whether an unfinished change was made is unknown; reload the metadata and retry",
    )
