"""Limits that keep one client from starving others, and the admission of connections."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

UNLIMITED: Final = 2**31 - 1


@dataclass(slots=True)
class Limits:
    """May be changed while the server runs; limits of a connection apply to new connections."""

    max_frame: int = 100 * 1024 * 1024
    """`socket.request.max.bytes`"""
    max_frame_before_login: int = 512 * 1024
    """`sasl.server.max.receive.size`, until the service sets `Connection.authenticated`"""
    max_connections: int = UNLIMITED
    """`max.connections`"""
    max_connections_per_listener: Mapping[str, int] = field(default_factory=dict)
    """`listener.name.<name>.max.connections`"""
    max_sockets: int = UNLIMITED
    """Descriptors that connections may use; the others are reserved for files."""
    protected_listener: str | None = None
    """The inter-broker listener: at `max_connections` it accepts, and a client's connection is
    closed instead."""
    max_connections_per_ip: int = UNLIMITED
    """`max.connections.per.ip`"""
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """`max.connections.per.ip.overrides`, by address or name; the server resolves the names."""
    idle_ms: int = 600_000
    """`connections.max.idle.ms`; negative for never"""
    login_ms: int = 60_000
    """From the accept to `Connection.authenticated`, including the TLS handshake."""
    queued_max_requests: int = 500
    """`queued.max.requests`: received and not begun. When reached, no client may pipeline."""
    max_pipelined: int = 1000
    """Requests of one connection that were delivered and have no response."""
    max_unsent: int = 64 * 1024
    """Bytes in memory that a client may leave unread before its next requests are delayed."""
    memory_wait_ms: int = 30_000
    """`request.timeout.ms`: how long a request may wait for memory, and the time within which a
    request that has memory must arrive if others wait."""
    send_buffer: int = -1
    """`socket.send.buffer.bytes`; -1 leaves it to the operating system, which is the fastest."""
    receive_buffer: int = -1
    """`socket.receive.buffer.bytes`"""
    listen_backlog: int = 1024
    """`socket.listen.backlog.size`"""


class Admission:
    """Counts open connections and decides about new ones."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.total = 0
        self.delayed = 0
        """Accepted sockets that are no connections yet, or that are closed later."""
        self.refused_sockets = 0
        """How many connections were closed at once because of `Limits.max_sockets`."""
        self.by_listener: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        """How many connections each listener has had."""
        self.by_ip: Counter[str] = Counter()
        self.named_overrides: Mapping[str, int] = {}
        """By address, the overrides that `Limits.per_ip_overrides` has by name."""

    def lacks_room(self, listener: str) -> str | None:
        """Returns why a listener must not accept one more connection; None if it may."""
        limits = self._limits
        most = limits.max_connections_per_listener.get(listener, UNLIMITED)
        if self.by_listener[listener] >= most:
            return f"max.connections={most} of listener {listener} is reached"
        if self.total >= limits.max_connections and listener != limits.protected_listener:
            return f"max.connections={limits.max_connections} is reached"
        return None

    def lacks_descriptor(self, listener: str) -> str | None:
        """Returns why a socket that was just accepted is closed at once; None if it may stay open.

        A tenth of the descriptors is left to the protected listener, if there is one.
        """
        limits = self._limits
        most = limits.max_sockets
        if limits.protected_listener not in (None, listener):
            most -= most // 10
        if self.total + self.delayed < most:
            return None
        self.refused_sockets += 1
        return (
            f"the {most} descriptors for connections are in use, and the others are reserved for "
            f"files ({self.refused_sockets} connections refused so far); raise the limit of open "
            f"files (ulimit -n, LimitNOFILE=), or lower max.connections.per.ip"
        )

    def refusal(self, ip: str) -> str | None:
        """Returns why one more connection from an address is closed; None if it is admitted."""
        limits = self._limits
        most = limits.per_ip_overrides.get(ip)
        if most is None:
            most = self.named_overrides.get(ip, limits.max_connections_per_ip)
        if self.by_ip[ip] < most:
            return None
        return (
            f"max.connections.per.ip={most} is reached; max.connections.per.ip.overrides "
            "can give this address more"
        )

    @property
    def excess(self) -> int:
        """The number of connections above `max_connections`."""
        return max(0, self.total - self._limits.max_connections)

    def enter(self, listener: str, ip: str) -> None:
        self.total += 1
        self.by_listener[listener] += 1
        self.accepted[listener] += 1
        self.by_ip[ip] += 1

    def leave(self, listener: str, ip: str) -> None:
        self.total -= 1
        self.by_listener[listener] -= 1
        self.by_ip[ip] -= 1
        if not self.by_ip[ip]:
            del self.by_ip[ip]


class Backlog:
    """The number of requests that were received and not begun, over all connections."""

    __slots__ = ("_limits", "count", "now")

    def __init__(self, limits: Limits, now: Callable[[], float] = perf_counter) -> None:
        self._limits = limits
        self.now = now
        """The clock on which the wait of requests is measured."""
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count >= self._limits.queued_max_requests


class LogRateLimiter:
    """Keeps a hostile peer from filling the log: at most `lines` of each kind in an interval."""

    def __init__(self, interval_ms: int = 10_000, lines: int = 5) -> None:
        self._interval_ms = interval_ms
        self._lines = lines
        self._since: dict[str, int] = {}
        self._count: Counter[str] = Counter()

    def allow(self, kind: str, now_ms: int) -> int | None:
        """Returns None to suppress the line, else how many were suppressed since the last one."""
        since = self._since.setdefault(kind, now_ms)
        suppressed = 0
        if now_ms - since >= self._interval_ms:
            suppressed = max(0, self._count[kind] - self._lines)
            self._since[kind] = now_ms
            self._count[kind] = 0
        self._count[kind] += 1
        return suppressed if self._count[kind] <= self._lines else None
