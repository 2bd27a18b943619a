"""Accepts connections on one listener, within the limits on their number and rate (X4).

As in Kafka, a listener pauses while `max.connections` is reached, and while the rate of new
connections exceeds `max.connection.creation.rate`. New connections stay in the kernel's queue then.
Beyond the descriptors that are not reserved for files, they are accepted and closed at once.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol

from penstock.net.server.limits import Admission

_MAX_ACCEPTS_PER_TURN: Final = 64
_ACCEPT_PAUSE_S: Final = 1.0
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ConnectionThrottle(Protocol):
    """Limits the rate of new connections. Called in the event loop."""

    def accept_delay_ms(self, listener: str) -> int:
        """Counts a connection; returns how many ms the listener pauses before serving it."""
        ...

    def close_delay_ms(self, listener: str, ip: str) -> int:
        """Returns 0 to serve the connection now, or in how many ms it is closed instead."""
        ...


class NoThrottle:
    """A throttle without limits."""

    def accept_delay_ms(self, listener: str) -> int:
        return 0

    def close_delay_ms(self, listener: str, ip: str) -> int:
        return 0


class Acceptor:
    """Owns a listening socket, and accepted sockets until `admit` takes them.

    `admit` receives the socket of a new connection with the peer's address and port; if it raises
    OSError, the socket is closed. `warn` writes a rate-limited line to the log.
    """

    def __init__(
        self,
        name: str,
        sock: socket.socket,
        admission: Admission,
        throttle: ConnectionThrottle,
        admit: Callable[[socket.socket, str, int], None],
        warn: Callable[..., None],
        logger: logging.Logger,
    ) -> None:
        self._name = name
        self._sock = sock
        self._admission = admission
        self._throttle = throttle
        self._admit = admit
        self._warn = warn
        self._log = logger
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._timer: asyncio.TimerHandle | None = None
        """Ends a pause; without one, a paused listener waits for `check_room`."""
        self._delayed: tuple[socket.socket, tuple[str, int]] | None = None
        """Accepted above the rate limit, to be served after the pause."""
        self._throttled: dict[socket.socket, asyncio.TimerHandle] = {}
        """Sockets above the quota of their address, to be closed later: clients that are closed at
        once reconnect sooner."""

    def start(self) -> None:
        self._reading = True
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def check_room(self) -> None:
        """Resumes soon if there is room: a connection was closed, or a limit has changed."""
        if not self._reading and self._timer is None:
            self._timer = self._loop.call_later(0, self._resume)

    def stop(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock.fileno())
            self._reading = False
        if self._timer is not None:
            self._timer.cancel()
        self._sock.close()
        if self._delayed is not None:
            self._delayed[0].close()
            self._delayed = None
            self._admission.delayed -= 1
        for sock, timer in self._throttled.items():
            timer.cancel()
            sock.close()
        self._admission.delayed -= len(self._throttled)
        self._throttled.clear()

    def _accept(self) -> None:
        for turn in range(_MAX_ACCEPTS_PER_TURN):
            reason = self._admission.lacks_room(self._name)
            if reason is not None:
                if turn == 0:  # a connection is pending; in later rounds there may be none
                    self._warn(
                        "full",
                        "listener %s accepts no more connections until one is closed: %s",
                        self._name,
                        reason,
                    )
                    self._pause()
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                self._pause_after(error)
                return
            reason = self._admission.lacks_descriptor(self._name)
            if reason is not None:
                sock.close()
                self._warn("descriptors", "a connection from %s is refused: %s", address[0], reason)
                continue
            wait_ms = self._throttle.accept_delay_ms(self._name)
            if wait_ms > 0:
                self._delayed = sock, address
                self._admission.delayed += 1
                self._pause(wait_ms / 1000)
                return
            self._serve(sock, address)

    def _pause(self, seconds: float | None = None) -> None:
        """Accepts nothing for so long, or until `check_room` finds room."""
        self._loop.remove_reader(self._sock.fileno())
        self._reading = False
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._timer = None
        if self._admission.lacks_room(self._name) is not None:
            return
        if self._delayed is not None:
            sock, address = self._delayed
            self._delayed = None
            self._admission.delayed -= 1
            self._serve(sock, address)
        self.start()

    def _serve(self, sock: socket.socket, address: tuple[str, int]) -> None:
        ip, port = address[0].removeprefix("::ffff:"), address[1]
        keep_ms = self._throttle.close_delay_ms(self._name, ip)
        if keep_ms > 0:
            self._throttled[sock] = self._loop.call_later(keep_ms / 1000, self._drop, sock)
            self._admission.delayed += 1
            return
        refusal = self._admission.refusal(ip)
        if refusal is not None:
            sock.close()
            self._warn("refused", "a connection from %s is refused: %s", ip, refusal)
            return
        try:
            self._admit(sock, ip, port)
        except OSError as error:  # the peer has closed it already
            sock.close()
            self._log.debug("a new connection was closed by its peer: %s", error)

    def _drop(self, sock: socket.socket) -> None:
        del self._throttled[sock]
        self._admission.delayed -= 1
        sock.close()

    def _pause_after(self, error: OSError) -> None:
        """Pauses: the connection stays in the queue, and the loop would spin on it."""
        advice = (
            "too many files are open: raise the limit (ulimit -n, LimitNOFILE=) or lower "
            "max.connections"
            if error.errno in _OUT_OF_RESOURCES
            else "the listener tries again in a second"
        )
        self._warn("accept", "listener %s cannot accept: %s; %s", self._name, error, advice)
        self._pause(_ACCEPT_PAUSE_S)
