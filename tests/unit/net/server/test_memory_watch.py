"""Connections that hold memory which others wait for are closed, and no others."""

import pytest

from penstock.core.memory_budget import MemoryBudget, MemoryKind
from penstock.net.framing import FrameMemory
from penstock.net.server.connection import Connection
from penstock.net.server.interfaces import Peer
from penstock.net.server.limits import Backlog, Limits
from penstock.net.server.memory_watch import MemoryWatch

MIB = 2**20
LARGE = 8 * MIB


class Server:
    """Connections that share a budget, and the time."""

    def __init__(self, total: int = 64 * MIB) -> None:
        self.limits = Limits()
        self.budget = MemoryBudget(total)
        self.watch = MemoryWatch(self.budget, self.limits)
        self.memory = FrameMemory()
        self.connections: list[Connection] = []
        self.reasons: dict[Connection, str] = {}
        self.now_ms = 0

    def connect(self) -> Connection:
        peer = Peer("127.0.0.1", 1, "TEST", None)
        backlog = Backlog(self.limits)
        connection = Connection(peer, self, self.limits, backlog, self.memory, 0, self.budget)
        connection.authenticated = True
        self.connections.append(connection)
        return connection

    def received(self, connection: Connection, frame: memoryview) -> None:
        connection.begin_response().skip()

    def failed(self, connection: Connection, error: Exception) -> None:
        raise error

    def closed(self, connection: Connection, reason: str, expected: bool) -> None:
        self.reasons[connection] = reason
        self.connections.remove(connection)

    def sweep(self, seconds: float = 1.0) -> None:
        self.now_ms += int(seconds * 1000)
        self.watch.sweep(list(self.connections), self.now_ms)


def send(connection: Connection, data: bytes) -> None:
    buffer = connection.reader.buffer()
    size = min(len(buffer), len(data))
    buffer[:size] = data[:size]
    del buffer
    connection.received(size)


def begin(connection: Connection, size: int = LARGE) -> None:
    send(connection, size.to_bytes(4, "big") + bytes(1000))


@pytest.fixture
def server() -> Server:
    return Server()


def test_stalled_senders_are_closed_only_while_others_wait(server: Server) -> None:
    senders = [server.connect() for _ in range(3)]
    for sender in senders:
        begin(sender)
    for _ in range(60):
        server.sweep()
    assert not server.reasons
    waiting = server.connect()
    begin(waiting)
    assert waiting.waits_for_memory
    server.sweep()
    assert set(server.reasons) == set(senders[:1])
    assert "too few while other requests wait" in server.reasons[senders[0]]
    assert waiting in server.connections


def test_a_sender_that_keeps_pace_is_not_closed(server: Server) -> None:
    senders = [server.connect() for _ in range(4)]
    for sender in senders:
        begin(sender)
    for _ in range(20):
        server.sweep()
        send(senders[0], bytes(16_000))
        for _ in range(20):
            if senders[0].reader.came < LARGE - 100_000:
                send(senders[0], bytes(16_000))
    assert senders[0] not in server.reasons
    assert {senders[1], senders[2]} & set(server.reasons)


def test_a_sender_that_stalls_at_the_end_is_closed(server: Server) -> None:
    """However fast it was before."""
    senders = [server.connect() for _ in range(3)]
    for sender in senders:
        begin(sender)
    server.sweep()
    for sender in senders:
        while sender.reader.came < LARGE - 100_000:
            send(sender, bytes(16_000))
    waiting = server.connect()
    begin(waiting)
    for _ in range(3):
        server.sweep()
    assert not server.reasons
    server.sweep()
    assert len(server.reasons) == 1


def test_a_request_that_waits_for_too_long_is_refused(server: Server) -> None:
    blocker = server.budget.reserve(server.budget.largest_request, MemoryKind.LARGE)
    waiting = server.connect()
    begin(waiting)
    server.sweep()
    server.sweep(server.limits.memory_wait_ms / 1000)
    assert not server.reasons
    server.sweep()
    assert "request.memory.max.bytes" in server.reasons[waiting]
    blocker.release()
    assert (server.budget.used, server.budget.waiting) == (0, 0)


def test_clients_that_do_not_read_are_closed_beyond_the_limit_of_responses(server: Server) -> None:
    readers = [server.connect() for _ in range(4)]
    for reader, size in zip(readers, (1, 2, 3, 2), strict=True):
        reader.send_queue.put([bytes(size * MIB)])
    readers[2].active = True
    server.sweep()
    assert set(server.reasons) == {readers[1], readers[3]}
    assert "does not read" in server.reasons[readers[1]]
    assert server.budget.response_bytes == 4 * MIB


def test_responses_that_wait_for_an_earlier_one_count(server: Server) -> None:
    connection = server.connect()
    first = connection.begin_response()
    connection.begin_response().send([bytes(MIB)])
    assert connection.unsent == MIB
    assert not connection.can_read
    first.send([b"x"])
    assert connection.unsent == MIB + 1
    assert connection.send_queue.unsent == MIB + 1


def test_requests_before_the_login_share_a_small_part(server: Server) -> None:
    strangers = [server.connect() for _ in range(40)]
    for stranger in strangers:
        stranger.authenticated = False
        begin(stranger, 400_000)
    assert server.budget.used == server.budget._used[MemoryKind.LOGIN]
    assert server.budget.used <= server.budget.total // 16
    client = server.connect()
    begin(client, 400_000)
    assert not client.waits_for_memory


def test_a_request_beyond_the_budget_is_refused_with_the_setting(server: Server) -> None:
    connection = server.connect()
    begin(connection, 50 * MIB)
    assert "request.memory.max.bytes=67108864" in server.reasons[connection]
