"""SASL GSSAPI: Kerberos tickets (RFC 4752, X2).

Tokens go back and forth until the security context is established. Then the server offers the
security layers that it supports, which is none, and the client selects it and names the user.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from penstock.core.errors import KafkaError
from penstock.security.kerberos_names import RULES_SETTING, PrincipalRules
from penstock.security.krb5_login import (
    JAAS_SETTING,
    SERVICE_NAME_SETTING,
    parse_krb5_login,
    parse_server_login,
    service_name,
)
from penstock.security.sasl.server import (
    SaslServer,
    ServerContext,
    ServerMechanism,
    already_ended,
    authentication_error,
    not_done,
)

GSSAPI: Final = "GSSAPI"
NO_LAYER: Final = 0x01
"""The bit of the only security layer that Kafka uses: none, TLS protects the connection."""
MAX_TOKEN_SIZE: Final = 65_536
"""Tickets with the groups of a Windows domain have at most 64 KiB."""

_REFUSED: Final = "authentication failed: invalid Kerberos credentials (SASL mechanism GSSAPI)"


class GssError(Exception):
    """A token that the Kerberos library refuses, with its reason."""


class KeytabSettings(NamedTuple):
    """Where the keys of a principal are."""

    keytab: str
    principal: str


class SecurityContext(Protocol):
    """The server's side of one security context."""

    @property
    def is_established(self) -> bool: ...

    @property
    def client(self) -> str:
        """The client's principal, once the context is established."""
        ...

    def prepare(self, token: bytes) -> Awaitable[None]:
        """Does the work of `accept` for the same token in a thread. Never raises."""
        ...

    def accept(self, token: bytes) -> bytes:
        """Returns the token for the client, maybe an empty one. Raises GssError."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Raises GssError."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """Raises GssError."""
        ...


class Acceptor(Protocol):
    """Accepts security contexts with the keys of a principal."""

    @property
    def default_realm(self) -> str: ...

    def new_context(self) -> SecurityContext: ...


class GssapiServer:
    """Accepts the ticket of one login."""

    mechanism = GSSAPI

    def __init__(
        self, context: SecurityContext, rules: PrincipalRules, report: Callable[[str], None]
    ) -> None:
        """`report` is called with the reason of a refusal, which the client does not learn."""
        self._context = context
        self._rules = rules
        self._report = report
        self._user: str | None = None
        self._has_offered_layers = False
        self._ended = False

    @property
    def done(self) -> bool:
        return self._user is not None

    @property
    def principal_name(self) -> str:
        if self._user is None:
            raise not_done(GSSAPI)
        return self._user

    @property
    def claimed_name(self) -> str | None:
        """The principal, once the client has proved it; no rule may apply to it."""
        return self._context.client if self._context.is_established else None

    @property
    def expires_ms(self) -> int | None:
        return None  # as in Kafka: the end of a ticket does not end the session

    def prepare(self, response: bytes) -> Awaitable[None] | None:
        if self._ended or self._context.is_established or len(response) > MAX_TOKEN_SIZE:
            return None
        return self._context.prepare(response)

    def step(self, response: bytes) -> bytes:
        if self._ended:
            raise already_ended(GSSAPI)
        try:
            if len(response) > MAX_TOKEN_SIZE:
                raise GssError(f"a token has {len(response)} bytes")
            return self._step(response)
        except GssError as error:
            self._ended = True
            self._report(str(error))
            raise authentication_error(_REFUSED) from None
        except KafkaError:
            self._ended = True
            raise

    def _step(self, response: bytes) -> bytes:
        if not self._context.is_established:
            token = self._context.accept(response)
            if token or not self._context.is_established:
                return token
        elif self._has_offered_layers:
            self._user = self._accept_layer(self._context.unwrap(response))
            self._ended = True
            return b""
        elif response:
            raise GssError("a token after the security context was established")
        self._has_offered_layers = True
        return self._context.wrap(bytes((NO_LAYER, 0, 0, 0)))

    def _accept_layer(self, message: bytes) -> str:
        if len(message) < 4:
            raise GssError("the selection of a security layer is too short")
        if message[0] != NO_LAYER:
            raise authentication_error(
                "authentication failed: only connections without a SASL security layer are "
                "accepted; use SASL_SSL for encryption"
            )
        # As in Kafka, the authorization id that may follow is not used: whatever a client names, it
        # is the principal of its ticket.
        principal = self._context.client
        try:
            return self._rules.user_name(principal)
        except KafkaError as error:
            self._report(error.message)
            raise authentication_error(
                f"authentication failed: {RULES_SETTING} of the broker have no user name for "
                f"{principal}"
            ) from None


def _create(context: ServerContext) -> Callable[[], SaslServer]:
    jaas_config = (context.setting(JAAS_SETTING, GSSAPI) or "").strip()
    keytab = KeytabSettings(*parse_server_login(jaas_config))
    # Only a broker that logs in to others uses the name, but like Kafka's, every one needs it.
    service_name(context.setting(SERVICE_NAME_SETTING, GSSAPI), parse_krb5_login(jaas_config))
    acceptor = context.acceptor_of(keytab)
    texts = (context.setting(RULES_SETTING, GSSAPI) or "").split(",")
    rules = PrincipalRules(texts, acceptor.default_realm)
    return lambda: GssapiServer(acceptor.new_context(), rules, context.report)


GSSAPI_MECHANISM = ServerMechanism(GSSAPI, _create)
