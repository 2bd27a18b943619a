"""One non-blocking socket on the event loop, and what moves between it and its connection.

No asyncio transport is used: ranges of files go from the page cache to the socket by sendfile.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

from penstock.core.buffers import Buffer
from penstock.net.server.connection import Connection
from penstock.net.server.file_ranges import CHUNK, FileGoneError, FileLoader, descriptor
from penstock.net.server.send_queue import MEMORY, FileRange

_TURN_BYTES: Final = 2 * 1024 * 1024
"""Received or sent in one turn of the loop; then the other connections come first."""
_LINGER_MS: Final = 2_000
_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)


class PlaintextTransport:
    """A plain socket. The connection is told `received`, `sent` and `ended`."""

    __slots__ = (
        "_connection",
        "_fd",
        "_file_done",
        "_files",
        "_lingering",
        "_loading",
        "_loop",
        "_reading",
        "_sock",
        "_warm_until",
        "_writing",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        connection: Connection,
        files: FileLoader,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._connection = connection
        self._files = files
        self._writing = False
        self._loading = False
        self._lingering = False
        self._file_done = 0
        self._warm_until = 0
        self._reading = True
        connection.attach(self)

    def start(self) -> None:
        self._loop.add_reader(self._fd, self._readable)

    # What the connection asks for.

    def flush(self) -> None:
        if not (self._writing or self._loading):
            self._write()

    def resume(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    def call_later(self, ms: int, callback: Callable[[], None]) -> None:
        self._loop.call_later(ms / 1000, callback)

    def finish(self) -> None:
        """Closing with bytes unread makes the kernel throw away what the peer has not taken yet.

        So the stream is ended first, and what still comes is read and dropped, for a moment.
        """
        if self._lingering:
            return
        self._lingering = True
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._end()
            return
        self._loop.call_later(_LINGER_MS / 1000, self._end)
        self.resume()

    def abort(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._reading = self._writing = False
        self._sock.close()

    # Receiving.

    def _readable(self) -> None:
        connection = self._connection
        left = _TURN_BYTES
        while not self._lingering:
            if not connection.wants_bytes:
                self._pause()
                return
            buffer = connection.reader.buffer()
            try:
                count = self._sock.recv_into(buffer)
            except BlockingIOError:
                return
            except OSError as error:
                self._lost(error)
                return
            if not count:
                self._ended()
                return
            del buffer  # a view would keep the frame's memory from growing
            connection.received(count)
            left -= count
            # The rest of a large request is on its way: asking for it is quicker than sleeping.
            if not connection.reader.large or left <= 0 or connection.closed:
                return
        self._drop()

    def _pause(self) -> None:
        """The peer sent more than may be delivered now. Or it hung up, which is worth knowing."""
        if self._connection.ending is None:
            try:
                gone = not self._sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                gone = False
            except OSError as error:
                self._lost(error)
                return
            if gone:
                self._ended()
                return
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _ended(self) -> None:
        self._stop_reading()
        self._connection.ended()

    def _drop(self) -> None:
        """Lingering: wait for the peer's end."""
        try:
            if self._sock.recv(64 * 1024):
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # a broken connection has ended too
        self._end()

    def _end(self) -> None:
        self._connection.close(self._connection.ending or "closed", expected=True)

    def _lost(self, error: OSError) -> None:
        self._connection.close(f"the connection broke: {error.strerror or error}", expected=True)

    # Sending.

    def _write(self) -> None:
        """Send until nothing is left, the peer takes no more, or a disk must be waited for."""
        connection = self._connection
        send_queue = connection.send_queue
        left = _TURN_BYTES
        try:
            if len(send_queue.parts) == 1:  # by far the most frequent, so without detours
                buffer = send_queue.parts[0]
                if isinstance(buffer, MEMORY):
                    send_queue.sent(self._sock.send(buffer))
                    connection.active = True
            while send_queue.parts:
                if left <= 0:
                    self._wait_for_writable()
                    return
                part = send_queue.file()
                if part is None:
                    buffers, file_follows = send_queue.buffers()
                    count = self._send(buffers, file_follows)
                    send_queue.sent(count)
                else:
                    count = self._send_file(part)
                    if not count:
                        return
                left -= count
                connection.active = True
        except BlockingIOError:
            self._wait_for_writable()
            return
        except FileGoneError as error:
            connection.close(f"cannot go on sending records: {error}")
            return
        except OSError as error:
            self._lost(error)
            return
        self._all_sent()

    def _all_sent(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._connection.sent()

    def _send(self, buffers: list[Buffer], file_follows: bool) -> int:
        if file_follows:
            return self._sock.sendmsg(buffers, (), _MORE)
        if len(buffers) == 1:
            return self._sock.send(buffers[0])
        return self._sock.sendmsg(buffers)

    def _send_file(self, part: FileRange) -> int:
        """Send from the range; 0 if a thread has to read it first."""
        fd = descriptor(part)
        position = part.position + self._file_done
        size = min(part.size - self._file_done, CHUNK)
        if position >= self._warm_until:
            if not self._files.is_warm(fd, position, size):
                self._load(fd, position, size, self._loaded, keep=False)
                return 0
            self._warm_until = position + size
        count = os.sendfile(self._fd, fd, position, min(size, self._warm_until - position))
        if not count:
            raise FileGoneError("the file ends before the range does, so the log was truncated")
        self._file_progress(part, count)
        return count

    def _file_progress(self, part: FileRange, count: int) -> None:
        self._file_done += count
        if self._file_done == part.size:
            self._connection.send_queue.file_sent()
            self._file_done = 0
            self._warm_until = 0

    def _load(
        self,
        fd: int,
        position: int,
        size: int,
        done: Callable[[bytes | OSError], None],
        *,
        keep: bool,
    ) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._loading = True
        self._warm_until = position + size
        self._files.load(self._loop, fd, position, size, done, keep=keep)

    def _loaded(self, result: bytes | OSError) -> None:
        if self._still_wanted(result):
            self._write()

    def _still_wanted(self, result: bytes | OSError) -> bool:
        self._loading = False
        if self._connection.closed:
            return False
        if isinstance(result, OSError):
            self._connection.close(f"cannot read the log: {result}")
            return False
        return True

    def _wait_for_writable(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._write)
        send_queue = self._connection.send_queue
        if send_queue.parts and not send_queue.unsent:
            self._connection.sent()  # only a file is left, so memory is free for the next request
