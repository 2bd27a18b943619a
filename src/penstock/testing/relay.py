"""A relay between clients and a broker that injects faults: refusals, losses, latency, cuts.

It runs on the event loop that creates it; `relay_main` is its process.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from penstock.cluster.supervised.unix_socket import connect_unix, listen_unix
from penstock.testing.addresses import Route
from penstock.testing.cuts import FIRST_REQUEST, Direction, source_of
from penstock.testing.faults import Faults
from penstock.testing.links import Link

_BACKLOG = 128
_CONNECT_SECONDS = 5.0


class Cuts:
    """The directions that are cut now; several relays of an event loop share them.

    As TCP does while packets are lost, a cut holds the bytes back. Those of the other direction
    still arrive. Bytes that were held back arrive when the cut is healed.
    """

    def __init__(self) -> None:
        self._cut: frozenset[Direction] = frozenset()
        self._changed = asyncio.Event()
        """Set and replaced with each change."""

    def __contains__(self, direction: Direction) -> bool:
        return direction in self._cut

    @property
    def directions(self) -> frozenset[Direction]:
        return self._cut

    def replace(self, directions: Iterable[Direction]) -> None:
        """Replaces the cuts. Call `Relay.release` of all relays then: it passes on held bytes."""
        self._cut = frozenset(directions)
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until_open(self, *directions: Direction) -> None:
        """Returns when bytes pass in these directions."""
        while not self._cut.isdisjoint(directions):
            await self._changed.wait()


class Relay:
    """Passes on requests and responses, with the faults that are set.

    The first faults refuse connections: call `set` to open the listeners. Subclasses may override
    `passes_request` and `passes_response` to drop other frames.
    """

    def __init__(self, routes: list[Route], cuts: Cuts | None = None) -> None:
        """`cuts` are those of all relays between the same processes."""
        self.faults = Faults(refuses=True)
        self.cuts = Cuts() if cuts is None else cuts
        self.lost: Counter[int] = Counter()
        """The responses lost since losses were switched on, by API key."""
        self.loop = asyncio.get_running_loop()
        self.links: set[Link] = set()
        self._routes = routes
        self._listeners: list[socket.socket] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._free_at = {True: 0.0, False: 0.0}
        """When the network has transmitted what was sent, for requests and for responses."""

    async def set(self, faults: Faults) -> None:
        """Replaces the current faults."""
        before, self.faults = self.faults, faults
        if faults.loses_responses and not before.loses_responses:
            self.lost.clear()
        if before.loses_responses and not faults.loses_responses:
            await self.cut(only_mute=True)
        if not faults.is_slow:
            for link in tuple(self.links):
                link.flush()
        if faults.refuses and not before.refuses:
            self._close_listeners()
            await self.cut()
        if before.refuses and not faults.refuses:
            self._open_listeners()

    async def cut(self, *, only_mute: bool = False) -> None:
        """Resets all connections, or only those that wait for a response that was lost."""
        for link in tuple(self.links):
            if link.is_mute or not only_mute:
                link.reset()
        await asyncio.sleep(0)  # transports close their sockets in the next iteration of the loop

    def release(self) -> None:
        """Passes on what was held back in directions that are not cut any more."""
        for link in tuple(self.links):
            link.flush()

    def reset_links(self, processes: Collection[str]) -> None:
        """Resets the connections between two processes."""
        for link in tuple(self.links):
            if set(link.direction) == set(processes):
                link.reset()

    async def close(self) -> None:
        self._close_listeners()
        await self.cut()
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def passes_request(self, link: "Link", api: int, correlation: bytes) -> bool:
        """Returns whether the broker receives the request; if not, the connection is reset."""
        faults = self.faults
        if faults.loses_responses and (not faults.lost_apis or api in faults.lost_apis):
            link.doomed[correlation] = api
        return True

    def passes_response(self, link: "Link", correlation: bytes) -> bool:
        """Returns whether the client receives the response; if not, see `Link.shut`."""
        api = link.doomed.pop(correlation, None)
        faults = self.faults
        if api is None or not faults.loses_responses or 0 <= faults.max_lost <= self.lost[api]:
            return True
        self.lost[api] += 1
        return False

    def delivery_time(self, size: int, *, is_request: bool) -> float:
        """Returns when bytes arrive that are sent now; all connections share the network."""
        faults = self.faults
        time = self.loop.time() + faults.latency_ms / 2000
        if faults.bytes_per_second > 0:
            time = max(time, self._free_at[is_request]) + size / faults.bytes_per_second
            self._free_at[is_request] = time
        return time

    def _open_listeners(self) -> None:
        for route in self._routes:
            sock = _listen(route)
            self._listeners.append(sock)
            self.loop.add_reader(sock, self._accept, sock, route)

    def _close_listeners(self) -> None:
        for sock in self._listeners:
            self.loop.remove_reader(sock)
            sock.close()
        self._listeners.clear()

    def _accept(self, listener: socket.socket, route: Route) -> None:
        # asyncio's server is not used: a connection that it has accepted when it is closed stays
        # open without an owner until the garbage is collected.
        try:
            sock, _ = listener.accept()
        except OSError:  # the client has disconnected, or the connection is not ready yet
            return
        sock.setblocking(False)
        link = Link(self, Direction(route.source or "", route.target), readable=route.readable)
        self.links.add(link)
        task = self.loop.create_task(self._connect(link, sock, route))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, link: Link, sock: socket.socket, route: Route) -> None:
        try:
            if route.source is None:
                source, link.first_bytes = await self._read_source(sock)
                link.set_direction(Direction(source, route.target))
            await self.loop.connect_accepted_socket(lambda: link.client, sock)
            await self.cuts.wait_until_open(link.direction, link.direction.reversed())
            if not link.is_reset:
                await self._connect_broker(link, route)
        except OSError:
            link.reset()
        finally:
            if link.client.transport is None:
                sock.close()

    async def _connect_broker(self, link: Link, route: Route) -> None:
        if route.broker_port:
            await self.loop.create_connection(
                lambda: link.broker, route.broker_host, route.broker_port
            )
        else:
            sock = connect_unix(Path(route.broker_host), _CONNECT_SECONDS)
            sock.setblocking(False)
            await self.loop.create_unix_connection(lambda: link.broker, sock=sock)

    async def _read_source(self, sock: socket.socket) -> tuple[str, bytes]:
        """Returns the broker that sends the first request, and the bytes that were read.

        Raises OSError if it is not a broker, and if the connection ends.
        """
        head = await self._read_exactly(sock, FIRST_REQUEST.size)
        client_id = await self._read_exactly(sock, max(0, FIRST_REQUEST.unpack(head)[-1]))
        source = source_of(client_id)
        if source is None:
            raise OSError(f"client id {client_id!r} is not that of a broker")
        return source, head + client_id

    async def _read_exactly(self, sock: socket.socket, size: int) -> bytes:
        received = b""
        while len(received) < size:
            data = await self.loop.sock_recv(sock, size - len(received))
            if not data:
                raise ConnectionResetError
            received += data
        return received


def _listen(route: Route) -> socket.socket:
    """Returns a socket that listens at the address for clients."""
    if not route.port:
        return listen_unix(Path(route.host))
    family = socket.AF_INET6 if ":" in route.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((route.host, route.port))
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
