"""Connections of strangers that send large requests, whole, in part or slowly."""

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.support.broker.process import PenstockBroker

_PIECE = b"\xff" * 64 * 1024


class Strangers:
    """Many connections, each of which sends the start of a request, as fast as the broker reads.

    A connection that the broker closes is opened again; all are closed at the end of the block.
    """

    def __init__(
        self, broker: PenstockBroker, count: int, request_size: int, sent_size: int
    ) -> None:
        host, port = broker.bootstrap.rsplit(":", 1)
        self._address = host, int(port)
        self._request_size = request_size
        self._sent_size = sent_size
        self._selector = selectors.DefaultSelector()
        self._sent: dict[socket.socket, int] = {}
        self.closed = 0
        """How often the broker has closed a connection."""
        for _ in range(count):
            self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sock in list(self._sent):
            self._drop(sock)
        self._selector.close()

    def run(self, seconds: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Sends for that long, or until the condition holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_done():
            for key, events in self._selector.select(0.05):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                self._serve(sock, events)

    def _open(self) -> None:
        sock = socket.create_connection(self._address)
        sock.setblocking(False)
        sock.send(struct.pack(">i", self._request_size))
        self._sent[sock] = 0
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _serve(self, sock: socket.socket, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not sock.recv(4096):
                raise ConnectionResetError
            remaining = self._sent_size - self._sent[sock]
            if events & selectors.EVENT_WRITE and remaining:
                self._sent[sock] += sock.send(_PIECE[:remaining])
            elif not remaining:
                self._selector.modify(sock, selectors.EVENT_READ)
        except BlockingIOError:
            pass
        except ConnectionError:
            self.closed += 1
            self._drop(sock)
            self._open()

    def _drop(self, sock: socket.socket) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(sock)
        del self._sent[sock]
        sock.close()
