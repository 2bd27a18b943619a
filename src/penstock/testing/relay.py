"""A TCP relay between clients and a broker that injects faults: refusals, losses, latency.

It runs on the event loop that creates it; `relay_main` is its process.
"""

import asyncio
import socket
import struct
from collections import Counter, deque

from penstock.testing.addresses import Route
from penstock.testing.faults import Faults
from penstock.testing.frames import FrameGate

_LINGER_ZERO = struct.pack("ii", 1, 0)
_API_KEY = struct.Struct(">h")
_REQUEST_HEAD = 8
"""API key, version, correlation id."""
_RESPONSE_HEAD = 4
"""Correlation id."""
_MAX_QUEUED_BYTES = 256 * 1024
_PIECES_PER_SECOND = 20
_BACKLOG = 128


class Relay:
    """Passes on requests and responses, with the faults that are set.

    The first faults refuse connections: call `set` to open the listeners. Subclasses may override
    `passes_request` and `passes_response` to drop other frames.
    """

    def __init__(self, routes: list[Route]) -> None:
        self.faults = Faults(refuses=True)
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
        link = Link(self, route.readable)
        self.links.add(link)
        task = self.loop.create_task(self._connect(link, sock, route))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, link: "Link", sock: socket.socket, route: Route) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: link.client, sock)
            if not link.is_reset:
                await self.loop.create_connection(
                    lambda: link.broker, route.broker_host, route.broker_port
                )
        except OSError:
            link.reset()


class Link:
    """A client's connection together with the relay's connection to the broker."""

    def __init__(self, relay: Relay, readable: bool) -> None:
        self.relay = relay
        self.doomed: dict[bytes, int] = {}
        """The API keys, by correlation id, of requests whose responses may get lost."""
        self.is_mute = False
        """Whether a response was lost, and the connection stays open and silent."""
        self.is_reset = False
        """Whether an end that connects later must be reset as well."""
        self._lost_ends = 0
        self.client = LinkEnd(self)
        self.broker = LinkEnd(self)
        request_gate = FrameGate(_REQUEST_HEAD, self._passes_request) if readable else None
        response_gate = FrameGate(_RESPONSE_HEAD, self._passes_response) if readable else None
        self.client.pipe = self._requests = Pipe(self, self.client, self.broker, request_gate)
        self.broker.pipe = self._responses = Pipe(self, self.broker, self.client, response_gate)

    def end_connected(self) -> None:
        """Handles that one end has connected; requests flow once both have."""
        if self.is_reset:
            self.reset()
            return
        if self.client.transport is None or self.broker.transport is None:
            if self.client.transport is not None:
                self.client.transport.pause_reading()
            return
        if self.broker.transport.is_closing() or self.client.transport.is_closing():
            self.reset()
        else:
            self.client.transport.resume_reading()

    def end_lost(self) -> None:
        """Handles that one end has closed."""
        self._lost_ends += 1
        if self._lost_ends == 2:
            self.relay.links.discard(self)

    def flush(self) -> None:
        """Delivers all delayed bytes now."""
        self._requests.flush()
        self._responses.flush()

    def shut(self, pipe: "Pipe") -> None:
        """Handles a frame that may not pass: the connection goes silent or is reset."""
        if pipe is self._responses and self.relay.faults.loses_silently:
            self.is_mute = True
        else:
            self.relay.loop.call_soon(self.reset)  # earlier frames are written first

    def reset(self) -> None:
        self.is_reset = True
        self.relay.links.discard(self)
        for end in (self.client, self.broker):
            end.reset()

    def _passes_request(self, head: bytes) -> bool:
        if len(head) < _REQUEST_HEAD:
            return True
        return self.relay.passes_request(self, _API_KEY.unpack_from(head)[0], head[4:])

    def _passes_response(self, head: bytes) -> bool:
        return self.relay.passes_response(self, head)


class LinkEnd(asyncio.Protocol):
    """One of the two connections of a link."""

    pipe: "Pipe"
    """Takes what this end receives to the other end."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        # asyncio does not do it for sockets that were accepted without a protocol number.
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link.end_connected()

    def data_received(self, data: bytes) -> None:
        self.pipe.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.end_lost()
        self.pipe.end(is_reset=exc is not None)

    def pause_writing(self) -> None:
        self._set_other_reading(False)

    def resume_writing(self) -> None:
        self._set_other_reading(True)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Closes the connection after everything was written."""
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """Closes the connection at once, so that the peer sees an error instead of an end."""
        if self.transport is not None and not self.transport.is_closing():
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            self.transport.abort()

    def set_reading(self, enabled: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            if enabled:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _set_other_reading(self, enabled: bool) -> None:
        link = self._link
        (link.broker if self is link.client else link.client).set_reading(enabled)


class Pipe:
    """One direction of a link: applies the gate, and delays bytes if the network is slow."""

    def __init__(
        self, link: Link, source: LinkEnd, target: LinkEnd, gate: FrameGate | None
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._gate = gate
        self._queue: deque[tuple[float, bytes | None]] = deque()
        """Delivery times and bytes; None is the end of the stream."""
        self._queued_bytes = 0
        self._is_full = False
        """Whether so much is queued that the source is not read."""
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        """Handles bytes that the source has received."""
        gate = self._gate
        if gate is not None:
            if gate.is_shut:
                return
            data = gate.feed(data)
            if gate.is_shut:
                self._link.shut(self)
        if data:
            self._pass_on(data)

    def end(self, *, is_reset: bool) -> None:
        """Handles the end of the source: the target closes once it has received everything."""
        if self._gate is not None and (rest := self._gate.rest()):
            self._pass_on(rest)
        if is_reset:
            self._queue.clear()
            self._target.reset()
        elif self._queue:
            self._queue.append((self._queue[-1][0], None))
        else:
            self._target.close()

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._deliver(up_to=None)

    def _pass_on(self, data: bytes) -> None:
        relay = self._link.relay
        if not relay.faults.is_slow and not self._queue:
            self._target.write(data)
            return
        rate = relay.faults.bytes_per_second
        step = max(1, int(rate / _PIECES_PER_SECOND)) if rate > 0 else len(data)
        for position in range(0, len(data), step):
            piece = data[position : position + step]
            is_request = self._source is self._link.client
            self._queue.append((relay.delivery_time(len(piece), is_request=is_request), piece))
        self._queued_bytes += len(data)
        if self._queued_bytes > _MAX_QUEUED_BYTES and not self._is_full:
            self._is_full = True
            self._source.set_reading(False)
        if self._timer is None:
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self._link.relay.loop.call_at(self._queue[0][0], self._on_timer)

    def _on_timer(self) -> None:
        self._deliver(up_to=self._link.relay.loop.time())

    def _deliver(self, up_to: float | None) -> None:
        self._timer = None
        while self._queue and (up_to is None or self._queue[0][0] <= up_to):
            _, data = self._queue.popleft()
            if data is None:
                self._target.close()
            else:
                self._queued_bytes -= len(data)
                self._target.write(data)
        if self._is_full and self._queued_bytes <= _MAX_QUEUED_BYTES // 2:
            self._is_full = False
            self._source.set_reading(True)
        if self._queue:
            self._start_timer()
