"""SASL GSSAPI: Kerberos tickets (RFC 4752, X2).

Tokens go back and forth until the security context is established. Then the server offers the
security layers that it supports, which is none, and the client selects it and names the user.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.jaas import KERBEROS_LOGIN_MODULE, login_module
from penstock.security.kerberos_names import RULES_SETTING, PrincipalRules
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

_EXAMPLE: Final = (
    f"{KERBEROS_LOGIN_MODULE} required useKeyTab=true storeKey=true "
    'keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";'
)
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
        principal = self._context.client
        if message[4:] not in (b"", principal.encode()):
            raise authentication_error(
                "authentication failed: the authorization id is not the Kerberos principal"
            )
        return self._rules.user_name(principal)


def keytab_settings(jaas_config: str | None) -> KeytabSettings:
    """Returns the keytab and principal of a server. Raises KafkaError that names the setting."""
    if not jaas_config:
        raise _incomplete("is missing: it names the keytab and the principal of this broker")
    options = login_module(jaas_config, KERBEROS_LOGIN_MODULE).options
    for name in ("keyTab", "principal"):
        if not options.get(name):
            raise _incomplete(f"has no {name}")
    return KeytabSettings(options["keyTab"].removeprefix("FILE:"), options["principal"])


def _incomplete(cause: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_CONFIG,
        cause,
        subject="listener.name.<listener>.gssapi.sasl.jaas.config",
        remedy=f"set it to {_EXAMPLE}",
    )


def _create(context: ServerContext) -> Callable[[], SaslServer]:
    acceptor = context.acceptor_of(
        keytab_settings((context.setting("sasl.jaas.config", GSSAPI) or "").strip())
    )
    texts = (context.setting(RULES_SETTING, GSSAPI) or "").split(",")
    rules = PrincipalRules(texts, acceptor.default_realm)
    return lambda: GssapiServer(acceptor.new_context(), rules, context.report)


GSSAPI_MECHANISM = ServerMechanism(GSSAPI, _create)
