"""The network of a simulated cluster: requests between brokers, and from clients to brokers.

Requests and responses are encoded and decoded, so that nothing is shared. Each takes a random time;
those of one connection keep their order. A link that is cut loses messages in one direction. A
process that is killed breaks its connections; one that is paused keeps them.
"""

import asyncio
import inspect
from collections.abc import Callable
from random import Random
from typing import Any

from penstock.broker.errors import CloseConnectionError
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
from tests.sim.txn_loop import SimLoop

CLIENT = -1
"""The source of the requests of clients: their links are never cut."""

MAX_DELAY_MS = 20
"""How long a message takes at most while nothing slows the network down."""


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
        self._arrivals: dict[tuple[object, int], float] = {}
        """When the last message of a connection arrives."""
        self._waiting: dict[asyncio.Future[bytes], int] = {}
        """Requests without a response, with the broker that they were sent to."""

    def break_connections(self, broker_id: int) -> None:
        """The process of a broker has ended: its peers notice soon."""
        for future, target in list(self._waiting.items()):
            if target == broker_id:
                self._loop.call_later(self._delay_s(), _fail, future, context=self._loop.outside)

    async def request(
        self,
        source: int,
        connection: object,
        target: int,
        message: Message | Callable[[int], Message],
        response_type: type[Message],
        timeout_ms: int,
        *,
        max_version: int | None = None,
        **_limits: Any,
    ) -> Any:
        """Returns the response; raises DisconnectError or KafkaTimeoutError."""
        key = response_type.INFO.key
        assert key is not None
        spec = HANDLERS[ApiKey(key)]
        version = spec.max_version if max_version is None else min(spec.max_version, max_version)
        body = message if isinstance(message, Message) else message(version)
        data = encode(body, version)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[future] = target
        try:
            broker = self.brokers.get(target)
            if broker is None or not broker.app.no_server.is_accepting:
                await asyncio.sleep(self._delay_s())
                raise DisconnectError(f"broker {target} does not run")
            self._send(
                source,
                target,
                connection,
                lambda: self._arrive(source, connection, target, key, version, data, future),
            )
            async with asyncio.timeout(timeout_ms / 1000):
                response = await future
        except TimeoutError:
            raise KafkaTimeoutError(f"no response of broker {target}") from None
        finally:
            self._waiting.pop(future, None)
        return decode(response_type, version, response)[0]

    def _send(
        self, source: int, target: int, connection: object, arrive: Callable[[], None]
    ) -> None:
        """Calls `arrive` in the receiver's process, unless the link loses the message."""
        if (source, target) in self.cut_links:
            return
        at = max(self._loop.time() + self._delay_s(), self._arrivals.get((connection, target), 0.0))
        self._arrivals[connection, target] = at
        receiver = self.brokers.get(target)
        context = self._loop.outside if receiver is None else receiver.process.context
        self._loop.call_at(at, arrive, context=context)

    def _delay_s(self) -> float:
        return self._rng.randrange(1, self.max_delay_ms) / 1000

    def _arrive(
        self,
        source: int,
        connection: object,
        target: int,
        key: int,
        version: int,
        data: bytes,
        future: "asyncio.Future[bytes]",
    ) -> None:
        """Runs in the process of the target, and starts the handler there."""
        broker = self.brokers[target]

        async def respond() -> None:
            try:
                body, _ = decode(api(key).request, version, bytearray(data))
                response = await handle(broker, ApiKey(key), version, body)
            except (KafkaError, CloseConnectionError) as error:
                broker.note(f"{ApiKey(key).name} is not handled: {error}")
                return
            parts = encode_parts(response, version)
            encoded = b"".join(
                part.read() if isinstance(part, LogSlice) else bytes(part)  # type: ignore[arg-type]
                for part in parts
            )
            self._send(target, source, (connection, "response"), lambda: _set(future, encoded))

        self._loop.create_task(respond())


async def handle(broker: SimBroker, key: ApiKey, version: int, body: Message) -> Message:
    """Calls the handler of an API."""
    session = Session(
        "PLAINTEXT", SecurityProtocol.PLAINTEXT, "10.0.0.9", "simulated", lambda reason: None
    )
    request = Request(session, key, version, 1, "simulated", 100)
    result: Any = HANDLERS[key].bind(broker.app.broker)(request, body)
    while inspect.isawaitable(result):
        result = await result
    assert isinstance(result, Message)
    return result


def _set(future: "asyncio.Future[bytes]", data: bytes) -> None:
    if not future.done():
        future.set_result(data)


def _fail(future: "asyncio.Future[bytes]") -> None:
    if not future.done():
        future.set_exception(DisconnectError("the connection was reset"))
        future.exception()  # its process may have ended as well
