"""Accepting on one listener: as fast as it may, and not at all where there is no room (X4).

A listener waits as Kafka's does: while `max.connections` is reached, and while connections come
faster than `max.connection.creation.rate`. Who connects meanwhile stays in the kernel's queue.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol

from penstock.net.server.limits import Admission

_ACCEPTS_PER_TURN: Final = 64
_ACCEPT_PAUSE_S: Final = 1.0
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ConnectionThrottle(Protocol):
    """How fast connections may come; the host may implement it. Called in the event loop."""

    def accept_delay_ms(self, listener: str) -> int:
        """One is accepted: how many ms the listener waits before it is served, and the next."""
        ...

    def close_delay_ms(self, listener: str, ip: str) -> int:
        """It would be served now: 0, or for how many ms it is kept and then closed instead."""
        ...


class NoThrottle:
    """Lets everybody in at once."""

    def accept_delay_ms(self, listener: str) -> int:
        return 0

    def close_delay_ms(self, listener: str, ip: str) -> int:
        return 0


class Acceptor:
    """Owns a listening socket, and accepted ones until they are handed on, from `start` to `stop`.

    `admit` gets the socket of a new connection with the peer's address and port; an OSError of
    it closes the socket. `warn` writes a line to the log, few of a kind.
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
        """Ends a pause; without one, a listener that does not read waits for `look`."""
        self._held: tuple[socket.socket, tuple[str, int]] | None = None
        """Accepted, but too fast."""
        self._kept: dict[socket.socket, asyncio.TimerHandle] = {}
        """Those beyond the quota of their address, to be closed: at once they would come back."""

    def start(self) -> None:
        self._reading = True
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def look(self) -> None:
        """A connection was closed, or a limit changed: there may be room now."""
        if not self._reading and self._timer is None:
            self._timer = self._loop.call_later(0, self._go_on)

    def stop(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._sock.fileno())
            self._reading = False
        if self._timer is not None:
            self._timer.cancel()
        self._sock.close()
        if self._held is not None:
            self._held[0].close()
            self._held = None
        for sock, timer in self._kept.items():
            timer.cancel()
            sock.close()
        self._kept.clear()

    def _accept(self) -> None:
        for turn in range(_ACCEPTS_PER_TURN):
            reason = self._admission.lacks_room(self._name)
            if reason is not None:
                if turn == 0:  # so somebody is there; later ones make us look again if they are
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
                self._failed(error)
                return
            wait_ms = self._throttle.accept_delay_ms(self._name)
            if wait_ms > 0:
                self._held = sock, address
                self._pause(wait_ms / 1000)
                return
            self._enter(sock, address)

    def _pause(self, seconds: float | None = None) -> None:
        """Accepts nothing for so long, or until `look` finds room."""
        self._loop.remove_reader(self._sock.fileno())
        self._reading = False
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        if self._admission.lacks_room(self._name) is not None:
            return
        if self._held is not None:
            sock, address = self._held
            self._held = None
            self._enter(sock, address)
        self.start()

    def _enter(self, sock: socket.socket, address: tuple[str, int]) -> None:
        ip, port = address[0].removeprefix("::ffff:"), address[1]
        keep_ms = self._throttle.close_delay_ms(self._name, ip)
        if keep_ms > 0:
            self._kept[sock] = self._loop.call_later(keep_ms / 1000, self._drop, sock)
            return
        refusal = self._admission.refusal(ip)
        if refusal is not None:
            sock.close()
            self._warn("refused", "a connection from %s is refused: %s", ip, refusal)
            return
        try:
            self._admit(sock, ip, port)
        except OSError as error:  # it was gone before it was looked at
            sock.close()
            self._log.debug("a connection was gone at once: %s", error)

    def _drop(self, sock: socket.socket) -> None:
        del self._kept[sock]
        sock.close()

    def _failed(self, error: OSError) -> None:
        """The connection stays in the queue: without a pause the loop would spin on it."""
        advice = (
            "too many files are open: raise the limit (ulimit -n, LimitNOFILE=) or lower "
            "max.connections"
            if error.errno in _OUT_OF_RESOURCES
            else "trying again in a moment"
        )
        self._warn("accept", "listener %s cannot accept: %s; %s", self._name, error, advice)
        self._pause(_ACCEPT_PAUSE_S)
