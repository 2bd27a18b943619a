"""The transport of plaintext connections: one non-blocking socket on the event loop.

It is not an asyncio transport, because ranges of files are sent with `sendfile`.
"""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable
from typing import Final

from penstock.core.buffers import Buffer
from penstock.net.server.connection import Connection
from penstock.net.server.file_ranges import (
    CHUNK,
    SMALL_RANGE,
    FileGoneError,
    FileLoader,
    pin,
    read_small,
)
from penstock.net.server.send_queue import MEMORY, FileRange, SendableFile

_IS_LINUX: Final = sys.platform == "linux"
_MAX_BYTES_PER_TURN: Final = 2 * 1024 * 1024
"""Received or sent in one turn of the loop; then other connections are served."""
_MAX_SMALL_RANGES: Final = 64 * 1024
"""Bytes of small ranges that are in memory at a time."""
_LINGER_MS: Final = 2_000
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None) if _IS_LINUX else None
_CLOSED_BY_PEER: Final = frozenset((7, 8, 9))
"""Linux's TCP_CLOSE, TCP_CLOSE_WAIT and TCP_LAST_ACK."""
_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)


class PlaintextTransport:
    """A socket without TLS. Calls `received`, `sent` and `on_eof` of its connection."""

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

    # --- for the connection

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
        """Ends the stream, then reads and discards for a moment what the peer still sends.

        A close with unread bytes would make the kernel discard what the peer has not received.
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

    def has_peer_closed(self) -> bool:
        if _TCP_INFO is None:
            return False
        try:
            state = self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
        except OSError:
            return True
        return state in _CLOSED_BY_PEER

    # --- receiving

    def _readable(self) -> None:
        connection = self._connection
        remaining = _MAX_BYTES_PER_TURN
        while not self._lingering:
            if not connection.can_read:
                self._pause()
                return
            buffer = connection.reader.buffer()
            try:
                count = self._sock.recv_into(buffer)
            except BlockingIOError:
                return
            except OSError as error:
                self._broken(error)
                return
            if not count:
                self._eof()
                return
            del buffer  # a view would keep the frame's memory from growing
            connection.received(count)
            remaining -= count
            # The rest of a large request follows at once: reading on is faster than polling.
            if not connection.reader.reads_on or remaining <= 0 or connection.closed:
                return
        self._discard()

    def _pause(self) -> None:
        """Stops reading: the peer sent more than may be delivered, or it has closed its end."""
        if self._connection.ending is None:
            try:
                is_eof = not self._sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                is_eof = False
            except OSError as error:
                self._broken(error)
                return
            if is_eof:
                self._eof()
                return
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _eof(self) -> None:
        self._stop_reading()
        self._connection.on_eof()

    def _discard(self) -> None:
        """Waits for the end of the peer's stream, after `finish`."""
        try:
            if self._sock.recv(64 * 1024):
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # a broken connection has ended as well
        self._end()

    def _end(self) -> None:
        self._connection.close(self._connection.ending or "closed", expected=True)

    def _broken(self, error: OSError) -> None:
        if error.errno == errno.EIO:  # of `sendfile`: the network has no such error
            self._connection.close(f"cannot read the log: {error.strerror}; check its disk")
            return
        self._connection.close(f"the connection broke: {error.strerror or error}", expected=True)

    # --- sending

    def _write(self) -> None:
        """Sends until the queue is empty, the peer accepts no more, or a disk must be read."""
        connection = self._connection
        send_queue = connection.send_queue
        remaining = _MAX_BYTES_PER_TURN
        try:
            if len(send_queue.parts) == 1:  # the usual case; saves 0.3 of 1.5 µs
                buffer = send_queue.parts[0]
                if isinstance(buffer, MEMORY):
                    send_queue.sent(self._sock.send(buffer))
                    connection.active = True
            elif send_queue.files and not self._file_done and self._files.reads_small:
                self._read_small_ranges()
            while send_queue.parts:
                if remaining <= 0:
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
                remaining -= count
                connection.active = True
        except BlockingIOError:
            self._wait_for_writable()
            return
        except FileGoneError as error:
            connection.close(f"cannot send the rest of the records: {error}")
            return
        except OSError as error:
            self._broken(error)
            return
        self._all_sent()

    def _read_small_ranges(self) -> None:
        """Reads the small ranges at the front of the queue that are in the page cache."""
        send_queue = self._connection.send_queue
        room = _MAX_SMALL_RANGES
        for index, part in enumerate(tuple(send_queue.parts)):
            if isinstance(part, MEMORY):
                continue
            room -= part.size
            if part.size > SMALL_RANGE or room < 0:
                return
            data = read_small(part)
            if data is None:
                return
            send_queue.replace_file(index, data)

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
        """Sends from the range; returns 0 if a thread has to read it first."""
        pinned = pin(part)
        fd = pinned.fileno()
        position = part.position + self._file_done
        size = min(part.size - self._file_done, CHUNK)
        if position >= self._warm_until:
            if not self._files.is_warm(fd, position, size):
                self._load(part.file, position, size, self._loaded, keep=False)
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
        file: SendableFile,
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
        self._files.load(self._loop, file, position, size, done, keep=keep)

    def _loaded(self, outcome: bytes | OSError) -> None:
        if self._finish_load(outcome):
            self._write()

    def _finish_load(self, outcome: bytes | OSError) -> bool:
        self._loading = False
        if self._connection.closed:
            return False
        if isinstance(outcome, OSError):
            self._connection.close(f"cannot read the log: {outcome}")
            return False
        return True

    def _wait_for_writable(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._write)
        send_queue = self._connection.send_queue
        if send_queue.parts and not send_queue.unsent:
            # Only file ranges are unsent, so the next request may be delivered.
            self._connection.sent()
