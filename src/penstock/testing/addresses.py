"""Where a broker for tests listens: ports that stay its own while it is down."""

import re
import socket
import sys
from collections.abc import Mapping
from typing import NamedTuple

from penstock.testing.errors import BrokerError

_LISTENER = re.compile(r"\s*([A-Za-z0-9_]+)://(?:\[([^\]]*)\]|([^:\[\]]*)):(\d+)\s*")
_ANYWHERE = ("", "0.0.0.0", "::")
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

    def reached(self) -> "Listener":
        """With a host that clients on this machine can use."""
        return self._replace(host="localhost") if self.host in _ANYWHERE else self


class Route(NamedTuple):
    """From where clients connect to where the broker is."""

    host: str
    port: int
    broker_host: str
    broker_port: int
    readable: bool
    """Whether requests can be told apart: not where they are encrypted."""


def parse_listeners(text: str) -> list[Listener]:
    found = []
    for entry in text.split(","):
        match = _LISTENER.fullmatch(entry)
        if match is None:
            raise BrokerError(
                f"listeners={text}: write NAME://host:port, such as PLAINTEXT://127.0.0.1:0"
            )
        name, v6, host, port = match.groups()
        found.append(Listener(name, v6 or host or "", int(port)))
    return found


def protocol_of(listener: Listener, settings: Mapping[str, str]) -> str:
    """The security protocol of a listener: its name, unless the settings map it."""
    pairs = settings.get("listener.security.protocol.map", "").split(",")
    names = dict(pair.strip().rpartition(":")[::2] for pair in pairs)
    return names.get(listener.name, listener.name).upper()


def is_readable(protocol: str) -> bool:
    """Whether requests can be told apart on the wire."""
    return protocol in _READABLE


class Ports:
    """Ports that nobody else gets until `close`.

    Linux lets a listener in beside a socket that is bound and does not listen, if both say
    SO_REUSEADDR, and refuses connections while there is none. Elsewhere the port is only likely to
    stay free.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, listener: Listener) -> Listener:
        """The same with a port of its own where it asks for any (port 0)."""
        if listener.port:
            return listener
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((listener.host, 0))
        except OSError as error:
            sock.close()
            raise BrokerError(f"listeners={listener}: {error}; choose another host") from None
        port: int = sock.getsockname()[1]
        if sys.platform == "linux":
            self._held.append(sock)
        else:
            sock.close()
        return listener._replace(port=port)

    def close(self) -> None:
        for sock in self._held:
            sock.close()
        self._held.clear()
