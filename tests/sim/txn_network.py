"""The simulated network: connections that preserve order, delay messages, and break.

As with TCP nothing comes twice or out of order on one connection; what clients repeat on the next
one does. A request may still be on its way when its client has given up the connection: it arrives
late, unless the client is of a generation that cannot bear that (see `Connection`).
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

from penstock.broker.errors import error_response
from penstock.broker.handlers.table import HANDLERS
from penstock.broker.request import HandlerResult, Request, Session, WaitingResponse
from penstock.controller.metadata import SecurityProtocol
from penstock.core.errors import KafkaError
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Message
from penstock.protocol.messages.fetch import FetchResponse
from penstock.storage.segment.log_segment import LogSlice
from tests.sim.txn_broker import SimBroker
from tests.sim.txn_loop import Incarnation, SimLoop

R = TypeVar("R", bound=Message)
_APART = 1e-6
"""Seconds between two messages of a connection, so that they keep their order."""


class Network:
    """The current server, and the delays and faults of connections."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.loss = 0.0
        """The probability that a connection breaks at a request or a response."""
        self.max_delay_ms = 5
        self.server: Server | None = None

    def breaks(self) -> bool:
        return self.loss > 0 and self.random.random() < self.loss

    def delay(self) -> float:
        """Returns a delay in seconds; most are short."""
        return self.random.randrange(1, 1 + self.random.randrange(1, self.max_delay_ms)) / 1000


class Server:
    """A running broker."""

    def __init__(self, broker: SimBroker, incarnation: Incarnation) -> None:
        self.broker = broker
        self.incarnation = incarnation
        self.ends: dict[Connection, ServerEnd] = {}


class Connection:
    """A client's end. Give it up after a `TimeoutError` or `ConnectionError`, with `close`.

    Without `late` nothing arrives any more that had not arrived by then. Producers of transaction
    version 1 need that: the end of one transaction that comes late ends the next one, which has the
    same epoch. That is what version 2 is for (KIP-890), and the same in Kafka.
    """

    def __init__(self, network: Network, client_id: str, *, late: bool) -> None:
        self._network = network
        self._loop = network.loop
        self.client_id = client_id
        self._late = late
        self._closed = False
        self._broken = False
        self._there = 0.0
        self._back = 0.0
        self._waiting: deque[asyncio.Future[Message]] = deque()
        self._server: Server | None = None
        """The server that it connected to."""

    def close(self) -> None:
        self._closed = True

    async def request(
        self, request: Message, version: int, response_type: type[R], timeout_ms: int
    ) -> R:
        """Returns the response. After TimeoutError or ConnectionError it may have been served."""
        waiting: asyncio.Future[Message] = self._loop.create_future()
        self._waiting.append(waiting)
        timer = self._loop.call_later(timeout_ms / 1000, self._time_out, waiting)
        self._send(encode(request, version), request, version)
        try:
            response = await waiting
        finally:
            timer.cancel()
        assert isinstance(response, response_type)
        return response

    def _time_out(self, waiting: "asyncio.Future[Message]") -> None:
        if not waiting.done():
            waiting.set_exception(TimeoutError())

    def _send(self, data: bytes, request: Message, version: int) -> None:
        network = self._network
        if self._broken or network.breaks():
            self.reset()
            return
        self._there = max(self._there + _APART, self._loop.time() + network.delay())
        kind = type(request)
        self._loop.call_at(
            self._there,
            lambda: self._arrive(bytearray(data), kind, version),
            context=self._loop.outside,
        )

    def _arrive(self, data: bytearray, kind: type[Message], version: int) -> None:
        if self._broken or (self._closed and not self._late):
            return
        server = self._network.server
        if self._server is None:
            self._server = server
        if server is None or server is not self._server:
            self.reset()
            return
        end = server.ends.get(self)
        if end is None:
            end = server.ends[self] = ServerEnd(self, server)
        body, _ = decode(kind, version, data)
        self._loop.call_soon(end.received, body, version, context=server.incarnation.context)

    def responded(self, response: Message, version: int) -> None:
        """Transmits a response of the broker to the client."""
        network = self._network
        if self._broken or network.breaks():
            self.reset()
            return
        data = encode(response, version)
        kind = type(response)
        self._back = max(self._back + _APART, self._loop.time() + network.delay())
        self._loop.call_at(
            self._back, lambda: self._deliver(data, kind, version), context=self._loop.outside
        )

    def _deliver(self, data: bytes, kind: type[Message], version: int) -> None:
        if self._closed or self._broken:
            return
        waiting = self._waiting.popleft()
        if not waiting.done():
            waiting.set_result(decode(kind, version, data)[0])

    def reset(self) -> None:
        """Breaks the connection: the client detects it soon, or only by its timeout."""
        self._broken = True
        if self._network.random.random() < 0.5:
            delay = self._network.delay()
            self._loop.call_later(delay, self._noticed, context=self._loop.outside)

    def _noticed(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(ConnectionResetError())


class Slot:
    """The position of a response among those of its connection."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.response: Message | None = None


class ServerEnd:
    """The broker's end of a connection: it serves requests in order, one at a time."""

    def __init__(self, connection: Connection, server: Server) -> None:
        self._connection = connection
        self._broker = server.broker.broker
        self._loop = connection._loop
        self._queue: deque[tuple[Message, int]] = deque()
        self._slots: deque[Slot] = deque()
        self._held = False
        self._session = Session(
            "PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", "sim", lambda reason: None
        )

    def received(self, body: Message, version: int) -> None:
        self._queue.append((body, version))
        self._serve()

    def _serve(self) -> None:
        while self._queue and not self._held:
            body, version = self._queue.popleft()
            number = type(body).INFO.key
            assert number is not None
            key = ApiKey(number)
            client_id = self._connection.client_id
            request = Request(self._session, key, version, 0, client_id, 100)
            slot = Slot(version)
            self._slots.append(slot)
            response: HandlerResult | None
            try:
                response = HANDLERS[key].bind(self._broker)(request, body)
            except KafkaError as error:
                response = error_response(key, version, error)
            self._take(response, slot)

    def _take(self, response: HandlerResult | None, slot: "Slot") -> None:
        if isinstance(response, Message):
            slot.response = _with_bytes(response)
            while self._slots and (ready := self._slots[0].response) is not None:
                self._connection.responded(ready, self._slots.popleft().version)
        elif isinstance(response, asyncio.Future):
            response.add_done_callback(lambda done: self._take(done.result(), slot))
        elif isinstance(response, WaitingResponse):
            response.deliver_to(lambda message: self._take(message, slot))
        else:
            assert isinstance(response, Coroutine)
            self._held = True
            task: asyncio.Task[Any] = self._loop.create_task(response)
            task.add_done_callback(lambda done: self._under_way_done(done, slot))

    def _under_way_done(self, done: "asyncio.Task[Any]", slot: "Slot") -> None:
        self._take(done.result(), slot)
        self._held = False
        self._serve()


def _with_bytes(response: Message) -> Message:
    """Returns the response with records of files read into memory."""
    if isinstance(response, FetchResponse):
        for topic in response.responses:
            for partition in topic.partitions:
                if isinstance(partition.records, LogSlice):
                    partition.records = partition.records.read()
    return response
