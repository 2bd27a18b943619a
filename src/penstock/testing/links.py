"""The connections of a relay: two for each client, and what is passed between them."""

import asyncio
import socket
import struct
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING

from penstock.testing.cuts import Direction
from penstock.testing.frames import FrameGate

if TYPE_CHECKING:
    from penstock.testing.relay import Relay

_LINGER_ZERO = struct.pack("ii", 1, 0)
_API_KEY = struct.Struct(">h")
_REQUEST_HEAD = 8
"""API key, version, correlation id."""
_RESPONSE_HEAD = 4
"""Correlation id."""
_MAX_QUEUED_BYTES = 256 * 1024
_PIECES_PER_SECOND = 20


class End(Enum):
    """How a stream ends."""

    CLOSED = auto()
    RESET = auto()


class Link:
    """A client's connection together with the relay's connection to the broker."""

    def __init__(self, relay: "Relay", direction: Direction, *, readable: bool) -> None:
        """`direction` is that of requests."""
        self.relay = relay
        self.set_direction(direction)
        self.first_bytes = b""
        """What was read from the client before both ends had connected."""
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

    def set_direction(self, direction: Direction) -> None:
        """Sets the direction of requests."""
        self.direction = direction
        self._back = direction.reversed()

    def is_cut(self, *, is_request: bool) -> bool:
        return (self.direction if is_request else self._back) in self.relay.cuts

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
            if self.first_bytes:
                self._requests.feed(self.first_bytes)
            self.client.transport.resume_reading()

    def end_lost(self) -> None:
        """Handles that one end has closed."""
        self._lost_ends += 1
        if self._lost_ends == 2:
            self.relay.links.discard(self)

    def flush(self) -> None:
        """Delivers all delayed bytes now, except those that a cut holds back."""
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
        if sock.family != socket.AF_UNIX:
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
    """One direction of a link: applies the gate, and delays bytes if the network is slow or cut."""

    def __init__(
        self, link: Link, source: LinkEnd, target: LinkEnd, gate: FrameGate | None
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._is_request = source is link.client
        self._gate = gate
        self._queue: deque[tuple[float, bytes | End]] = deque()
        """Delivery times and bytes, and the end of the stream."""
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
        if self._queue or self._is_cut:
            time = self._queue[-1][0] if self._queue else 0.0
            self._queue.append((time, End.RESET if is_reset else End.CLOSED))
        else:
            self._end_target(End.RESET if is_reset else End.CLOSED)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._deliver(up_to=None)

    @property
    def _is_cut(self) -> bool:
        return self._link.is_cut(is_request=self._is_request)

    def _end_target(self, end: End) -> None:
        if end is End.RESET:
            self._target.reset()
        else:
            self._target.close()

    def _pass_on(self, data: bytes) -> None:
        relay = self._link.relay
        if not relay.faults.is_slow and not self._queue and not self._is_cut:
            self._target.write(data)
            return
        rate = relay.faults.bytes_per_second
        step = max(1, int(rate / _PIECES_PER_SECOND)) if rate > 0 else len(data)
        for position in range(0, len(data), step):
            piece = data[position : position + step]
            time = relay.delivery_time(len(piece), is_request=self._is_request)
            self._queue.append((time, piece))
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
        if self._is_cut:
            return  # `Relay.release` continues
        while self._queue and (up_to is None or self._queue[0][0] <= up_to):
            _, data = self._queue.popleft()
            if isinstance(data, End):
                self._end_target(data)
            else:
                self._queued_bytes -= len(data)
                self._target.write(data)
        if self._is_full and self._queued_bytes <= _MAX_QUEUED_BYTES // 2:
            self._is_full = False
            self._source.set_reading(True)
        if self._queue:
            self._start_timer()
