"""The dispatcher: from a frame through header, version and login check to the handler of its API.

An error in a request affects only its own connection. `HandlerResult` says when the response is
sent and whether later requests of the connection wait.
"""

import asyncio
import logging
import struct
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, cast

from penstock.broker.audit.audit_log import AuditLog
from penstock.broker.audit.handlers import audited
from penstock.broker.broker import Broker
from penstock.broker.errors import (
    ClientLeftError,
    CloseConnectionError,
    error_response,
    truncate_error_messages,
)
from penstock.broker.handlers.table import Handler
from penstock.broker.metrics.request_metrics import RequestMetrics
from penstock.broker.replica.fast_produce import VERSIONS as FAST_PRODUCE_VERSIONS
from penstock.broker.replica.fast_produce import FastProduce
from penstock.broker.request import (
    NO_RESPONSE,
    DelayedResponse,
    HandlerResult,
    Request,
    Response,
    Session,
    WaitingResponse,
)
from penstock.broker.routes import (
    BETWEEN_BROKERS,
    EXEMPT_FROM_QUOTAS,
    WITHOUT_METADATA,
    Route,
    is_follower_fetch,
)
from penstock.broker.security.sasl_authenticator import receive_unframed
from penstock.broker.security.session_factory import SessionFactory
from penstock.core.errors import (
    ErrorCode,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
)
from penstock.core.memory_budget import MemoryKind
from penstock.net.server.connection import Connection, PendingResponse
from penstock.net.server.limits import LogRateLimiter
from penstock.net.server.send_queue import FileRange
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import decoder
from penstock.protocol.encoder import Part
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_request_header, encode_response
from penstock.protocol.messages.fetch import FetchRequest
from penstock.protocol.primitives import TooManyElementsError
from penstock.protocol.response_errors import error_finder
from penstock.security.acl import CLUSTER_NAME, AclOperation, ResourceType

logger = logging.getLogger(__name__)

MAX_INLINE_ELEMENTS: Final = 1000
"""Requests and responses with more array elements are decoded and encoded on a thread: a thousand
take some 2 ms."""

_HEAD = struct.Struct(">hhih")
_PRODUCE = ApiKey.PRODUCE.value
_ELEMENT_BYTES = 400
"""The memory of a decoded element, about."""
_DECODED_BYTES_PER_BYTE = 16
"""The memory of a decoded request between brokers, about: most elements are integers."""


class Dispatcher:
    """The `net.server.Service` behind the listeners."""

    def __init__(
        self,
        broker: Broker,
        sessions: SessionFactory,
        metrics: RequestMetrics,
        audit_log: AuditLog | None = None,
    ) -> None:
        self._broker = broker
        self._audit_log = audit_log
        self._quotas = broker.quotas
        self._sessions = sessions
        self._metrics = metrics
        self.fast_produce = FastProduce(
            broker.image,
            broker.replicas,
            broker.log_flusher,
            broker.authorizer,
            broker.quotas,
            broker.produce_expiry,
            metrics.produce,
        )
        self._has_metadata = broker.controller_requests.has_metadata
        self._routes: dict[tuple[int, int], Route] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._log_limiter = LogRateLimiter()

    # --- events of connections

    def connected(self, connection: Connection) -> None:
        connection.session = self._sessions.open(connection)

    def handshake_failed(self, connection: Connection, reason: str) -> None:
        self._sessions.handshake_failed(connection, reason)

    def disconnected(self, connection: Connection, reason: str) -> None:
        peer = connection.peer
        logger.debug("%s:%d is disconnected: %s", peer.host, peer.port, reason)
        session = connection.session
        if isinstance(session, Session):
            for callback in tuple(session.close_callbacks):
                callback()
            session.close_callbacks.clear()
            session.request = None  # it refers to the session
            if session.authenticator is not None:
                session.authenticator.close()

    def received(self, connection: Connection, frame: memoryview) -> None:
        session = connection.session
        assert isinstance(session, Session)
        authenticator = session.authenticator
        if authenticator is not None and authenticator.expects_token:
            step = receive_unframed(connection, authenticator, bytes(frame))
            if step is not None:
                self._start(step)
            return
        try:
            key, version, correlation_id, length = _HEAD.unpack_from(frame)
        except struct.error:
            raise ProtocolError(f"{len(frame)} bytes are too few for a request") from None
        if (
            key == _PRODUCE
            and version in FAST_PRODUCE_VERSIONS
            and length >= 0
            and authenticator is None
        ):
            # The byte after the client id is the empty tag section of the header.
            begin = _HEAD.size + length
            if (
                begin < len(frame)
                and not frame[begin]
                and self.fast_produce.try_handle(
                    connection, version, correlation_id, frame, begin + 1
                )
            ):
                return
        route = self._routes.get((key, version))
        if route is None:
            route = self._find_route(connection, key, version, correlation_id)
            if route is None:
                return
        position = 10
        client_id = ""
        if not route.has_client_id:
            position = 8
        elif length > 0:
            position += length
            try:
                client_id = str(frame[10:position], "utf-8")
            except UnicodeDecodeError:
                raise ProtocolError("the client id is not UTF-8") from None
        if route.flexible:
            if position < len(frame) and frame[position] == 0:
                position += 1
            else:
                position = decode_request_header(frame)[1]
        if authenticator is not None and not authenticator.allows(route.api_key):
            raise ProtocolError(
                f"{route.api_key.name} before the login: this listener requires SASL, set "
                f"security.protocol and sasl.mechanism in the client"
            )
        metrics = route.metrics
        request = Request(
            session, route.api_key, version, correlation_id, client_id, len(frame), 0, metrics
        )
        metrics.requests = number = metrics.requests + 1
        if not number & metrics.mask:
            request.started = started = perf_counter()
            request.queued = connection.queued_at or started
        try:
            body, _ = route.decode(frame, position, MAX_INLINE_ELEMENTS)
        except TooManyElementsError:
            pending = connection.begin_response()
            work = self._handle_large(route, request, frame, position)
            self._send_later(connection, pending, request, work)
            return
        pending = connection.begin_response()
        try:
            result = self._handle(route, request, body)
        except Exception as error:  # noqa: BLE001 - the client gets it, other connections do not
            self._send_error(connection, pending, request, error)
            return
        if isinstance(result, Message):
            self._send(connection, pending, request, result)
        else:
            self._send_later(connection, pending, request, result)

    async def _handle_large(
        self, route: Route, request: Request, frame: memoryview, position: int
    ) -> "Response | DelayedResponse":
        """Decodes a request with many elements on a thread, then handles it."""
        max_elements = self._broker.config.int("socket.request.max.elements")
        memory = min(max_elements, len(frame)) * _ELEMENT_BYTES
        if self._is_unlimited(route, request):
            max_elements = len(frame)
            memory = len(frame) * _DECODED_BYTES_PER_BYTE
        async with self._broker.workers.reserved(memory, MemoryKind.DECODED):
            result = await self._decode_and_handle(route, request, frame, position, max_elements)
            return await result if isinstance(result, Coroutine) else result

    def _is_unlimited(self, route: Route, request: Request) -> bool:
        """Returns whether a request may have any number of elements: those of brokers.

        An event may concern all partitions of a broker. Only their memory is limited.
        """
        return route.api_key in BETWEEN_BROKERS and self._is_broker(request)

    def _is_broker(self, request: Request) -> bool:
        return self._broker.authorizer.would_allow(
            request.session, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )

    async def _decode_and_handle(
        self, route: Route, request: Request, frame: memoryview, position: int, max_elements: int
    ) -> HandlerResult:
        workers = self._broker.workers
        try:
            body, _ = await workers.run(
                workers.codec, lambda: route.decode(frame, position, max_elements)
            )
        except TooManyElementsError as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the request has more than socket.request.max.elements={max_elements} array "
                f"elements: {error.message}",
                remedy="split the request, or raise the setting in the broker's settings",
            ) from None
        except ProtocolError as error:
            raise CloseConnectionError(f"not a valid request: {error.message}") from None
        return self._handle(route, request, body)

    def _handle(self, route: Route, request: Request, body: Message) -> HandlerResult:
        """Calls the handler, and counts its time for the request quota, from which brokers are
        exempt."""
        if isinstance(body, FetchRequest) and is_follower_fetch(body):
            request.metrics = self._metrics.move_to_follower()
        if not self._quotas.limits.enabled or (
            route.api_key in EXEMPT_FROM_QUOTAS and self._is_broker(request)
        ):
            return route.handle(request, body)
        start = time.perf_counter()
        result = route.handle(request, body)
        seconds = time.perf_counter() - start
        request.throttle_ms = self._quotas.record_request_time(request, seconds)
        return result

    async def _handle_with_metadata(
        self, handler: Handler, request: Request, body: Message
    ) -> "Response | DelayedResponse":
        """Waits until the controller has sent the metadata of the cluster.

        A consumer would take the topics that a starting broker does not know yet for deleted.
        """
        await self._has_metadata.wait()
        result = handler(request, body)
        return await result if isinstance(result, Coroutine) else result

    def _find_route(
        self, connection: Connection, key: int, version: int, correlation_id: int
    ) -> Route | None:
        """Returns the route of an API and version; None if the response has been sent.

        Raises ProtocolError for a version that is not served.
        """
        try:
            definition = api(key)
        except UnsupportedVersionError as error:
            raise ProtocolError(error.message) from None
        spec = self._broker.api_versions.handler(definition.key)
        if spec is not None and spec.min_version <= version <= spec.max_version:
            header = definition.request_header_version(version)
            decode = decoder(definition.request, version)
            handle = spec.bind(self._broker)
            if self._audit_log is not None:
                listener = self._broker.config.inter_broker_listener
                handle = audited(self._audit_log, listener, definition.key, handle)
            metrics = self._metrics.by_api[definition.key]
            route = Route(definition.key, header > 0, header == 2, decode, handle, metrics)
            if definition.key not in WITHOUT_METADATA and not self._has_metadata.is_set():
                return route._replace(handle=partial(self._handle_with_metadata, route.handle))
            self._routes[key, version] = route
            return route
        if definition.key is ApiKey.API_VERSIONS:
            # A newer client reads this as version 0 and sends an older version (E4).
            response = self._broker.api_versions.response(ErrorCode.UNSUPPORTED_VERSION)
            parts = encode_response(response, 0, correlation_id)
            _send_parts(connection.begin_response(), parts)
            return None
        raise ProtocolError(
            f"{definition.key.name} version {version} is not served"
            + (f", only {spec.min_version} to {spec.max_version}" if spec else "")
            + ": the client must send ApiVersions first, or is too old"
        )

    # --- responses

    def _send(
        self, connection: Connection, pending: PendingResponse, request: Request, response: Message
    ) -> None:
        if request.started:
            completed = perf_counter()
            if not request.handled:
                request.handled = completed
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if request.throttle_ms > throttle_ms:
            throttle_ms = request.throttle_ms
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
        try:
            parts = encode_response(
                response, request.version, request.correlation_id, MAX_INLINE_ELEMENTS
            )
        except TooManyElementsError:
            connection.hold()
            self._start(self._send_large(connection, pending, request, response, throttle_ms))
            return
        except KafkaError as error:
            self._send_truncated(connection, pending, request, response, error)
            return
        if self._metrics.enabled:
            request.record_errors(error_finder(type(response))(response))
        _send_parts(pending, parts)
        if throttle_ms > 0:
            connection.throttle(throttle_ms)
            request.record_throttle(throttle_ms)
        if request.started:
            request.record_times(completed, perf_counter())

    async def _send_large(
        self,
        connection: Connection,
        pending: PendingResponse,
        request: Request,
        response: Message,
        throttle_ms: int,
    ) -> None:
        """Encodes a response with many elements on a thread, and sends it.

        Later requests of the connection wait, so that a client has one such response in memory.
        """
        workers = self._broker.workers
        completed = perf_counter() if request.started else 0.0
        try:
            parts, codes = await workers.run(
                workers.codec,
                lambda: (
                    encode_response(response, request.version, request.correlation_id),
                    error_finder(type(response))(response),
                ),
            )
        except KafkaError as error:
            self._send_truncated(connection, pending, request, response, error)
        else:
            request.record_errors(codes)
            _send_parts(pending, parts)
            if throttle_ms > 0:
                connection.throttle(throttle_ms)
                request.record_throttle(throttle_ms)
            if request.started:
                request.record_times(completed, perf_counter())
        finally:
            connection.release()

    def _send_truncated(
        self,
        connection: Connection,
        pending: PendingResponse,
        request: Request,
        response: Message,
        error: KafkaError,
    ) -> None:
        """Sends a response that cannot be encoded because its messages quote too much."""
        if truncate_error_messages(response):
            self._send(connection, pending, request, response)
            return
        self._log_bug("the response cannot be encoded", request, error)
        connection.close(error.message)

    def _send_later(
        self,
        connection: Connection,
        pending: PendingResponse,
        request: Request,
        result: HandlerResult,
    ) -> None:
        """Handles every result that is not a message."""
        if request.started and not isinstance(result, Coroutine):
            request.handled = perf_counter()
        if result is NO_RESPONSE:
            pending.skip()
            if request.started:
                request.record_times(request.handled, request.handled)
        elif isinstance(result, WaitingResponse):
            pending.is_grouped = True
            result.deliver_to(partial(self._send, connection, pending, request))
        elif isinstance(result, asyncio.Future):
            result.add_done_callback(
                lambda done: self._complete(connection, pending, request, done)
            )
        else:
            assert not isinstance(result, Message)
            connection.hold()
            task = self._loop.create_task(result)
            self._tasks.add(task)
            task.add_done_callback(
                lambda done: self._complete_task(connection, pending, request, done)
            )

    def _complete_task(
        self,
        connection: Connection,
        pending: PendingResponse,
        request: Request,
        task: "asyncio.Task[Response | DelayedResponse]",
    ) -> None:
        self._tasks.discard(task)
        self._complete(connection, pending, request, task)
        # Last, because it starts the requests that waited for this one.
        connection.release()

    def _complete(
        self,
        connection: Connection,
        pending: PendingResponse,
        request: Request,
        done: "asyncio.Task[Response | DelayedResponse] | asyncio.Future[Message]",
    ) -> None:
        if done.cancelled():
            connection.close("the broker is stopping")
            return
        error = done.exception()
        if error is not None:
            self._send_error(connection, pending, request, error)
            return
        result = done.result()
        if isinstance(result, Message):
            self._send(connection, pending, request, result)
        else:
            self._send_later(connection, pending, request, result)

    def _send_error(
        self,
        connection: Connection,
        pending: PendingResponse,
        request: Request,
        error: BaseException,
    ) -> None:
        """Responds with an exception of a handler, or closes the connection if it cannot."""
        if isinstance(error, CloseConnectionError):
            connection.close(str(error))
            return
        if isinstance(error, ClientLeftError):
            pending.skip()
            return
        if not isinstance(error, KafkaError):
            self._log_bug("the request failed", request, error)
        response = error_response(request.api_key, request.version, error)
        if response is None:
            connection.close(f"{request.api_key.name} failed: {error}")
        else:
            self._send(connection, pending, request, response)

    def _log_bug(self, event: str, request: Request, error: BaseException) -> None:
        """Logs an unexpected exception; a client that repeats the request cannot fill the log."""
        name = request.api_key.name
        kind = f"{name} {type(error).__name__}"
        suppressed = self._log_limiter.allow(kind, time.monotonic_ns() // 1_000_000)
        if suppressed is not None:
            logger.error(
                "%s version %d of %s: %s; this is a bug of the broker (%d similar lines were "
                "suppressed)",
                name,
                request.version,
                request.session.connection_id,
                event,
                suppressed,
                exc_info=error,
            )

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancels the requests in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _send_parts(pending: PendingResponse, parts: Sequence[Part]) -> None:
    # Parts of a response that are not in memory are file ranges.
    pending.send(cast("Sequence[bytes | FileRange]", parts))
