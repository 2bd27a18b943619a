"""The interfaces around a connection: the peer, the transport below it, its owner above it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from penstock.net.server.connection import Connection


class Peer(NamedTuple):
    host: str
    """The client's address."""
    port: int
    listener: str
    tls_subject: str | None
    """The subject of the client's certificate in RFC 2253 form; None without a certificate."""


class Transport(Protocol):
    """The owner of the socket, as its connection sees it."""

    def flush(self) -> None:
        """Sends what is in the send queue, as much as the peer accepts."""
        ...

    def resume(self) -> None:
        """Resumes reading."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None: ...

    def call_later(self, ms: int, callback: Callable[[], None]) -> None: ...

    def finish(self) -> None:
        """Ends the stream, as everything has been sent, and then calls `Connection.close`."""
        ...

    def abort(self) -> None:
        """Closes the socket at once."""
        ...

    def has_peer_closed(self) -> bool:
        """Returns whether the peer has closed its end, also behind bytes that were not read."""
        ...


class ConnectionOwner(Protocol):
    """Receives the events of a connection. An exception of `received` closes the connection."""

    @property
    def received(self) -> "Callable[[Connection, memoryview], None]": ...

    def failed(self, connection: "Connection", error: Exception) -> None:
        """Reports an exception of `received` other than ProtocolError."""
        ...

    def closed(self, connection: "Connection", reason: str, expected: bool) -> None: ...


class _NoTransport:
    """The transport of a connection before `attach`."""

    def flush(self) -> None: ...
    def resume(self) -> None: ...
    def call_soon(self, callback: Callable[[], None]) -> None: ...
    def call_later(self, ms: int, callback: Callable[[], None]) -> None: ...
    def finish(self) -> None: ...
    def abort(self) -> None: ...
    def has_peer_closed(self) -> bool:
        return True  # a connection has it when it is closed


NO_TRANSPORT: Final = _NoTransport()
