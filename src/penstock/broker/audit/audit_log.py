"""The audit log of a broker: events are queued on the event loop and written by a thread.

The queue is bounded. When the thread cannot follow, because the disk hangs or the events are too
many, new ones are counted, and a line says how many were dropped. A disk that fails never stops
the broker: it says so once in its log, and the next batch is attempted.
"""

import logging
import threading
from collections.abc import Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

import msgspec

from penstock.broker.audit.changes import CHANGES, without_denied
from penstock.broker.audit.events import (
    DENIED,
    SUCCESS,
    TLS,
    AuditEvent,
    Change,
    Denial,
    Dropped,
    Login,
    bounded,
    cut,
    to_time,
)
from penstock.broker.audit.repeats import RepeatLimiter
from penstock.broker.audit.rotating_file import RotatingFile
from penstock.broker.request import Request, Session
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.api import api
from penstock.protocol.fields import Message
from penstock.security.acl import AclOperation, ResourceType

logger = logging.getLogger(__name__)

MAX_QUEUED: Final = 10_000
MAX_QUEUED_BYTES: Final = 32 * 1024 * 1024
"""The size of the queued administrative requests, except for a single larger one."""
_BATCH: Final = 1000
_LINGER_S: Final = 0.05
"""How long the thread collects events before it writes them together."""
_IDLE_S: Final = 5.0
_STOP_S: Final = 5.0


class _Actor(NamedTuple):
    """Who did something, as of now: the principal of a session may change."""

    time_ms: int
    principal: str
    address: str
    listener: str
    client_id: str


class _Login(NamedTuple):
    actor: _Actor
    mechanism: str
    user: str = ""
    error: KafkaError | None = None
    token_id: str = ""
    size: int = 0


class _Denial(NamedTuple):
    actor: _Actor
    api: str
    operation: AclOperation
    resource_type: ResourceType
    resource: str
    size: int = 0


class _Change(NamedTuple):
    actor: _Actor
    request: Request
    body: Message
    outcome: Message | KafkaError
    size: int


class AuditLog:
    """Its methods are called on the event loop, and never wait."""

    def __init__(self, file: RotatingFile, broker_id: int, clock: Clock) -> None:
        self._file = file
        self._broker_id = broker_id
        self._clock = clock
        self._queue: SimpleQueue[_Login | _Denial | _Change | None] = SimpleQueue()
        self._added_bytes = 0
        self._written_bytes = 0
        """Changed by the thread only, as `_added_bytes` is by the loop: no lock is needed."""
        self.dropped = 0
        """Events that found the queue full."""
        self._reported_drops = 0
        self.failed = 0
        """Events that could not be written to the disk."""
        self._reported_failures = 0
        self._is_failing = False
        self._limiter = RepeatLimiter()
        self._encoder = msgspec.json.Encoder()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-audit", daemon=True)

    def start(self) -> None:
        """Opens the file and starts the thread; raises OSError if the file cannot be opened."""
        self._file.open()
        self._thread.start()

    def close(self) -> None:
        """Writes what is queued; gives up after 5 s, because a disk may hang."""
        if self._thread.is_alive():
            self._stopping.set()
            self._queue.put(None)
            self._thread.join(_STOP_S)
            if self._thread.is_alive():
                logger.error("the last events of the audit log %s are lost", self._file.path)

    # --- events, on the loop

    def login(self, session: Session, mechanism: str) -> None:
        self._put(_Login(self._actor(session), mechanism, token_id=session.token_id or ""))

    def login_failed(self, session: Session, mechanism: str, user: str, error: KafkaError) -> None:
        """Notes a refused login; `user` is the name that the client gave, if it is known."""
        self._put(_Login(self._actor(session), mechanism, user, error))

    def handshake_failed(self, address: str, listener: str, reason: str) -> None:
        """Notes a TLS handshake that failed, with the certificate of the client perhaps."""
        actor = _Actor(self._clock.now_ms(), "User:ANONYMOUS", address, listener, "")
        error = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)
        self._put(_Login(actor, TLS, error=error))

    def denied(
        self, session: Session, operation: AclOperation, resource: ResourceType, name: str
    ) -> None:
        request = session.request
        api_name = "" if request is None else request.api_key.name
        self._put(_Denial(self._actor(session), api_name, operation, resource, name))

    def changed(self, request: Request, body: Message, outcome: Message | KafkaError) -> None:
        """Notes a request that changes the cluster, with its response or the error.

        Request and response are read later, on the thread, and must not change any more.
        """
        actor = self._actor(request.session, request)
        self._put(_Change(actor, request, body, outcome, request.size))

    def _actor(self, session: Session, request: Request | None = None) -> _Actor:
        request = request or session.request
        return _Actor(
            self._clock.now_ms(),
            str(session.principal),
            session.host,
            session.listener,
            "" if request is None else request.client_id,
        )

    def _put(self, event: "_Login | _Denial | _Change") -> None:
        queued = self._queue.qsize()
        queued_bytes = self._added_bytes - self._written_bytes
        if queued >= MAX_QUEUED or (queued_bytes and queued_bytes + event.size > MAX_QUEUED_BYTES):
            self.dropped += 1
            return
        self._added_bytes += event.size
        self._queue.put(event)

    # --- the thread

    def _run(self) -> None:
        is_last = False
        while not is_last:
            try:
                first = self._queue.get(timeout=_IDLE_S)
            except Empty:
                first = None
            else:
                self._stopping.wait(_LINGER_S)
            events = [] if first is None else [first]
            try:
                while len(events) < _BATCH:
                    event = self._queue.get_nowait()
                    if event is not None:
                        events.append(event)
            except Empty:
                is_last = self._stopping.is_set()
            try:
                self._write(events, is_last=is_last)
            except Exception:
                logger.exception("events of the audit log are lost: this is a bug of the broker")
            self._written_bytes += sum(event.size for event in events)

    def _write(self, events: "list[_Login | _Denial | _Change]", *, is_last: bool) -> None:
        now_ms = self._clock.now_ms()
        lines: list[AuditEvent | Dropped] = []
        for queued in events:
            for event in self._describe(queued):
                # Every change that has happened has its line.
                is_limited = not (isinstance(event, Change) and event.result == SUCCESS)
                if not is_limited or self._limiter.admit(event, now_ms):
                    lines.append(event)
        if is_last or self._limiter.is_over(now_ms):
            lines += self._limiter.end_window(now_ms)
        lines += self._losses(now_ms)
        if not lines:
            return
        data = b"".join(self._encoder.encode(line) + b"\n" for line in lines)
        dropped, failed = self.dropped, self.failed
        try:
            self._file.append(data)
        except OSError as error:
            self.failed += len(lines)
            if not self._is_failing:
                self._is_failing = True
                logger.error(
                    "the audit log %s cannot be written: %s; the broker continues, and events are "
                    "lost until it can be",
                    self._file.path,
                    error,
                )
            return
        self._reported_drops, self._reported_failures = dropped, failed
        if self._is_failing:
            self._is_failing = False
            logger.warning("the audit log %s is written again", self._file.path)

    def _losses(self, now_ms: int) -> "Iterator[Dropped]":
        line = partial(Dropped, time=to_time(now_ms), broker_id=self._broker_id)
        if self.dropped > self._reported_drops:
            yield line(count=self.dropped - self._reported_drops, reason="the queue was full")
        if self.failed > self._reported_failures:
            yield line(
                count=self.failed - self._reported_failures, reason="the file was not writable"
            )

    def _describe(self, queued: "_Login | _Denial | _Change") -> Iterator[AuditEvent]:
        actor = queued.actor
        fields: dict[str, Any] = {
            "time": to_time(actor.time_ms),
            "broker_id": self._broker_id,
            "principal": actor.principal,
            "address": actor.address,
            "listener": actor.listener,
            "client_id": cut(actor.client_id),
        }
        if isinstance(queued, _Login):
            error = queued.error
            yield Login(
                **fields,
                result=SUCCESS if error is None else error.code.name,
                mechanism=cut(queued.mechanism),
                user=cut(queued.user),
                token=cut(queued.token_id),
                reason="" if error is None else cut(error.message),
            )
        elif isinstance(queued, _Denial):
            yield Denial(
                **fields,
                result=DENIED,
                api=queued.api,
                operation=queued.operation.name,
                resource_type=queued.resource_type.name,
                resource=cut(queued.resource),
            )
        else:
            request, outcome = queued.request, queued.outcome
            error = outcome if isinstance(outcome, KafkaError) else None
            response = outcome if error is None else api(request.api_key).response()
            for resource in without_denied(CHANGES[request.api_key](queued.body, response)):
                code = ErrorCode(resource.error_code if error is None else error.code)
                yield Change(
                    **fields,
                    result=SUCCESS if code is ErrorCode.NONE else code.name,
                    api=request.api_key.name,
                    resource_type=resource.resource_type,
                    resource=cut(resource.name),
                    details=bounded(resource.details),
                )
