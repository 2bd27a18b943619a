"""Listeners of a broker for tests, and ports that stay reserved while it is down."""

import re
import socket
import sys
from collections.abc import Mapping
from typing import NamedTuple

from penstock.testing.cuts import CLIENTS
from penstock.testing.errors import BrokerError

_LISTENER = re.compile(r"\s*([A-Za-z0-9_]+)://(?:\[([^\]]*)\]|([^:\[\]]*)):(\d+)\s*")
_WILDCARD_HOSTS = ("", "0.0.0.0", "::")
_READABLE = ("PLAINTEXT", "SASL_PLAINTEXT")


class Listener(NamedTuple):
    """One entry of `listeners`."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def reachable(self) -> "Listener":
        """Returns the listener with a host that clients on this machine can connect to."""
        return self._replace(host="localhost") if self.host in _WILDCARD_HOSTS else self


class Route(NamedTuple):
    """The address that clients connect to, and the broker's own address.

    With port 0, the host is the path of a Unix socket.
    """

    host: str
    port: int
    broker_host: str
    broker_port: int
    readable: bool
    """Whether requests can be told apart: not if they are encrypted."""
    source: str | None = CLIENTS
    """The process that connects. None: a broker, which the client id of its first request names."""
    target: str = "broker"
    """The process that is connected to."""


def parse_listeners(text: str) -> list[Listener]:
    """Parses the setting `listeners`. Raises `BrokerError` for an entry that is not one."""
    listeners = []
    for entry in text.split(","):
        match = _LISTENER.fullmatch(entry)
        if match is None:
            raise BrokerError(
                f"listeners={text}",
                remedy="write NAME://host:port, such as PLAINTEXT://127.0.0.1:0",
            )
        name, v6, host, port = match.groups()
        listeners.append(Listener(name, v6 or host or "", int(port)))
    return listeners


def protocol_of(listener: Listener, settings: Mapping[str, str]) -> str:
    """Returns the security protocol of a listener: its name, unless the settings map it."""
    pairs = settings.get("listener.security.protocol.map", "").split(",")
    names = dict(pair.strip().rpartition(":")[::2] for pair in pairs)
    return names.get(listener.name, listener.name).upper()


def is_readable(protocol: str) -> bool:
    """Returns whether requests can be told apart on the wire."""
    return protocol in _READABLE


class Ports:
    """Ports that no other process gets until `close`.

    On Linux, another socket can listen on the port of a bound socket that does not listen, if both
    set SO_REUSEADDR; without such a listener, connections are refused. On other systems the port is
    only likely to stay free.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def reserve(self, listener: Listener) -> Listener:
        """Returns the listener, with a free port instead of port 0."""
        if listener.port:
            return listener
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((listener.host, 0))
        except OSError as error:
            sock.close()
            raise BrokerError(
                str(error), subject=f"listeners={listener}", remedy="choose another host"
            ) from None
        port: int = sock.getsockname()[1]
        if sys.platform == "linux":
            self._sockets.append(sock)
        else:
            sock.close()
        return listener._replace(port=port)

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()
