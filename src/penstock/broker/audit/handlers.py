"""Handlers with an audit log: they note their requests in the session, and changes in the log."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, cast

from penstock.broker.audit.audit_log import AuditLog
from penstock.broker.audit.changes import AUTHORIZATION_ERRORS, CHANGES
from penstock.broker.handlers.table import Handler
from penstock.broker.request import DelayedResponse, HandlerResult, Request, Response
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message


def audited(
    log: AuditLog, inter_broker_listener: str, api_key: ApiKey, handler: Handler
) -> Handler:
    """Returns a handler whose denials name the request, and whose change is noted when it ends."""
    if api_key not in CHANGES:
        return partial(_handle, handler)
    is_internal = api_key is ApiKey.WRITE_TXN_MARKERS
    handle_change = partial(_handle_change, log, handler)

    def handle(request: Request, body: Message) -> HandlerResult:
        # Coordinators have markers written for every transaction.
        if getattr(body, "validate_only", False) or (
            is_internal and request.session.listener == inter_broker_listener
        ):
            return _handle(handler, request, body)
        return handle_change(request, body)

    return handle


def _handle(handler: Handler, request: Request, body: Message) -> HandlerResult:
    request.session.request = request
    return handler(request, body)


def _handle_change(
    log: AuditLog, handler: Handler, request: Request, body: Message
) -> HandlerResult:
    try:
        result = _handle(handler, request, body)
    except KafkaError as error:
        _note(log, request, body, error)
        raise
    return _note_result(log, request, body, result)


def _note_result(
    log: AuditLog, request: Request, body: Message, result: HandlerResult
) -> HandlerResult:
    if isinstance(result, Coroutine):
        return _wait(log, request, body, result)
    if isinstance(result, asyncio.Future):
        _note_when_done(log, request, body, result)
    elif isinstance(result, Message):
        _note(log, request, body, result)
    return result


async def _wait(
    log: AuditLog,
    request: Request,
    body: Message,
    running: "Coroutine[Any, Any, Response | DelayedResponse]",
) -> "Response | DelayedResponse":
    try:
        result = await running
    except KafkaError as error:
        _note(log, request, body, error)
        raise
    return cast("Response | DelayedResponse", _note_result(log, request, body, result))


def _note_when_done(
    log: AuditLog, request: Request, body: Message, delayed: "asyncio.Future[Message]"
) -> None:
    """Notes a change whose response waits; a client that leaves before must not hide it."""
    close_callbacks = request.session.close_callbacks

    def note_response(done: "asyncio.Future[Message]") -> None:
        if note_left in close_callbacks and not done.cancelled() and done.exception() is None:
            close_callbacks.discard(note_left)
            _note(log, request, body, done.result())

    def note_left() -> None:
        left = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the client has left before its response")
        _note(log, request, body, left)

    close_callbacks.add(note_left)
    delayed.add_done_callback(note_response)


def _note(log: AuditLog, request: Request, body: Message, outcome: Message | KafkaError) -> None:
    if isinstance(outcome, KafkaError) and outcome.code in AUTHORIZATION_ERRORS:
        return  # the denial is noted already
    log.changed(request, body, outcome)
