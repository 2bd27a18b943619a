"""A connection without a socket: delivery, the order of responses, back-pressure, endings."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ProtocolError
from penstock.net.framing import FrameMemory
from penstock.net.server.connection import MAX_REQUESTS_PER_TURN, Connection, PendingResponse
from penstock.net.server.interfaces import Peer
from penstock.net.server.limits import Backlog, Limits
from tests.support.broker.net_server import framed


class FakeWire:
    """Sends into memory as many bytes as the peer accepts."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sent = b""
        self.sends = 0
        self.writable_bytes = 2**60
        self.soon: list[Callable[[], None]] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.resumed = 0
        self.finished = self.aborted = False
        connection.attach(self)

    def flush(self) -> None:
        send_queue = self.connection.send_queue
        while send_queue.parts and self.writable_bytes:
            data = b"".join(send_queue.buffers()[0])[: self.writable_bytes]
            self.writable_bytes -= len(data)
            self.sent += data
            self.sends += 1
            send_queue.sent(len(data))
        if not send_queue.parts:
            self.connection.sent()

    def resume(self) -> None:
        self.resumed += 1

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, ms: int, callback: Callable[[], None]) -> None:
        self.timers.append((ms, callback))

    def finish(self) -> None:
        self.finished = True

    def has_peer_closed(self) -> bool:
        return False

    def abort(self) -> None:
        self.aborted = True

    def run_once(self) -> None:
        """Runs one iteration of the event loop."""
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()

    def receive(self, *payloads: bytes) -> None:
        data = b"".join(map(framed, payloads))
        while data:
            buffer = self.connection.reader.buffer()
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            del buffer
            self.connection.received(size)
            data = data[size:]


class FakeHost:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.responses: list[PendingResponse] = []
        self.errors: list[Exception] = []
        self.reasons: list[tuple[str, bool]] = []
        self.on_frame: Callable[[Connection, PendingResponse], None] = lambda *_: None

    def received(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        response = connection.begin_response()
        self.responses.append(response)
        self.on_frame(connection, response)

    def failed(self, connection: Connection, error: Exception) -> None:
        self.errors.append(error)

    def closed(self, connection: Connection, reason: str, expected: bool) -> None:
        self.reasons.append((reason, expected))


def connect(limits: Limits | None = None) -> tuple[Connection, FakeWire, FakeHost, Backlog]:
    limits = limits or Limits()
    host = FakeHost()
    backlog = Backlog(limits)
    peer = Peer("127.0.0.1", 1, "TEST", None)
    connection = Connection(peer, host, limits, backlog, FrameMemory(), 0)
    return connection, FakeWire(connection), host, backlog


def numbers(count: int) -> list[bytes]:
    return [b"%d," % number for number in range(count)]


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
def test_responses_are_sent_in_the_order_of_requests(order: list[int], skipped: set[int]) -> None:
    """In whatever order they are completed, and whichever requests have no response."""
    connection, transport, host, _ = connect()
    requests = numbers(12)
    transport.receive(*requests)
    for number in order:
        if number in skipped:
            host.responses[number].skip()
        else:
            host.responses[number].send([b"response ", requests[number]])
        transport.run_once()
    assert transport.sent == b"".join(
        b"response " + request for number, request in enumerate(requests) if number not in skipped
    )
    assert connection.in_flight == 0


def test_immediate_responses_are_sent_together() -> None:
    _, transport, host, _ = connect()
    host.on_frame = lambda connection, response: response.send([b"x"])
    transport.receive(*numbers(10))
    assert (transport.sent, transport.sends) == (b"x" * 10, 1)


def test_responses_completed_in_one_loop_iteration_are_sent_together() -> None:
    _, transport, host, _ = connect()
    transport.receive(*numbers(4))
    for response in host.responses[:3]:
        response.send([b"x"])
    assert transport.sends == 0
    transport.run_once()
    assert (transport.sent, transport.sends) == (b"xxx", 1)


def test_the_last_pending_response_is_sent_immediately() -> None:
    _, transport, host, _ = connect()
    transport.receive(b"a")
    host.responses[0].send([b"x"])
    assert transport.sent == b"x"


def test_a_request_has_only_one_response() -> None:
    _, transport, host, _ = connect()
    transport.receive(b"a")
    host.responses[0].send([b"x"])
    with pytest.raises(RuntimeError, match="response already"):
        host.responses[0].skip()


def test_a_held_connection_delivers_no_requests_until_it_is_released() -> None:
    connection, transport, host, backlog = connect()
    host.on_frame = lambda connection, response: connection.hold()
    transport.receive(b"a", b"b", b"c")
    assert host.frames == [b"a"]
    assert (connection.queued, backlog.count, connection.can_read) == (2, 2, False)
    host.responses[0].send([b"x"])
    assert (host.frames, transport.sent) == ([b"a"], b"x")
    connection.release()
    assert host.frames == [b"a", b"b"]
    host.on_frame = lambda connection, response: None
    connection.release()
    assert (host.frames, backlog.count, connection.can_read) == ([b"a", b"b", b"c"], 0, True)
    assert transport.resumed == 1


def test_a_throttled_connection_waits_for_all_of_its_throttles() -> None:
    """X4: a client over its quota is not read from during the throttle time of its response."""
    connection, transport, host, _ = connect()
    connection.throttle(0)
    assert connection.can_read
    connection.throttle(100)
    connection.throttle(300)
    transport.receive(b"a")
    assert [ms for ms, _ in transport.timers] == [100, 300]
    transport.timers[0][1]()
    assert host.frames == []
    transport.timers[1][1]()
    assert host.frames == [b"a"]


def test_the_number_of_requests_without_a_response_is_limited() -> None:
    connection, transport, host, _ = connect(Limits(max_pipelined=3))
    transport.receive(*numbers(5))
    assert (len(host.frames), connection.can_read) == (3, False)
    host.responses[0].send([b"x"])
    transport.run_once()
    assert len(host.frames) == 4
    host.responses[1].skip()
    transport.run_once()
    assert len(host.frames) == 5


def test_no_more_requests_are_delivered_for_a_peer_that_does_not_read() -> None:
    connection, transport, host, _ = connect(Limits(max_unsent=1000))
    host.on_frame = lambda connection, response: response.send([bytes(400)])
    transport.writable_bytes = 0
    transport.receive(*numbers(10))
    assert len(host.frames) == 3
    assert (connection.send_queue.unsent, connection.can_read) == (1200, False)
    transport.writable_bytes = 2**60
    transport.flush()
    assert (len(host.frames), len(transport.sent)) == (10, 4000)
    assert connection.can_read


def test_other_connections_are_served_between_pipelined_requests() -> None:
    _, transport, host, _ = connect()
    host.on_frame = lambda connection, response: response.skip()
    transport.receive(*numbers(2 * MAX_REQUESTS_PER_TURN + 1))
    counts = [len(host.frames)]
    while transport.soon:
        transport.run_once()
        counts.append(len(host.frames))
    assert counts == [
        MAX_REQUESTS_PER_TURN,
        2 * MAX_REQUESTS_PER_TURN,
        2 * MAX_REQUESTS_PER_TURN + 1,
    ]


def test_no_connection_pipelines_while_too_many_requests_wait() -> None:
    """`queued.max.requests`: one request of each connection always gets through."""
    connection, transport, host, backlog = connect(Limits(queued_max_requests=5))
    backlog.count = 5
    assert connection.can_read
    transport.receive(b"a")
    assert (host.frames, connection.can_read) == ([b"a"], False)
    host.responses[0].send([b"x"])
    assert connection.can_read


@pytest.mark.parametrize("error", [ProtocolError("bad bytes"), ValueError("a bug")])
def test_an_error_closes_the_connection(error: Exception) -> None:
    connection, transport, host, backlog = connect()

    def fail(connection: Connection, response: PendingResponse) -> None:
        raise error

    host.on_frame = fail
    transport.receive(b"a", b"b")
    assert (connection.closed, transport.aborted, host.frames, backlog.count) == (
        True,
        True,
        [b"a"],
        0,
    )
    assert host.errors == ([] if isinstance(error, ProtocolError) else [error])
    assert len(host.reasons) == 1
    host.responses[0].send([b"too late"])
    assert transport.sent == b""


def test_a_second_close_is_not_reported() -> None:
    connection, _, host, _ = connect()
    connection.close("first")
    connection.close("second")
    connection.close_after_responses("third")
    assert host.reasons == [("first", False)]


@pytest.mark.parametrize("early", [True, False])
def test_close_after_responses_waits_for_pending_responses(early: bool) -> None:
    connection, transport, host, _ = connect()
    transport.receive(b"a", b"b")
    host.responses[1].send([b"2"])
    if early:
        connection.close_after_responses("enough")
        transport.receive(b"c")
        host.responses[0].send([b"1"])
    else:
        transport.writable_bytes = 0
        host.responses[0].send([b"1"])
        connection.close_after_responses("enough")
        assert not transport.finished
        transport.writable_bytes = 100
        transport.flush()
    assert (transport.sent, transport.finished, len(host.frames)) == (b"12", True, 2)


@pytest.mark.parametrize("parts", [[b"bye"], []])
def test_close_after_responses_includes_an_immediate_response(parts: list[bytes]) -> None:
    _, transport, host, _ = connect()

    def refuse(connection: Connection, response: PendingResponse) -> None:
        connection.close_after_responses("refused")
        response.send(parts)

    host.on_frame = refuse
    transport.receive(b"a", b"b")
    assert (transport.sent, transport.finished, host.frames) == (b"".join(parts), True, [b"a"])


def test_requests_sent_before_the_end_of_the_stream_are_delivered() -> None:
    """A producer with acks=0 that hangs up: its requests wait here, not in the socket."""
    connection, transport, host, _ = connect()
    host.on_frame = lambda connection, response: connection.hold()
    transport.receive(b"a", b"b")
    connection.on_eof()
    assert not connection.closed
    connection.release()
    assert (host.frames, host.reasons) == ([b"a", b"b"], [("closed by the client", True)])


def test_an_end_of_the_stream_within_a_request_is_reported() -> None:
    connection, _, host, _ = connect()
    connection.reader.buffer()[:6] = b"\0\0\0\x09ab"
    connection.received(6)
    connection.on_eof()
    assert host.reasons == [("the client closed the connection in the middle of a request", False)]


def test_authenticated_clients_may_send_larger_requests() -> None:
    connection, transport, host, _ = connect(Limits(max_frame=100, max_frame_before_login=10))
    connection.authenticated = True
    transport.receive(bytes(100))
    assert len(host.frames) == 1
    connection.max_frame(200)
    transport.receive(bytes(200))
    connection.authenticated = False
    transport.receive(bytes(11))
    assert (len(host.frames), connection.closed) == (2, True)


def test_only_complete_requests_count_as_activity() -> None:
    connection, _, _, _ = connect()
    for byte in b"\0\0\0\x09abcdefgh":
        connection.reader.buffer()[0] = byte
        connection.received(1)
        assert not connection.active
    connection.reader.buffer()[0] = 0
    connection.received(1)
    assert connection.active


def test_respond_sends_after_earlier_responses() -> None:
    _, transport, host, _ = connect()
    transport.receive(b"first")
    connection = transport.connection
    connection.respond([b"second"])
    assert transport.sent == b""  # the first request has no response yet
    host.responses[0].send([b"first,"])
    transport.run_once()
    connection.respond([b",third"])
    assert transport.sent == b"first,second,third"


@pytest.mark.parametrize("size", [100, 5_000_000])
def test_a_closed_connection_releases_a_partial_request(size: int) -> None:
    """A peer that disconnects in the middle of a large request leaves no memory allocated."""
    connection, transport, _, _ = connect(Limits(max_frame_before_login=10_000_000))
    data = (size * 2).to_bytes(4, "big") + bytes(size)
    while data:
        buffer = connection.reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        del buffer
        connection.received(count)
        data = data[count:]
    assert connection.reader.allocated >= size
    connection.close("closed by the client", expected=True)
    assert connection.reader.allocated == 0
    assert transport.aborted
