"""A request on its path through the broker: its session, its header and the handler's result."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from penstock.broker.metrics.request_metrics import ApiMetrics
from penstock.broker.security.sasl_authenticator import SaslServerAuthenticator
from penstock.controller.metadata import SecurityProtocol
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.security.principal import ANONYMOUS, Principal

_next_number = count(1).__next__


@dataclass(slots=True)
class Session:
    """The client at the other end of a connection. Its principal changes with a SASL login."""

    listener: str
    security_protocol: SecurityProtocol
    host: str
    """The client's address, as ACLs name it."""
    connection_id: str
    end: Callable[[str], None]
    """Closes the connection after the pending responses have been sent; takes the reason."""
    principal: Principal = ANONYMOUS
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    authenticator: SaslServerAuthenticator | None = None
    """The state of the SASL login; None on a listener without SASL."""
    close_callbacks: set[Callable[[], None]] = field(default_factory=set)
    """Called when the connection has closed, for requests that wait in a purgatory."""
    has_left: Callable[[], bool] = lambda: False
    """Returns whether the client has closed its end, although the connection may not be closed:
    requests that it sent before are still handled."""
    request: "Request | None" = None
    """The last request whose handler was called, for the audit log; None while that is off."""
    number: int = field(default_factory=_next_number)
    """Higher for connections that were accepted later."""

    @property
    def token_id(self) -> str | None:
        """The delegation token that the client has logged in with; None if it was without."""
        return None if self.authenticator is None else self.authenticator.token_id


class Request(Struct, gc=False):
    """The header of a request and its session; the handler receives the body beside it."""

    session: Session
    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    """Empty when the client sent null."""
    size: int
    """Bytes of the whole frame."""
    throttle_ms: int = 0
    """How long the request quota throttles the client; the dispatcher sets it after handling."""
    metrics: ApiMetrics | None = None
    """Where the times below are recorded."""
    queued: float = 0.0
    """When the request was received."""
    started: float = 0.0
    """When the dispatcher received it; 0 if it is not measured."""
    handled: float = 0.0
    """When everything but a wait for the response was done."""

    def record_times(self, completed: float, sent: float) -> None:
        """Records the times of a measured request: when its response was complete, and sent."""
        if self.metrics is not None:
            self.metrics.record(self.queued, self.started, self.handled, completed, sent)

    def record_errors(self, codes: Sequence[int]) -> None:
        if codes and self.metrics is not None:
            self.metrics.errors.update(codes)

    def record_throttle(self, throttle_ms: int) -> None:
        if self.metrics is not None:
            self.metrics.throttle.record(throttle_ms / 1000)


class NoResponse(Enum):
    """The type of `NO_RESPONSE`."""

    NO_RESPONSE = "no response"


NO_RESPONSE: Final = NoResponse.NO_RESPONSE
"""The client expects no response: Produce with acks=0."""

Response: TypeAlias = Message | Literal[NoResponse.NO_RESPONSE]


class WaitingResponse:
    """A response that is not complete yet: like a future, but it calls back before `complete` ends.

    When a follower has fetched records, the responses of all their producers complete at once: each
    is saved a future and a callback of the loop.
    """

    __slots__ = ("_future", "_is_cancelled", "_on_complete", "_response")

    def __init__(self) -> None:
        self._on_complete: Callable[[Message], None] | None = None
        self._response: Message | None = None
        self._future: asyncio.Future[Message] | None = None
        self._is_cancelled = False

    def deliver_to(self, on_complete: Callable[[Message], None]) -> None:
        """Calls `on_complete` once with the response: now if it is complete, otherwise later."""
        if self._response is None:
            self._on_complete = on_complete
        else:
            on_complete(self._response)

    def __await__(self) -> Generator[Any, None, Message]:
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._future = future

        def set_result(response: Message) -> None:
            if not future.done():
                future.set_result(response)

        if self._is_cancelled:
            future.cancel()
        else:
            self.deliver_to(set_result)
        return (yield from future)

    def complete(self, response: Message) -> None:
        self._response = response
        if self._on_complete is not None:
            self._on_complete(response)

    def cancel(self) -> None:
        """Nothing is delivered any more: the client has disconnected."""
        self._is_cancelled = True
        self._on_complete = None
        if self._future is not None:
            self._future.cancel()


DelayedResponse: TypeAlias = asyncio.Future[Message] | WaitingResponse

HandlerResult: TypeAlias = (
    Response | DelayedResponse | Coroutine[Any, Any, Response | DelayedResponse]
)
"""What a handler returns says how far the request has come:

- `Response`: complete; the response is sent at once, or none is (`NO_RESPONSE`).
- `DelayedResponse`: everything that the request changes has been changed, only the
  response is delayed. Later requests of the connection start before it completes.
- a coroutine: the request is in progress. Later requests of the connection wait for it to finish,
  so that requests take effect in the order in which they were sent. It may end in a
  `DelayedResponse`.

Responses are sent in the order of the requests in every case.
"""
