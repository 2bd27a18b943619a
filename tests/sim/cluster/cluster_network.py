"""The network of a simulated cluster: requests between brokers, and from clients to brokers.

Requests and responses are encoded and decoded, so that nothing is shared. Each takes a random time;
those of one connection keep their order. A link that is cut loses messages in one direction. A
process that is killed breaks its connections; one that is paused keeps them. A connection that
stalls is replaced after a timeout, and its messages may arrive long after those of the new one, or
at the worst moment (`cluster_late_requests.py`).
"""

import asyncio
import inspect
from collections.abc import Callable
from random import Random
from typing import Any

from penstock.broker.errors import CloseConnectionError, error_response
from penstock.broker.handlers.table import HANDLERS
from penstock.broker.request import Request, Session
from penstock.controller.metadata import SecurityProtocol
from penstock.core.errors import KafkaError
from penstock.net.client.errors import DisconnectError, KafkaTimeoutError
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import decode, encode, encode_parts
from penstock.protocol.fields import Message
from penstock.storage.segment.log_segment import LogSlice
from tests.sim.cluster.cluster_broker import SimBroker
from tests.sim.cluster.cluster_late_requests import LateRequests
from tests.sim.txn_loop import SimLoop

CLIENT = -1
"""The source of the requests of clients: their links are never cut."""

MAX_DELAY_MS = 20
"""How long a message takes at most while nothing slows the network down."""
MAX_STALL_MS = 6000
"""How long a message of a connection that stalls takes at most."""


class Connection:
    """A connection from a client or broker to a broker: messages arrive in order, or not at all."""

    def __init__(self) -> None:
        self.arrivals = [0.0, 0.0]
        """When the last request arrives, and the last response."""
        self.is_lost = False
        """Whether all further messages are lost, although nobody is notified of it."""
        self.session = Session(
            "PLAINTEXT", SecurityProtocol.PLAINTEXT, "10.0.0.9", "simulated", lambda reason: None
        )


class SimNetwork:
    """The links between the brokers of a cluster."""

    def __init__(self, loop: SimLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self.brokers: dict[int, SimBroker] = {}
        """The brokers whose processes run, also those that are paused."""
        self.cut_links: set[tuple[int, int]] = set()
        """Links from a broker to another that lose every message."""
        self.max_delay_ms = MAX_DELAY_MS
        self.loss = 0.0
        """The probability that a connection is lost with a message."""
        self.stalls = 0.0
        """The probability that a message takes seconds, and those behind it too."""
        self.late_requests = LateRequests(loop, self.brokers)
        self._connections: dict[tuple[object, int], Connection] = {}
        self._waiting: dict[asyncio.Future[bytes], tuple[object, int]] = {}
        """Requests without a response, with their client and the broker that they were sent to."""

    def end_faults(self) -> None:
        """Lets every further message arrive soon."""
        self.cut_links.clear()
        self.max_delay_ms = MAX_DELAY_MS
        self.loss = self.stalls = 0.0
        self.late_requests.are_enabled = False

    def break_connections(self, broker_id: int) -> None:
        """The process of a broker has ended: its peers notice soon."""
        for future, (_, target) in list(self._waiting.items()):
            if target == broker_id:
                self._loop.call_later(self._delay_s(), _fail, future, context=self._loop.outside)
        self._connections = {
            key: connection for key, connection in self._connections.items() if key[1] != broker_id
        }

    def disconnect(self, client: object, target: int) -> None:
        """A client closes its connection: its requests fail, but may still be handled."""
        self._connections.pop((client, target), None)
        for future, key in list(self._waiting.items()):
            if key == (client, target):
                _fail(future)

    async def request(
        self,
        source: int,
        client: object,
        target: int,
        message: Message | Callable[[int], Message],
        response_type: type[Message],
        timeout_ms: int,
        *,
        max_version: int | None = None,
        can_be_late: bool = True,
        **_limits: Any,
    ) -> Any:
        """Returns the response; raises DisconnectError or KafkaTimeoutError.

        Without `can_be_late` the request is handled before its timeout, or never.
        """
        key = response_type.INFO.key
        assert key is not None
        spec = HANDLERS[ApiKey(key)]
        version = spec.max_version if max_version is None else min(spec.max_version, max_version)
        body = message if isinstance(message, Message) else message(version)
        data = encode(body, version)
        broker = self.brokers.get(target)
        if broker is None or not broker.app.no_server.is_accepting:
            await asyncio.sleep(self._delay_s())
            raise DisconnectError(f"broker {target} does not run")
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[future] = (client, target)
        connection = self._connections.setdefault((client, target), Connection())

        def arrive() -> None:
            if can_be_late or not future.done():
                self._arrive(source, target, connection, key, version, data, future)

        def arrive_again() -> None:
            unused: asyncio.Future[bytes] = self._loop.create_future()
            unused.cancel()
            self._arrive(source, target, Connection(), key, version, data, unused)

        try:
            self._send(source, target, connection, 0, arrive)
            self.late_requests.add(source, target, body, arrive_again)
            async with asyncio.timeout(timeout_ms / 1000):
                response = await future
        except TimeoutError:
            # The next request has a new connection, and may overtake this one.
            if self._connections.get((client, target)) is connection:
                del self._connections[client, target]
            raise KafkaTimeoutError(f"no response of broker {target}") from None
        finally:
            future.cancel()
            self._waiting.pop(future, None)
        return decode(response_type, version, response)[0]

    def _send(
        self,
        source: int,
        target: int,
        connection: Connection,
        direction: int,
        arrive: Callable[[], None],
    ) -> None:
        """Calls `arrive` in the receiver's process, unless the link loses the message."""
        if self.loss and self._rng.random() < self.loss:
            connection.is_lost = True
        if connection.is_lost or (source, target) in self.cut_links:
            return
        delay_s = self._delay_s()
        if self.stalls and self._rng.random() < self.stalls:
            delay_s += self._rng.randrange(MAX_STALL_MS) / 1000
        at = max(self._loop.time() + delay_s, connection.arrivals[direction])
        connection.arrivals[direction] = at
        receiver = self.brokers.get(target)
        context = self._loop.outside if receiver is None else receiver.process.context
        self._loop.call_at(at, arrive, context=context)

    def _delay_s(self) -> float:
        return self._rng.randrange(1, self.max_delay_ms) / 1000

    def _arrive(
        self,
        source: int,
        target: int,
        connection: Connection,
        key: int,
        version: int,
        data: bytes,
        future: "asyncio.Future[bytes]",
    ) -> None:
        """Runs in the process of the target, and starts the handler there."""
        broker = self.brokers[target]

        async def respond() -> None:
            try:
                response = await handle(broker, connection.session, ApiKey(key), version, data)
            except CloseConnectionError:
                self._send(target, source, connection, 1, lambda: _fail(future))
                return
            except Exception as error:  # noqa: BLE001 - a bug, whatever it is
                self._loop.fail(error)
                return
            if not future.done():
                encoded = _encode(response, version)
                self._send(target, source, connection, 1, lambda: _set(future, encoded))

        self._loop.create_task(respond())


async def handle(
    broker: SimBroker, session: Session, key: ApiKey, version: int, data: bytes
) -> Message:
    """Handles a request like the dispatcher: an error becomes the response of its API."""
    request = Request(session, key, version, 1, "simulated", 100)
    body, _ = decode(api(key).request, version, bytearray(data))
    try:
        result: Any = broker.handler(key)(request, body)
        while inspect.isawaitable(result):
            result = await result
    except KafkaError as error:
        result = error_response(key, version, error)
        if result is None:
            raise CloseConnectionError(str(error)) from error
    assert isinstance(result, Message)
    return result


def _encode(response: Message, version: int) -> bytes:
    return b"".join(
        part.read() if isinstance(part, LogSlice) else bytes(part)  # type: ignore[arg-type]
        for part in encode_parts(response, version)
    )


def _set(future: "asyncio.Future[bytes]", data: bytes) -> None:
    if not future.done():
        future.set_result(data)


def _fail(future: "asyncio.Future[bytes]") -> None:
    if not future.done():
        future.set_exception(DisconnectError("the connection was reset"))
        future.exception()  # its process may have ended as well
