"""Random histories of a connection: no request is lost, duplicated or reordered."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.memory_budget import MemoryBudget
from penstock.net.framing import SCRATCH_SIZE, FrameMemory
from penstock.net.server.connection import Connection, PendingResponse
from penstock.net.server.interfaces import Peer
from penstock.net.server.limits import Backlog, Limits
from tests.support.broker.net_server import framed

MIB = 2**20


class Simulation:
    """A connection, a peer whose bytes wait in a socket, and a slow host.

    The wire works like the real one: a socket with bytes is read once in each loop iteration; when
    the connection does not read, it waits for `resume`.
    """

    def __init__(
        self,
        requests: list[bytes],
        limits: Limits,
        memory: FrameMemory | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self.socket = b"".join(map(framed, requests))
        self.reading = True
        self.window = 0
        self.writing = False
        self.sent = b""
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        self.delivered: list[bytes] = []
        self.open: list[tuple[PendingResponse, bytes]] = []
        self.plan: list[str] = []
        self.holds = 0
        self.reasons: list[str] = []
        self.limits = limits
        self.backlog = Backlog(limits)
        peer = Peer("127.0.0.1", 1, "TEST", None)
        self.connection = Connection(
            peer, self, limits, self.backlog, memory or FrameMemory(), 0, budget
        )
        self.connection.authenticated = True
        self.connection.attach(self)

    # --- the wire

    def flush(self) -> None:
        if not self.writing:
            self.write()

    def write(self) -> None:
        send_queue = self.connection.send_queue
        while send_queue.parts:
            data = b"".join(send_queue.buffers()[0])[: self.window]
            if not data:
                self.writing = True
                return
            self.window -= len(data)
            self.sent += data
            send_queue.sent(len(data))
        self.writing = False
        self.connection.sent()

    def resume(self) -> None:
        self.reading = True

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, ms: int, callback: Callable[[], None]) -> None:
        self.timers.append(callback)

    def finish(self) -> None:
        self.connection.close("finished", expected=True)

    def has_peer_closed(self) -> bool:
        return False

    def abort(self) -> None:
        self.reading = self.writing = False

    # --- the host

    def received(self, connection: Connection, frame: memoryview) -> None:
        self.delivered.append(bytes(frame))
        response = connection.begin_response()
        action = self.plan.pop() if self.plan else "respond"
        if action == "hold":
            self.holds += 1
            connection.hold()
        if action == "throttle":
            connection.throttle(5)
        if action == "respond":
            response.send([framed(bytes(frame))])
        else:
            self.open.append((response, bytes(frame)))

    def failed(self, connection: Connection, error: Exception) -> None:
        raise error

    def closed(self, connection: Connection, reason: str, expected: bool) -> None:
        self.reasons.append(reason)

    # --- steps

    def run_once(self, size: int) -> None:
        """Runs one iteration of the event loop, which receives up to `size` bytes."""
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()
        if self.writing and self.window:
            self.write()
        if not (self.reading and self.socket):
            return
        if not self.connection.can_read:
            self.reading = False
            return
        buffer = self.connection.reader.buffer()
        size = min(size, len(self.socket), len(buffer))
        buffer[:size] = self.socket[:size]
        del buffer
        self.socket = self.socket[size:]
        self.connection.received(size)

    def respond(self, index: int) -> None:
        if self.open:
            response, frame = self.open.pop(index % len(self.open))
            response.send([framed(frame)[:3], framed(frame)[3:]])

    def release(self) -> None:
        while self.holds:
            self.holds -= 1
            self.connection.release()

    def time(self) -> None:
        callbacks, self.timers = self.timers, []
        for callback in callbacks:
            callback()


steps = st.one_of(
    st.tuples(st.just("run"), st.sampled_from([1, 7, 100, 5_000, 100_000])),
    st.tuples(st.just("take"), st.sampled_from([1, 50, 3_000, 100_000])),
    st.tuples(st.just("respond"), st.integers(0, 100)),
    st.tuples(st.just("release"), st.just(0)),
    st.tuples(st.just("time"), st.just(0)),
)


@settings(max_examples=300)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 30, 700, 17_000, 40_000]), max_size=120),
    plan=st.lists(st.sampled_from(["respond", "later", "hold", "throttle"]), max_size=40),
    history=st.lists(steps, max_size=60),
    pipelined=st.sampled_from([1, 3, 1000]),
    unsent=st.sampled_from([0, 1000, 65_536]),
    queued=st.sampled_from([1, 500]),
)
def test_every_request_is_delivered_and_gets_its_response_in_order(
    sizes: list[int],
    plan: list[str],
    history: list[tuple[str, int]],
    pipelined: int,
    unsent: int,
    queued: int,
) -> None:
    """A connection that was stopped continues when the reason ends, without further input."""
    requests = [b"%d:" % number + bytes(size) for number, size in enumerate(sizes)]
    simulation = Simulation(
        requests, Limits(max_pipelined=pipelined, max_unsent=unsent, queued_max_requests=queued)
    )
    simulation.plan = plan
    for name, value in history:
        if name == "run":
            simulation.run_once(value)
        elif name == "take":
            simulation.window += value
        elif name == "respond":
            simulation.respond(value)
        elif name == "release":
            simulation.release()
        else:
            simulation.time()
        assert simulation.connection.in_flight <= pipelined
        assert simulation.connection.send_queue.unsent <= unsent + pipelined * 40_100
    simulation.plan = []
    simulation.window = 2**40
    simulation.release()
    for _ in range(10_000):
        if len(simulation.sent) == sum(map(len, map(framed, requests))):
            break
        simulation.run_once(100_000)
        simulation.time()
        while simulation.open:
            simulation.respond(0)
    assert simulation.delivered == requests
    assert simulation.sent == b"".join(map(framed, requests))
    assert (simulation.backlog.count, simulation.connection.queued, simulation.reasons) == (
        0,
        0,
        [],
    )


@settings(max_examples=150)
@given(
    sizes=st.lists(st.sampled_from([10, 17_000, 70_000, 300_000]), min_size=1, max_size=12),
    plan=st.lists(st.sampled_from(["respond", "later", "hold"]), max_size=20),
    history=st.lists(
        st.tuples(st.integers(0, 3), st.one_of(steps, st.just(("close", 0)))), max_size=120
    ),
)
def test_connections_that_share_little_memory_wait_for_each_other(
    sizes: list[int], plan: list[str], history: list[tuple[int, tuple[str, int]]]
) -> None:
    """Requests wait for memory, none is lost, and all memory is returned at the end."""
    requests = [b"%d:" % number + bytes(size) for number, size in enumerate(sizes)]
    memory = FrameMemory()
    budget = MemoryBudget(MIB, on_pressure=memory.set_pressure)
    simulations = [Simulation(requests, Limits(), memory, budget) for _ in range(4)]
    for simulation in simulations:
        simulation.plan = list(plan)
    for index, (name, value) in history:
        simulation = simulations[index]
        if simulation.connection.closed:
            continue
        if name == "run":
            simulation.run_once(value)
        elif name == "take":
            simulation.window += value
        elif name == "respond":
            simulation.respond(value)
        elif name == "release":
            simulation.release()
        elif name == "close":
            simulation.connection.close("closed by the test")
        assert budget.used <= MIB + len(simulations) * SCRATCH_SIZE
    for _ in range(2_000):
        for simulation in simulations:
            simulation.window = 2**40
            simulation.plan = []
            while simulation.open:
                simulation.respond(0)
            if not simulation.connection.closed:
                simulation.release()
                simulation.run_once(100_000)
    for simulation in simulations:
        if not simulation.connection.closed:
            assert simulation.delivered == requests
            assert simulation.sent == b"".join(map(framed, requests))
            simulation.connection.close("closed by the test")
    assert (budget.used, budget.waiting) == (0, 0)
