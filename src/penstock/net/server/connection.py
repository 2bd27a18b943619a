"""One client's connection: requests in order, replies in the same order. No I/O.

Below is a `Transport`, which owns the socket, above the `Host`, which responds. The connection
decides whether the next request may be delivered; as long as it may not, nothing more is read:

    held        the host works on a request that later ones must not overtake
    throttled   the client is over its quota
    unanswered  `Limits.max_pipelined` requests wait for their replies
    unsent      the client does not read: more than `Limits.max_unsent` bytes wait in memory
    waiting     requests of the last receive are still to be delivered

Of those that wait at most `TURN_REQUESTS` are delivered before other connections get their turn.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from penstock.core.errors import ProtocolError
from penstock.net.framing import FrameMemory, FrameReader
from penstock.net.server.limits import Backlog, Limits
from penstock.net.server.send_queue import FileRange, Part, SendQueue

__all__ = ["Connection", "FileRange", "Host", "Part", "Peer", "PendingResponse", "Transport"]

TURN_REQUESTS: Final = 64
# Why nothing may be delivered whatever has been answered and sent.
_HELD: Final = 1
_THROTTLED: Final = 2
_ENDING: Final = 4
_CLOSED: Final = 8

_PROGRESS: Final = 4096
"""So many bytes at once are progress on a large request; a slow loris sends fewer."""


class Peer(NamedTuple):
    host: str
    """The client's address."""
    port: int
    listener: str
    tls_subject: str | None
    """The name in the client's certificate as RFC 2253 writes it, None without a certificate."""


class Transport(Protocol):
    """What a connection asks of whoever owns the socket."""

    def flush(self) -> None:
        """Send what is in the send_queue, as far as the peer takes it."""
        ...

    def resume(self) -> None:
        """Reading may go on."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None: ...

    def call_later(self, ms: int, callback: Callable[[], None]) -> None: ...

    def finish(self) -> None:
        """Everything was handed over for sending: end the stream, then `Connection.close`."""
        ...

    def abort(self) -> None:
        """Close the socket now."""
        ...


class Host(Protocol):
    """What a connection tells upwards. Exceptions of `received` close the connection."""

    @property
    def received(self) -> "Callable[[Connection, memoryview], None]": ...

    def failed(self, connection: "Connection", error: Exception) -> None:
        """`received` raised something that is no ProtocolError."""
        ...

    def closed(self, connection: "Connection", reason: str, expected: bool) -> None: ...


class PendingResponse:
    """The place of one reply in the order of replies. Exactly one of its methods is called once."""

    __slots__ = ("_connection", "parts")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.parts: Sequence[Part] | None = None

    def send(self, parts: Sequence[Part]) -> None:
        """Reply with these parts, as soon as all earlier requests have theirs.

        The parts are the caller's no longer and must not change. What may happen before this
        returns: the reply is sent, the connection closed, the next request delivered.
        """
        if self.parts is not None:
            raise RuntimeError("this request has been answered already")
        self.parts = parts
        self._connection._answered(self)

    def skip(self) -> None:
        """There is no reply to this request (acks=0)."""
        self.send(())


class Connection:
    """See the module. The host uses the public methods; `peer` and `session` are its to read."""

    __slots__ = (
        "_authenticated",
        "_backlog",
        "_delivering",
        "_ending",
        "_eof",
        "_flush_due",
        "_host",
        "_limits",
        "_pending",
        "_stops",
        "_throttles",
        "_transport",
        "_waiting",
        "active",
        "closed",
        "last_active_ms",
        "opened_ms",
        "peer",
        "reader",
        "send_queue",
        "session",
    )

    def __init__(
        self,
        peer: Peer,
        host: Host,
        limits: Limits,
        backlog: Backlog,
        memory: FrameMemory,
        now_ms: int,
    ) -> None:
        self.peer = peer
        self.session: object = None
        """The host's own state for this connection."""
        self.closed = False
        self.reader = FrameReader(memory, limits.max_frame_before_login)
        self.send_queue = SendQueue()
        self.active = False
        """Set by every request and every progress; the sweep for idle connections takes it back."""
        self.opened_ms = self.last_active_ms = now_ms
        self._host = host
        self._limits = limits
        self._backlog = backlog
        self._transport: Transport = _NO_TRANSPORT
        self._pending: deque[PendingResponse] = deque()
        self._waiting: deque[memoryview] = deque()
        self._stops = 0
        self._throttles = 0
        self._delivering = False
        self._flush_due = False
        self._authenticated = False
        self._eof = False
        self._ending: str | None = None

    def __repr__(self) -> str:
        host, port, listener, _ = self.peer
        return f"<Connection {host}:{port} on {listener}>"

    # For the host.

    def begin_response(self) -> PendingResponse:
        """The place of the reply to the request that is being received: once for each, in order."""
        response = PendingResponse(self)
        self._pending.append(response)
        return response

    def respond(self, parts: Sequence[Part]) -> None:
        """Is `begin_response().send(parts)`, without the object if no other response is pending.

        Saves 0.6 µs of the 8 µs of a small Produce.
        """
        if self._pending:
            self.begin_response().send(parts)
        elif not self.closed:
            self.send_queue.put(parts)
            if not self._delivering:
                self._flush()

    def hold(self) -> None:
        """Deliver no further request until `release`."""
        self._stops |= _HELD

    def release(self) -> None:
        self._stops &= ~_HELD
        self._go_on()

    def throttle(self, ms: int) -> None:
        """Deliver no request for that long (a quota is exceeded)."""
        if ms > 0 and not self.closed:
            self._throttles += 1
            self._stops |= _THROTTLED
            self._transport.call_later(ms, self._throttle_over)

    @property
    def authenticated(self) -> bool:
        """Set by the host: who has logged in may send larger requests and take its time."""
        return self._authenticated

    @authenticated.setter
    def authenticated(self, value: bool) -> None:
        self._authenticated = value
        limits = self._limits
        self.max_frame(limits.max_frame if value else limits.max_frame_before_login)

    def max_frame(self, size: int) -> None:
        """The largest request that is accepted from now on."""
        self.reader.max_size = size

    def close(self, reason: str, *, expected: bool = False) -> None:
        """At once, without the replies that are due. Does nothing when it is closed.

        What is `expected` is no more than a line for debugging.
        """
        if self.closed:
            return
        self.closed = True
        self._stops |= _CLOSED
        self._backlog.count -= len(self._waiting)
        self._waiting.clear()
        self._pending.clear()
        self.send_queue.clear()
        self.reader.release()
        self._transport.abort()
        self._host.closed(self, reason, expected)

    def close_after_replies(self, reason: str) -> None:
        """Deliver nothing more; close when every request that was delivered has its reply."""
        if self.closed or self._ending is not None:
            return
        self._ending = reason
        self._stops |= _ENDING
        self._backlog.count -= len(self._waiting)
        self._waiting.clear()
        if not self._pending and not self.send_queue.parts:
            self.close(reason, expected=True)

    # For the transport.

    def attach(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def unanswered(self) -> int:
        """Requests that were delivered and have no reply yet."""
        return len(self._pending)

    @property
    def waiting(self) -> int:
        """Requests that were received and not delivered."""
        return len(self._waiting)

    @property
    def ending(self) -> str | None:
        """Why the connection ends after the replies that are due, None if it does not."""
        return self._ending

    @property
    def wants_bytes(self) -> bool:
        """Whether the wire may read on."""
        if not (self._pending or self._waiting or self._stops or self.send_queue.parts):
            return True
        if self._waiting or not self._may_deliver():
            return False
        return not (self._pending and self._backlog.full)

    def received(self, count: int) -> None:
        """The wire put `count` bytes into `reader.buffer()`."""
        try:
            frames = self.reader.feed(count)
        except ProtocolError as error:
            self.close(error.message)
            return
        if frames:
            self.active = True
            if len(frames) == 1 and not (
                self._waiting or self._stops or self._pending or self.send_queue.parts
            ):
                self._deliver(frames[0])  # it need not wait
                return
            self._waiting.extend(frames)
            self._backlog.count += len(frames)
            self._deliver()
        elif count >= _PROGRESS:
            self.active = True

    def ended(self) -> None:
        """The peer sends nothing more. What it sent before is still delivered."""
        self._eof = True
        if not self._waiting:
            if self.reader.begun:
                self.close("the client closed the connection in the middle of a request")
            else:
                self.close("closed by the client", expected=True)

    def sent(self) -> None:
        """The wire sent something."""
        self.active = True
        if self._delivering:
            return
        if self._ending is not None:
            self._finish_if_done()
        else:
            self._go_on()

    # Its own.

    def _may_deliver(self) -> bool:
        if self._stops:
            return False
        send_queue = self.send_queue
        if not (self._pending or send_queue.parts):
            return True
        limits = self._limits
        return (
            send_queue.unsent <= limits.max_unsent
            and len(self._pending) < limits.max_pipelined
            and len(send_queue.parts) <= limits.max_pipelined
        )

    def _deliver(self, frame: memoryview | None = None) -> None:
        """Deliver `frame`, which may be, then what waits, as far as it may be.

        The replies made meanwhile leave together.
        """
        self._delivering = True
        waiting = self._waiting
        backlog = self._backlog
        received = self._host.received
        left = TURN_REQUESTS
        try:
            if frame is not None:
                received(self, frame)
            while waiting:
                if not self._may_deliver():
                    if not self.send_queue.parts:
                        break
                    self._transport.flush()
                    if not self._may_deliver():
                        break
                if not left:
                    self._transport.call_soon(self._go_on)
                    break
                left -= 1
                backlog.count -= 1
                received(self, waiting.popleft())
            if self.send_queue.parts:
                self._transport.flush()
        except ProtocolError as error:
            self.close(f"not a valid request: {error.message}")
        except Exception as error:  # noqa: BLE001  # whatever it is, it costs this connection only
            self._host.failed(self, error)
            self.close("an error in the broker, see its log")
        finally:
            self._delivering = False
        if self._ending is not None:
            self._finish_if_done()
        elif self._eof and not waiting:
            self.ended()

    def _go_on(self) -> None:
        """Something that kept requests back may be gone."""
        if self._delivering or self.closed:
            return
        if self._waiting and self._may_deliver():
            self._deliver()
        if self.wants_bytes:
            self._transport.resume()

    def _answered(self, response: PendingResponse) -> None:
        responses = self._pending
        if self.closed or responses[0] is not response:
            return
        while responses and (parts := responses[0].parts) is not None:
            self.send_queue.put(parts)
            responses.popleft()
        if self._delivering:
            return
        if not responses:
            self._flush()
        elif not self._flush_due:
            # Others are likely to be answered in the same turn: they leave together.
            self._flush_due = True
            self._transport.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self.closed:
            return
        if self.send_queue.parts:
            self._transport.flush()
        elif self._ending is not None:
            self._finish_if_done()
        else:
            self._go_on()

    def _finish_if_done(self) -> None:
        if not self._pending and not self.send_queue.parts and not self.closed:
            self._transport.finish()

    def _throttle_over(self) -> None:
        self._throttles -= 1
        if not self._throttles:
            self._stops &= ~_THROTTLED
            self._go_on()


class _NoTransport:
    """Before `attach` there is nothing to be asked for."""

    def flush(self) -> None: ...
    def resume(self) -> None: ...
    def call_soon(self, callback: Callable[[], None]) -> None: ...
    def call_later(self, ms: int, callback: Callable[[], None]) -> None: ...
    def finish(self) -> None: ...
    def abort(self) -> None: ...


_NO_TRANSPORT: Final = _NoTransport()
