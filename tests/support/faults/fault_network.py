"""A network in memory on which any call of a socket of the broker can fail, as the kernel's fail.

The broker's `SocketServer` runs on it unchanged: `FaultSocket` has the methods of `socket.socket`
that the server calls, and `NetworkLoop` watches the sockets. Data arrives in pieces and is accepted
in pieces, as the seed chooses. A planned fault is an error at one call, by its number.

A use of a closed socket, a socket that is watched although it is closed, and a loop that polls the
same socket again and again fail the run: on a real system the number of the descriptor may belong
to another connection by then.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast
from unittest.mock import patch

from penstock.core.buffers import Buffer, WritableBuffer
from penstock.net.server.limits import Limits
from tests.sim.txn_loop import SimLoop
from tests.support.faults.fault_disk import FaultDisk
from tests.support.faults.hanging_jobs import JobPools

T = TypeVar("T")

MAX_POLLS = 20_000
"""How often sockets may be polled at one moment of simulated time."""
_RESETS = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT})
"""Errors after which the connection is broken for both ends."""
SOCKET_ERRORS: dict[str, tuple[int, ...]] = {
    "accept": (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED),
    "configure": (errno.EINVAL, errno.ENOBUFS),
    "receive": (errno.ECONNRESET, errno.ETIMEDOUT, errno.ENOBUFS),
    "send": (errno.EPIPE, errno.ECONNRESET, errno.ENOBUFS, errno.ENOMEM),
    "sendfile": (errno.EPIPE, errno.ECONNRESET, errno.EIO, errno.ENOMEM),
    "shutdown": (errno.ENOTCONN,),
}
"""The calls of sockets, and the errors that each may have."""


_ESTABLISHED = 1
_CLOSE_WAIT = 8


class SocketFault(NamedTuple):
    """An error of the first calls of an operation from call number `at` on."""

    at: int
    operation: str
    error: int
    lasting_calls: int = 1


class FailedSocketCall(NamedTuple):
    operation: str
    error: int

    def __repr__(self) -> str:
        return f"{self.operation}: {errno.errorcode[self.error]}"


class NetworkLoop(SimLoop):
    """A simulated loop that also watches the sockets of a `FaultNetwork`."""

    def __init__(self, random: Random, max_job_ms: int) -> None:
        super().__init__(random, max_job_ms)
        self.network: FaultNetwork | None = None
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self._polls = 0
        self._polled_at = 0.0
        self.jobs = JobPools()
        self.may_hang: Callable[[], bool] = lambda: False
        """Whether a call of the disk may hang."""

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Runs the job after a random delay, in a thread in which it may hang."""
        done: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it is the waiter's
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        delay_s = self._random.randrange(1, self._max_job_ms) / 1000
        self.call_later(delay_s, lambda: self.jobs.run(executor, run, may_hang=self.may_hang()))
        return done

    def release_jobs(self) -> None:
        """Lets the jobs that hang continue."""
        self.jobs.release()

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        self._readers[fd] = asyncio.Handle(callback, args, self, None)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        self._writers[fd] = asyncio.Handle(callback, args, self, None)

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(fd, None) is not None

    def _run_once(self) -> None:
        if not self._ready and self.network is not None:
            self._poll(self.network)
        super()._run_once()

    def _poll(self, network: "FaultNetwork") -> None:
        handles = [
            handle for fd, handle in self._readers.items() if network.watched(fd).is_readable
        ]
        handles += [
            handle for fd, handle in self._writers.items() if network.watched(fd).is_writable
        ]
        if not handles:
            return
        if self._polled_at != self._now:
            self._polled_at, self._polls = self._now, 0
        self._polls += 1
        if self._polls > MAX_POLLS:
            self.fail(AssertionError("the loop polls the same sockets again and again"))
        self._ready.extend(handles)


class FaultNetwork:
    """The sockets of one run of a broker. `plan` adds faults."""

    def __init__(self, loop: NetworkLoop, disk: FaultDisk, rng: Random) -> None:
        self.loop = loop
        self._disk = disk
        self._rng = rng
        self._sockets: dict[int, FaultSocket] = {}
        self._listener: FaultSocket | None = None
        self._last_number = 10
        self.calls = 0
        self.faults_hit: list[FailedSocketCall] = []
        self._planned: list[SocketFault] = []
        self._remaining: list[list[Any]] = []
        loop.network = self

    # --- faults

    def plan(self, *faults: SocketFault) -> None:
        """Adds faults; their call numbers count from now on."""
        self._planned += [fault._replace(at=self.calls + fault.at) for fault in faults]

    def heal(self) -> None:
        """Ends all faults, also those to come."""
        self._planned.clear()
        self._remaining.clear()

    def step(self, operation: str, sock: "FaultSocket") -> None:
        """Counts a call; raises `OSError` if a fault hits it."""
        self.calls += 1
        if sock.is_spared:
            return
        for fault in [fault for fault in self._planned if fault.at < self.calls]:
            self._planned.remove(fault)
            self._remaining.append([fault.operation, fault.error, fault.lasting_calls])
        for active in self._remaining:
            if active[0] == operation and active[2]:
                active[2] -= 1
                error: int = active[1]
                self.faults_hit.append(FailedSocketCall(operation, error))
                if error in _RESETS:
                    sock.reset()
                raise OSError(error, os.strerror(error))

    def piece(self, size: int) -> int:
        """Returns how many of so many bytes a call transfers: mostly all, never none."""
        if size <= 1 or self._rng.random() < 0.7:
            return size
        return self._rng.randrange(1, size)

    def is_lucky(self, probability: float) -> bool:
        return self._rng.random() < probability

    # --- sockets

    async def listen(self, host: str, port: int, name: str, limits: Limits) -> socket.socket:
        """Stands in for `socket_server.listen`."""
        self._listener = self.new_socket()
        return cast("socket.socket", self._listener)

    def new_socket(self) -> "FaultSocket":
        self._last_number += 1
        sock = FaultSocket(self, self._last_number)
        self._sockets[self._last_number] = sock
        return sock

    def connect(self, peer: "ClientEnd") -> bool:
        """Queues a connection at the listener; returns False if there is none."""
        if self._listener is None or self._listener.is_closed:
            return False
        self._listener.backlog.append(peer)
        return True

    def watched(self, fd: int) -> "FaultSocket":
        sock = self._sockets.get(fd)
        if sock is None:
            self.loop.fail(AssertionError(f"socket {fd} is closed, and the loop watches it"))
            return FaultSocket(self, fd)
        return sock

    def on_closed(self, fd: int) -> None:
        del self._sockets[fd]

    @property
    def open_connections(self) -> int:
        return sum(sock is not self._listener for sock in self._sockets.values())

    @property
    def open_sockets(self) -> int:
        return len(self._sockets)

    # --- files

    def _sendfile(self, out_fd: int, in_fd: int, position: int, size: int) -> int:
        sock = self._sockets.get(out_fd)
        if sock is None:
            self.loop.fail(AssertionError(f"sendfile to socket {out_fd}, which is closed"))
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self.step("sendfile", sock)
        return sock.accept_bytes(self._read(in_fd, size, position), self.piece)

    def _read(self, fd: int, size: int, position: int) -> bytes:
        return self._disk.pinned_file(fd).read_at(position, size)

    def _preadv(
        self, fd: int, buffers: Sequence[WritableBuffer], position: int, flags: int = 0
    ) -> int:
        if flags and self.is_lucky(0.5):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))  # not in the page cache
        data = self._read(fd, len(buffers[0]), position)
        memoryview(buffers[0])[: len(data)] = data
        return len(data)

    def is_warm(self, fd: int, position: int, size: int) -> bool:
        """Stands in for the probe of the page cache."""
        return not self.is_lucky(0.1)

    @contextmanager
    def patches(self) -> Iterator[None]:
        """Replaces the calls of the operating system in `net.server`."""
        files = SimpleNamespace(
            pread=self._read,
            preadv=self._preadv,
            posix_fadvise=lambda *args: None,
            POSIX_FADV_WILLNEED=0,
        )
        with (
            patch("penstock.net.server.socket_server.listen", self.listen),
            patch("penstock.net.server.transport.os", SimpleNamespace(sendfile=self._sendfile)),
            patch("penstock.net.server.file_ranges.os", files),
        ):
            yield


class ClientEnd:
    """The client's end of a connection: the bytes in both directions.

    `on_data` is called when there is something to read; `sent` has the bytes that the broker has
    not received yet, `arrived` those that the client has not read.
    """

    def __init__(self, on_data: Callable[[], None], capacity: int, *, is_spared: bool) -> None:
        self.on_data = on_data
        self.capacity = capacity
        """How many bytes the broker can send before the client reads."""
        self.is_spared = is_spared
        """Whether no fault hits the connection."""
        self.sent = bytearray()
        self.arrived = bytearray()
        self.is_ended = False
        """Whether the client sends nothing more."""
        self.is_closed_by_broker = False
        self.is_reset = False


class FaultSocket:
    """A socket of the broker: one that listens, or one end of a connection."""

    def __init__(self, network: FaultNetwork, number: int) -> None:
        self._network = network
        self._number = number
        self._peer: ClientEnd | None = None
        self.backlog: deque[ClientEnd] = deque()
        self.is_closed = False

    @property
    def is_spared(self) -> bool:
        return self._peer is not None and self._peer.is_spared

    # --- what the loop watches

    @property
    def is_readable(self) -> bool:
        peer = self._peer
        if peer is None:
            return bool(self.backlog)
        return bool(peer.sent) or peer.is_ended or peer.is_reset

    @property
    def is_writable(self) -> bool:
        peer = self._peer
        return peer is not None and (len(peer.arrived) < peer.capacity or peer.is_reset)

    # --- methods of `socket.socket`

    def fileno(self) -> int:
        return -1 if self.is_closed else self._number

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 9092

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def getsockopt(self, *args: object) -> bytes:
        """Returns the state of a connection, the first byte of TCP_INFO."""
        return bytes([_CLOSE_WAIT if self._peer is None or self._peer.is_ended else _ESTABLISHED])

    def setsockopt(self, *args: object) -> None:
        self._step("configure")

    def accept(self) -> "tuple[FaultSocket, tuple[str, int]]":
        if not self.backlog:
            raise BlockingIOError
        try:
            # The spared connection is the first in the queue, and no fault hits it.
            if not self.backlog[0].is_spared:
                self._step("accept")
        except OSError as error:
            if error.errno == errno.ECONNABORTED:
                aborted = self.backlog.popleft()
                aborted.is_closed_by_broker = True
                aborted.on_data()
            raise
        sock = self._network.new_socket()
        sock._peer = self.backlog.popleft()
        return sock, ("127.0.0.1", 50_000 + sock._number)

    def recv_into(self, buffer: WritableBuffer) -> int:
        data = self.recv(len(buffer))
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        peer = self._step("receive")
        if peer.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if not peer.sent:
            if peer.is_ended:
                return b""
            raise BlockingIOError
        if flags & socket.MSG_PEEK:
            return bytes(peer.sent[:size])
        count = self._network.piece(min(size, len(peer.sent)))
        data = bytes(peer.sent[:count])
        del peer.sent[:count]
        return data

    def send(self, data: Buffer) -> int:
        self._step("send")
        return self.accept_bytes(data, self._network.piece)

    def sendmsg(self, buffers: Sequence[Buffer], ancillary: object = (), flags: int = 0) -> int:
        self._step("send")
        return self.accept_bytes(b"".join(buffers), self._network.piece)

    def shutdown(self, how: int) -> None:
        peer = self._step("shutdown")
        peer.is_closed_by_broker = True
        peer.on_data()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._network.on_closed(self._number)
        for peer in (*self.backlog, self._peer):
            if peer is not None:
                peer.is_closed_by_broker = True
                peer.on_data()

    # --- inside

    def _step(self, operation: str) -> ClientEnd:
        network = self._network
        if self.is_closed:
            network.loop.fail(AssertionError(f"{operation} on a socket that is closed"))
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        network.step(operation, self)
        # Of a listening socket only the fault matters.
        return self._peer or _NO_PEER

    def accept_bytes(self, data: Buffer, piece: Callable[[int], int]) -> int:
        """Takes some of the data, as the kernel's send buffer does; returns how many bytes."""
        peer = self._peer
        assert peer is not None
        if peer.is_reset or peer.is_closed_by_broker:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if not data:
            return 0
        room = peer.capacity - len(peer.arrived)
        if room <= 0:
            raise BlockingIOError
        count = piece(min(room, len(data)))
        peer.arrived += memoryview(data)[:count]
        peer.on_data()
        return count

    def reset(self) -> None:
        """Breaks the connection for both ends."""
        if self._peer is not None:
            self._peer.is_reset = True
            self._peer.on_data()


_NO_PEER = ClientEnd(lambda: None, 0, is_spared=False)
