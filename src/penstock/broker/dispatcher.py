"""From a frame to a handler and back: header, version, login, then the handler of the API.

Whatever is wrong with a request costs its own connection only. What a handler gives back is told in
`penstock.broker.request.HandlerResult`.
"""

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from penstock.broker.errors import CloseConnectionError, error_answer, shorten_messages
from penstock.broker.handlers.table import SERVED, Handler
from penstock.broker.replica.fast_produce import VERSIONS as FAST_PRODUCE_VERSIONS
from penstock.broker.replica.fast_produce import FastProduce
from penstock.broker.request import DelayedResponse, HandlerResult, Request, Session
from penstock.broker.security.session_factory import SessionFactory
from penstock.core.errors import (
    ErrorCode,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
)
from penstock.net.server.connection import Connection, FileRange, PendingResponse
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import decoder
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_request_header, encode_response

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

logger = logging.getLogger("penstock.requests")

_HEAD = struct.Struct(">hhih")
_PRODUCE = ApiKey.PRODUCE.value


class Route(NamedTuple):
    """What a request of one API and version needs."""

    api_key: ApiKey
    flexible: bool
    decode: Callable[[memoryview, int], tuple[Message, int]]
    handle: Handler


class Dispatcher:
    """The service behind the listeners: `net.server.Service`."""

    def __init__(self, broker: "Broker", sessions: SessionFactory) -> None:
        self._broker = broker
        self._sessions = sessions
        self.fast_produce = FastProduce(broker)
        self._routes: dict[tuple[int, int], Route] = {}
        self._tasks: set[asyncio.Task[HandlerResult]] = set()
        self._loop = asyncio.get_running_loop()

    # --- what the network tells

    def connected(self, connection: Connection) -> None:
        connection.session = self._sessions.open(connection)

    def disconnected(self, connection: Connection, reason: str) -> None:
        logger.debug("%s:%d left: %s", connection.peer.host, connection.peer.port, reason)
        session = connection.session
        if isinstance(session, Session):
            for each in tuple(session.left):
                each()
            session.left.clear()

    def received(self, connection: Connection, frame: memoryview) -> None:
        session = connection.session
        assert isinstance(session, Session)
        login = session.authenticator
        if login is not None and login.expects_token:
            connection.begin_response().send([login.bare_step(frame)])
            return
        try:
            key, version, correlation_id, length = _HEAD.unpack_from(frame)
        except struct.error:
            raise ProtocolError(f"{len(frame)} bytes are too few for a request") from None
        if key == _PRODUCE and version in FAST_PRODUCE_VERSIONS and length >= 0 and login is None:
            # The byte after the client id is the empty tag section of the header.
            begin = _HEAD.size + length
            if (
                begin < len(frame)
                and not frame[begin]
                and self.fast_produce.serve(connection, version, correlation_id, frame, begin + 1)
            ):
                return
        route = self._routes.get((key, version))
        if route is None:
            route = self._find_route(connection, frame, key, version, correlation_id)
            if route is None:
                return
        position = 10
        client_id = ""
        if length > 0:
            position += length
            try:
                client_id = str(frame[10:position], "utf-8")
            except UnicodeDecodeError:
                raise ProtocolError("the client id is no UTF-8 text") from None
        if route.flexible:
            if position < len(frame) and frame[position] == 0:
                position += 1
            else:
                position = decode_request_header(frame)[1]
        if login is not None and not login.allows(route.api_key):
            raise ProtocolError(
                f"{route.api_key.name} before the login was done: this listener wants SASL, set "
                f"security.protocol and sasl.mechanism in the client"
            )
        body, _ = route.decode(frame, position)
        request = Request(session, route.api_key, version, correlation_id, client_id, len(frame))
        slot = connection.begin_response()
        limited = self._broker.quotas.limits.enabled
        begun = time.perf_counter() if limited else 0.0
        try:
            reply = route.handle(self._broker, request, body)
        except Exception as error:  # noqa: BLE001 - it is answered, and costs nobody else anything
            self._failed(connection, slot, request, error)
            return
        if limited:
            request.throttle_ms = self._broker.quotas.handled(request, time.perf_counter() - begun)
        if isinstance(reply, Message):
            self._answer(connection, slot, request, reply)
        else:
            self._later(connection, slot, request, reply)

    # --- routes

    def _find_route(
        self, connection: Connection, frame: memoryview, key: int, version: int, correlation: int
    ) -> Route | None:
        """The route of an API and version; None where the client was told that there is none."""
        try:
            of = api(key)
        except UnsupportedVersionError as error:
            raise ProtocolError(error.message) from None
        served = SERVED.get(of.key)
        if served is not None and served.min_version <= version <= served.max_version:
            flexible = of.request_header_version(version) == 2
            route = Route(of.key, flexible, decoder(of.request, version), served.load())
            self._routes[key, version] = route
            return route
        if of.key is ApiKey.API_VERSIONS:
            # A client that is newer than we are reads this as version 0 and asks again (E4).
            answer = self._broker.api_versions(ErrorCode.UNSUPPORTED_VERSION)
            _send(connection.begin_response(), encode_response(answer, 0, correlation))
            return None
        raise ProtocolError(
            f"{of.key.name} version {version} is not served"
            + (f", only {served.min_version} to {served.max_version}" if served else "")
            + ": the client must ask with ApiVersions first, or is too old"
        )

    # --- answers

    def _answer(
        self, connection: Connection, slot: PendingResponse, request: Request, answer: Message
    ) -> None:
        throttle_ms: int = getattr(answer, "throttle_time_ms", 0)
        if request.throttle_ms > throttle_ms:
            throttle_ms = request.throttle_ms
            if hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = throttle_ms
        try:
            parts = encode_response(answer, request.version, request.correlation_id)
        except KafkaError as error:
            self._answer_shortened(connection, slot, request, answer, error)
            return
        _send(slot, parts)
        if throttle_ms > 0:
            connection.throttle(throttle_ms)

    def _answer_shortened(
        self,
        connection: Connection,
        slot: PendingResponse,
        request: Request,
        answer: Message,
        error: KafkaError,
    ) -> None:
        """An answer that cannot be encoded: its words may quote what the client sent at length."""
        if shorten_messages(answer):
            self._answer(connection, slot, request, answer)
            return
        logger.error(
            "the answer to %s version %d cannot be encoded: this is a fault of the broker",
            request.api_key.name,
            request.version,
            exc_info=error,
        )
        connection.close(error.message)

    def _later(
        self, connection: Connection, slot: PendingResponse, request: Request, reply: HandlerResult
    ) -> None:
        """Whatever is not an answer yet."""
        if reply is None:
            slot.skip()
        elif isinstance(reply, asyncio.Future):
            reply.add_done_callback(
                lambda done: self._done(connection, slot, request, cast("DelayedResponse", done))
            )
        else:
            assert isinstance(reply, Coroutine)
            connection.hold()
            task = self._loop.create_task(reply)
            self._tasks.add(task)
            task.add_done_callback(
                lambda done: self._under_way_done(connection, slot, request, done)
            )

    def _under_way_done(
        self,
        connection: Connection,
        slot: PendingResponse,
        request: Request,
        task: "asyncio.Task[HandlerResult]",
    ) -> None:
        self._tasks.discard(task)
        self._done(connection, slot, request, task)
        # Last, because the requests that waited for this one start within.
        connection.release()

    def _done(
        self,
        connection: Connection,
        slot: PendingResponse,
        request: Request,
        done: "asyncio.Future[HandlerResult] | DelayedResponse",
    ) -> None:
        if done.cancelled():
            connection.close("the broker is stopping")
            return
        error = done.exception()
        if error is not None:
            self._failed(connection, slot, request, error)
            return
        reply = done.result()
        if isinstance(reply, Message):
            self._answer(connection, slot, request, reply)
        else:
            self._later(connection, slot, request, reply)

    def _failed(
        self, connection: Connection, slot: PendingResponse, request: Request, error: BaseException
    ) -> None:
        """A handler raised. What it could say itself it has said; this is the last resort."""
        if isinstance(error, CloseConnectionError):
            connection.close(str(error))
            return
        if not isinstance(error, KafkaError):
            logger.error(
                "%s version %d of %s failed: this is a fault of the broker",
                request.api_key.name,
                request.version,
                request.session.connection_id,
                exc_info=error,
            )
        answer = error_answer(request.api_key, request.version, error)
        if answer is None:
            connection.close(f"{request.api_key.name} failed: {error}")
        else:
            self._answer(connection, slot, request, answer)

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _send(slot: PendingResponse, parts: Sequence[Part]) -> None:
    # Whatever lies elsewhere in our responses is a range of a file.
    slot.send(cast("Sequence[bytes | FileRange]", parts))
