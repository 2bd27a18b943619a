"""`python -m bench.broker_bare KIND …`: the servers that a broker is compared with.

    receive REQUEST RESPONSE FILE   receives, writes to the file, sends RESPONSE bytes per REQUEST
    echo REQUEST RESPONSE           sends RESPONSE bytes per REQUEST bytes
    sendfile FILE                 sends the range that each request names, preceded by its length

The first two run on the event loop that the broker runs on. Each connection of `receive` writes
a new file, which is removed at its end.
"""

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Callable

RANGE = struct.Struct(">QQ")
"""A request to `sendfile`: position and size."""
_RECEIVE_BYTES = 256 * 1024


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def listening() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    print(f"ready on {host}:{port}", flush=True)
    return listener


def on_loop(connected: "Callable[[asyncio.AbstractEventLoop, socket.socket], None]") -> None:
    """Accepts connections on an event loop until the process ends."""
    loop = new_loop()
    listener = listening()
    listener.setblocking(False)

    def accept() -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected(loop, connection)

    loop.add_reader(listener.fileno(), accept)
    loop.run_forever()


class Responder:
    """One connection: counts bytes and responds when a request is complete."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        request: int,
        response: int,
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._request = request
        self._response = bytes(response)
        self._came = 0
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        loop.add_reader(connection.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            count = self._connection.recv_into(self._buffer)
        except ConnectionError:
            count = 0
        if not count:
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
            self.ended()
            return
        self.received(self._buffer[:count])
        self._came += count
        if self._came >= self._request:
            whole, self._came = divmod(self._came, self._request)
            self._connection.send(self._response * whole)

    def received(self, data: memoryview) -> None: ...

    def ended(self) -> None: ...


class FileWriter(Responder):
    """Writes everything that it receives to a file."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        request: int,
        response: int,
        path: str,
    ) -> None:
        super().__init__(loop, connection, request, response)
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def received(self, data: memoryview) -> None:
        os.write(self._fd, data)

    def ended(self) -> None:
        os.close(self._fd)
        os.unlink(self._path)


def sendfile(path: str) -> None:
    """Serves one connection at a time with blocking sockets."""
    listener = listening()
    fd = os.open(path, os.O_RDONLY)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while request := connection.recv(RANGE.size, socket.MSG_WAITALL):
                position, remaining = RANGE.unpack(request)
                connection.send(struct.pack(">I", remaining), socket.MSG_MORE)
                while remaining:
                    sent = os.sendfile(connection.fileno(), fd, position, remaining)
                    position += sent
                    remaining -= sent


def main(kind: str, *arguments: str) -> None:
    match kind, arguments:
        case "receive", [request, response, path]:
            on_loop(
                lambda loop, sock: _keep(FileWriter(loop, sock, int(request), int(response), path))
            )
        case "echo", [request, response]:
            on_loop(lambda loop, sock: _keep(Responder(loop, sock, int(request), int(response))))
        case "sendfile", [path]:
            sendfile(path)
        case _:
            raise SystemExit(__doc__)


def _keep(connection: Responder) -> None:
    """The event loop keeps a reference: its reader is a bound method."""


if __name__ == "__main__":
    main(*sys.argv[1:])
