"""A way to a broker on which things go wrong when they are told to.

Nothing here knows of processes: a relay runs on the loop that starts it.
"""

import asyncio
import socket
import struct
from collections import Counter, deque

from penstock.testing.addresses import Route
from penstock.testing.faults import Faults
from penstock.testing.frames import FrameGate

_RESET = struct.pack("ii", 1, 0)
_KEY = struct.Struct(">h")
_REQUEST_HEAD = 8
"""API key, version, correlation id."""
_ANSWER_HEAD = 4
"""Correlation id."""
_QUEUED_BYTES = 256 * 1024
_PIECES_PER_SECOND = 20
_BACKLOG = 128


class Relay:
    """Passes on what clients ask and what the broker answers, as `faults` say.

    It begins with its listeners closed if its first faults refuse connections.
    """

    def __init__(self, routes: list[Route]) -> None:
        self.faults = Faults(refused=True)
        self.lost: Counter[int] = Counter()
        """Answers that did not arrive since losses were asked for, by the kind of request."""
        self.loop = asyncio.get_running_loop()
        self.links: set[Link] = set()
        self._routes = routes
        self._listeners: list[socket.socket] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._clear_at = {True: 0.0, False: 0.0}

    async def set(self, faults: Faults) -> None:
        """From now on these faults, and no others."""
        before, self.faults = self.faults, faults
        if faults.losing and not before.losing:
            self.lost.clear()
        if before.losing and not faults.losing:
            await self.cut(only_mute=True)
        if not faults.is_slow:
            for link in tuple(self.links):
                link.hurry()
        if faults.refused and not before.refused:
            self._close_listeners()
            await self.cut()
        if before.refused and not faults.refused:
            self._open_listeners()

    async def cut(self, *, only_mute: bool = False) -> None:
        """Resets every connection; or those only that have lost an answer and wait for it."""
        for link in tuple(self.links):
            if link.is_mute or not only_mute:
                link.reset()
        await asyncio.sleep(0)  # transports close their sockets in the next turn of the loop

    async def close(self) -> None:
        self._close_listeners()
        await self.cut()
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def request_passes(self, link: "Link", api: int, correlation: bytes) -> bool:
        """Whether the broker gets this request; where not, the connection is reset."""
        faults = self.faults
        if faults.losing and (not faults.lost_apis or api in faults.lost_apis):
            link.doomed[correlation] = api
        return True

    def answer_passes(self, link: "Link", correlation: bytes) -> bool:
        """Whether the client gets this answer; where not, `Link.shut` says what it gets."""
        api = link.doomed.pop(correlation, None)
        faults = self.faults
        if api is None or not faults.losing or 0 <= faults.lost_times <= self.lost[api]:
            return True
        self.lost[api] += 1
        return False

    def delivery(self, size: int, *, is_request: bool) -> float:
        """When so many bytes arrive that leave now: the network is shared by all."""
        faults = self.faults
        at = self.loop.time() + faults.latency_ms / 2000
        if faults.bytes_per_second > 0:
            at = max(at, self._clear_at[is_request]) + size / faults.bytes_per_second
            self._clear_at[is_request] = at
        return at

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
        # Not by asyncio's server: a connection that it has accepted when it is closed stays open,
        # and belongs to nobody, until the garbage is collected.
        try:
            sock, _ = listener.accept()
        except OSError:  # the client has gone, or another turn of the loop has better luck
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
    """A client's connection, and the one to the broker that goes with it."""

    def __init__(self, relay: Relay, readable: bool) -> None:
        self.relay = relay
        self.doomed: dict[bytes, int] = {}
        """Requests whose answers may get lost: their kinds by their correlation ids."""
        self.is_mute = False
        self.is_reset = False
        """What comes of it later, one end or the other, is reset as well."""
        self._lost_ends = 0
        self.client = End(self)
        self.broker = End(self)
        requests = FrameGate(_REQUEST_HEAD, self._request_passes) if readable else None
        answers = FrameGate(_ANSWER_HEAD, self._answer_passes) if readable else None
        self.client.way = self._requests = Way(self, self.client, self.broker, requests)
        self.broker.way = self._answers = Way(self, self.broker, self.client, answers)

    def connected(self) -> None:
        """One of the two ends is there; requests flow once both are."""
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

    def lost_end(self) -> None:
        self._lost_ends += 1
        if self._lost_ends == 2:
            self.relay.links.discard(self)

    def hurry(self) -> None:
        """What is on its way arrives now."""
        self._requests.hurry()
        self._answers.hurry()

    def shut(self, way: "Way") -> None:
        """A frame did not pass: no more comes, by silence or by a reset."""
        if way is self._answers and self.relay.faults.lost_silently:
            self.is_mute = True
        else:
            self.relay.loop.call_soon(self.reset)  # what came before it is written first

    def reset(self) -> None:
        self.is_reset = True
        self.relay.links.discard(self)
        for end in (self.client, self.broker):
            end.reset()

    def _request_passes(self, head: bytes) -> bool:
        if len(head) < _REQUEST_HEAD:
            return True
        return self.relay.request_passes(self, _KEY.unpack_from(head)[0], head[4:])

    def _answer_passes(self, head: bytes) -> bool:
        return self.relay.answer_passes(self, head)


class End(asyncio.Protocol):
    """One of the two connections of a link."""

    way: "Way"

    def __init__(self, link: Link) -> None:
        self._link = link
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        # asyncio does so itself, but not for what a socket without a protocol number accepts.
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link.connected()

    def data_received(self, data: bytes) -> None:
        self.way.take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lost_end()
        self.way.end(is_reset=exc is not None)

    def pause_writing(self) -> None:
        self._other_reads(False)

    def resume_writing(self) -> None:
        self._other_reads(True)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """After what was written."""
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """At once, and the peer sees an error rather than an end."""
        if self.transport is not None and not self.transport.is_closing():
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()

    def read(self, wanted: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def _other_reads(self, wanted: bool) -> None:
        link = self._link
        (link.broker if self is link.client else link.client).read(wanted)


class Way:
    """From one end of a link to the other: through the gate, and slowly if that is asked for."""

    def __init__(self, link: Link, source: End, target: End, gate: FrameGate | None) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._gate = gate
        self._queue: deque[tuple[float, bytes | None]] = deque()
        """What arrives when; None is the end of the stream."""
        self._queued = 0
        self._is_full = False
        """So full that nothing more is read."""
        self._timer: asyncio.TimerHandle | None = None

    def take(self, data: bytes) -> None:
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
        """The source is gone, and so will the target be once it has everything."""
        if self._gate is not None and (rest := self._gate.rest()):
            self._pass_on(rest)
        if is_reset:
            self._queue.clear()
            self._target.reset()
        elif self._queue:
            self._queue.append((self._queue[-1][0], None))
        else:
            self._target.close()

    def hurry(self) -> None:
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
            due = relay.delivery(len(piece), is_request=self._source is self._link.client)
            self._queue.append((due, piece))
        self._queued += len(data)
        if self._queued > _QUEUED_BYTES and not self._is_full:
            self._is_full = True
            self._source.read(False)
        if self._timer is None:
            self._wait()

    def _wait(self) -> None:
        self._timer = self._link.relay.loop.call_at(self._queue[0][0], self._on_time)

    def _on_time(self) -> None:
        self._deliver(up_to=self._link.relay.loop.time())

    def _deliver(self, up_to: float | None) -> None:
        self._timer = None
        while self._queue and (up_to is None or self._queue[0][0] <= up_to):
            _, data = self._queue.popleft()
            if data is None:
                self._target.close()
            else:
                self._queued -= len(data)
                self._target.write(data)
        if self._is_full and self._queued <= _QUEUED_BYTES // 2:
            self._is_full = False
            self._source.read(True)
        if self._queue:
            self._wait()
