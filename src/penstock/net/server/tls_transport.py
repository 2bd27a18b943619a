"""The transport of TLS connections. The TLS engine works in memory BIOs, without the socket."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from penstock.net.framing import FrameMemory
from penstock.net.server.connection import Connection
from penstock.net.server.file_ranges import FileGoneError, FileLoader, pin
from penstock.net.server.send_queue import FileRange
from penstock.net.server.transport import PlaintextTransport
from penstock.net.tls.subject_names import subject_of

_ENCRYPT: Final = 128 * 1024
"""Bytes that are encrypted at a time: only so many are in memory twice."""


class TlsTransport(PlaintextTransport):
    """Calls `on_handshake` with the subject of the client's certificate after the handshake."""

    __slots__ = (
        "_cipher",
        "_incoming",
        "_memory",
        "_on_failed_handshake",
        "_on_handshake",
        "_outgoing",
        "_read_ahead",
        "_tls",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        connection: Connection,
        files: FileLoader,
        context: ssl.SSLContext,
        memory: FrameMemory,
        on_handshake: Callable[[str | None], None],
        on_failed_handshake: Callable[[str], None],
    ) -> None:
        super().__init__(loop, sock, connection, files)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._memory = memory
        self._on_handshake: Callable[[str | None], None] | None = on_handshake
        self._on_failed_handshake = on_failed_handshake
        self._cipher = memoryview(b"")
        self._read_ahead: bytes | None = None
        """Bytes of the current file range that a thread has read."""

    def resume(self) -> None:
        if not self._reading:
            super().resume()
            # Bytes that were received before the pause do not make the socket readable again.
            self._loop.call_soon(self._decrypt)

    def finish(self) -> None:
        if not self._lingering and self._on_handshake is None:
            # It raises because it waits for the peer's close_notify, which does not matter.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._drain()
        super().finish()

    def _readable(self) -> None:
        connection = self._connection
        if self._lingering:
            self._discard()
            return
        if not connection.can_read:
            self._pause()
            return
        try:
            count = self._sock.recv_into(self._memory.input)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error)
            return
        if not count:
            self._eof()
            return
        self._incoming.write(self._memory.view[:count])
        self._decrypt()

    def _decrypt(self) -> None:
        connection = self._connection
        try:
            if self._on_handshake is not None and not connection.closed:
                self._handshake(self._on_handshake)
            while connection.can_read and not self._lingering:
                buffer = connection.reader.buffer()
                # With a buffer it returns the number of bytes.
                count = cast("int", self._tls.read(len(buffer), buffer))
                del buffer
                if not count:
                    self._eof()
                    return
                connection.received(count)
            if not self._lingering and (self._incoming.pending or self._tls.pending()):
                self._stop_reading()  # so that `resume` continues here
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._eof()
            return
        except ssl.SSLError as error:
            self._failed(error)
            return
        if not connection.closed and self._outgoing.pending:
            self.flush()

    def _handshake(self, on_handshake: Callable[[str | None], None]) -> None:
        self._tls.do_handshake()
        self._on_handshake = None
        certificate = self._tls.getpeercert(binary_form=True)
        on_handshake(subject_of(certificate) if certificate else None)

    def _failed(self, error: ssl.SSLError) -> None:
        self._drain()  # the alert, so that the client can report it
        if self._on_handshake is None:
            self._connection.close(f"TLS failed: {error.reason or error}")
            return
        self._on_failed_handshake(f"TLS handshake failed: {error.reason or error}")
        self._connection.close(
            f"TLS handshake failed ({error.reason or error}): does the client use SSL or SASL_SSL "
            "as security.protocol, and do both sides trust each other's certificates?"
        )

    def _drain(self) -> None:
        """Sends what the engine has produced, if the socket accepts it now."""
        try:
            self._cipher = memoryview(bytes(self._cipher) + self._outgoing.read())
            if self._cipher:
                self._cipher = self._cipher[self._sock.send(self._cipher) :]
        except OSError:
            pass  # the connection closes anyway

    def _write(self) -> None:
        connection = self._connection
        send_queue = connection.send_queue
        try:
            while True:
                if not self._cipher:
                    if send_queue.parts and self._on_handshake is None and not self._encrypt_next():
                        return
                    self._cipher = memoryview(self._outgoing.read())
                    if not self._cipher:
                        break
                count = self._sock.send(self._cipher)
                connection.active = connection.active or self._on_handshake is None
                self._cipher = self._cipher[count:]
        except BlockingIOError:
            self._wait_for_writable()
            return
        except FileGoneError as error:
            connection.close(f"cannot send the rest of the records: {error}")
            return
        except ssl.SSLError as error:
            self._failed(error)
            return
        except OSError as error:
            self._broken(error)
            return
        self._all_sent()

    def _encrypt_next(self) -> bool:
        """Encrypts a bounded piece of the send queue; returns False if a thread must read first."""
        send_queue = self._connection.send_queue
        part = send_queue.file()
        if part is not None:
            return self._encrypt_file(part)
        size = 0
        pieces = []
        for buffer in send_queue.buffers()[0]:
            piece = memoryview(buffer)[: _ENCRYPT - size]
            pieces.append(piece)
            size += len(piece)
            if size == _ENCRYPT:
                break
        self._tls.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        send_queue.sent(size)
        return True

    def _encrypt_file(self, part: FileRange) -> bool:
        pinned = pin(part)
        fd = pinned.fileno()
        position = part.position + self._file_done
        size = min(part.size - self._file_done, _ENCRYPT)
        data = self._read_ahead
        if data is None:
            if not self._files.is_warm(fd, position, size):
                self._load(part.file, position, size, self._loaded, keep=True)
                return False
            data = os.pread(fd, size, position)
        self._read_ahead = None
        if not data:
            raise FileGoneError("the file ends before the range does, so the log was truncated")
        self._tls.write(data)
        self._file_progress(part, len(data))
        return True

    def _loaded(self, outcome: bytes | OSError) -> None:
        if self._finish_load(outcome):
            assert isinstance(outcome, bytes)
            self._read_ahead = outcome
            self._write()
