"""A request on its way through the broker: who asks, what, and how the answer gets back."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec import Struct

from penstock.broker.security.sasl_authenticator import SaslServerAuthenticator
from penstock.controller.metadata import SecurityProtocol
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.security.principal import ANONYMOUS, Principal


@dataclass(slots=True)
class Session:
    """Who is at the other end of a connection. It changes when the client logs in."""

    listener: str
    security_protocol: SecurityProtocol
    host: str
    """The client's address, as ACLs name it."""
    connection_id: str
    end: Callable[[str], None]
    """Ends the connection once the answers that are due have left; takes the reason."""
    principal: Principal = ANONYMOUS
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    authenticator: SaslServerAuthenticator | None = None
    """The SASL login, on a listener that wants one."""
    left: set[Callable[[], None]] = field(default_factory=set)
    """Called when the connection has ended, by those who would else wait for nothing."""


class Request(Struct, gc=False):
    """The header of a request and where it came from; the body goes to the handler beside it."""

    session: Session
    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    """Empty where the client sent none."""
    size: int
    """Bytes of the whole frame."""
    throttle_ms: int = 0
    """How long the client must wait for the time that its request took."""


Response: TypeAlias = Message | None
"""None: the client expects no reply (Produce with acks=0)."""

DelayedResponse: TypeAlias = asyncio.Future[Message] | asyncio.Future[Message | None]

HandlerResult: TypeAlias = (
    Response | DelayedResponse | Coroutine[Any, Any, Response | DelayedResponse]
)
"""What a handler gives back:

- an answer, which is sent at once;
- a future: all that the request changes is done, only the answer must wait. Later requests of the
  connection start meanwhile;
- a coroutine: the request is under way. Later requests of the connection wait until it is done, so
  that their effects keep the order in which they were sent. It may end in a future.

Answers leave in the order of the requests whatever the handlers give back.
"""
