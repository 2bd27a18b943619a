"""Sessions of new connections: the client's principal, and how it may log in (X1, X2)."""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Iterable
from functools import partial

from penstock.broker.audit.audit_log import AuditLog
from penstock.broker.audit.events import TLS
from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.listeners import ListenerSpec
from penstock.broker.request import Session
from penstock.broker.security.connection_quotas import ConnectionQuotas
from penstock.broker.security.decoy_credentials import DecoyCredentials
from penstock.broker.security.jwks_cache import JwksCaches
from penstock.broker.security.kerberos_acceptor import KeytabAcceptor
from penstock.broker.security.sasl_authenticator import NewServer, SaslServerAuthenticator
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.net.server.connection import Connection
from penstock.net.server.limits import LogRateLimiter
from penstock.security.delegation_token import TokenLogins
from penstock.security.principal import ANONYMOUS, Principal, SslPrincipalMapper
from penstock.security.sasl.gssapi import KeytabSettings
from penstock.security.sasl.mechanisms import MECHANISMS
from penstock.security.sasl.server import ServerContext
from penstock.security.scram_credential import random_text

logger = logging.getLogger(__name__)

_NONCE_BITS = 130
_LINGER_S = 0.2
"""Some clients do not read a response that arrives together with the end of the stream."""


class SessionFactory:
    """Creates sessions as the settings of each listener say."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        clock: Clock,
        audit_log: AuditLog | None = None,
        tokens: TokenLogins | None = None,
    ) -> None:
        self._config = config
        self._tokens = tokens
        self._audit_log = audit_log
        self._image = image
        self._clock = clock
        self.connection_quotas = ConnectionQuotas(config, image, clock)
        self._listeners = {spec.name: spec for spec in config.listeners}
        self.failed_logins: Counter[str] = Counter()
        """SASL logins that were refused, by listener."""
        self._decoys = DecoyCredentials(image)
        self.jwks = JwksCaches(clock)
        self._acceptors: dict[KeytabSettings, KeytabAcceptor] = {}
        self._log_limiter = LogRateLimiter()
        self._mechanisms = self._create_mechanisms()
        self._mappers = {
            spec.name: SslPrincipalMapper(
                config.listener_setting(spec.name, "ssl.principal.mapping.rules") or "DEFAULT"
            )
            for spec in config.listeners
        }
        config.subscribe("", lambda _: self._reconfigure())

    def _reconfigure(self) -> None:
        """Applies changed settings to new connections."""
        self.connection_quotas.reconfigure()
        try:
            self._mechanisms = self._create_mechanisms()
        except KafkaError as error:
            logger.error("the SASL settings in force stay: %s", error.message)

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows the SCRAM credentials of users."""
        self._decoys.apply(changes)

    def open(self, connection: Connection) -> Session:
        """Returns the session of a new connection; sets whether it is authenticated."""
        peer = connection.peer
        spec = self._listeners[peer.listener]
        session = Session(
            spec.name,
            spec.protocol,
            peer.host,
            f"{peer.host}:{peer.port}",
            lambda reason: _close_soon(connection, reason),
            has_left=lambda: connection.has_peer_closed,
        )
        if spec.protocol.sasl:
            session.authenticator = SaslServerAuthenticator(
                self._mechanisms[spec.name],
                lambda user, mechanism: self._log_in(connection, session, user, mechanism),
                clock=self._clock,
                max_reauth_ms=lambda mechanism: self._max_reauth_ms(spec, mechanism),
                on_failure=partial(self._refuse, session),
            )
            return session
        connection.authenticated = True
        if peer.tls_subject is not None:
            try:
                name = self._mappers[spec.name].name(peer.tls_subject)
            except KafkaError as error:
                if self._audit_log is not None:
                    self._audit_log.login_failed(session, TLS, peer.tls_subject, error)
                connection.close(error.message)
            else:
                session.principal = Principal(ANONYMOUS.kind, name)
                if self._audit_log is not None:
                    self._audit_log.login(session, TLS)
        return session

    def handshake_failed(self, connection: Connection, reason: str) -> None:
        """Notes a client whose TLS handshake failed."""
        if self._audit_log is not None:
            peer = connection.peer
            self._audit_log.handshake_failed(peer.host, peer.listener, reason)

    def _log_in(self, connection: Connection, session: Session, user: str, mechanism: str) -> None:
        session.principal = Principal(ANONYMOUS.kind, user)
        connection.authenticated = True
        if self._audit_log is not None:
            self._audit_log.login(session, mechanism)

    def _refuse(self, session: Session, mechanism: str, user: str, error: KafkaError) -> None:
        self.failed_logins[session.listener] += 1
        if self._audit_log is not None:
            self._audit_log.login_failed(session, mechanism, user, error)

    def _max_reauth_ms(self, spec: ListenerSpec, mechanism: str) -> int:
        value = self._config.listener_value(spec.name, "connections.max.reauth.ms", mechanism)
        return value if isinstance(value, int) else 0

    def _create_mechanisms(self) -> dict[str, dict[str, NewServer]]:
        """Returns the mechanisms by listener; raises KafkaError if their settings are invalid."""
        return {
            spec.name: {
                name: MECHANISMS[name].create(self._server_context(spec))
                for name in self._config.sasl_mechanisms(spec.name)
            }
            for spec in self._config.listeners
            if spec.protocol.sasl
        }

    def _server_context(self, spec: ListenerSpec) -> ServerContext:
        return ServerContext(
            setting=lambda name, mechanism: self._config.listener_setting(
                spec.name, name, mechanism
            ),
            user_configs=lambda user: self._image.config("users", user),
            new_nonce=lambda: random_text(secrets.randbits(_NONCE_BITS)),
            decoys=self._decoys,
            now_ms=self._clock.now_ms,
            keys_of=self.jwks.get,
            acceptor_of=self._acceptor,
            report=lambda reason: self._report(spec, reason),
            tokens=self._tokens,
        )

    def _acceptor(self, settings: KeytabSettings) -> KeytabAcceptor:
        """Returns what accepts tickets with a keytab, which other changes do not open again."""
        if settings not in self._acceptors:
            self._acceptors[settings] = KeytabAcceptor(settings)
        return self._acceptors[settings]

    def _report(self, spec: ListenerSpec, reason: str) -> None:
        suppressed = self._log_limiter.allow("refused login", self._clock.monotonic_ms())
        if suppressed is not None:
            more = f" ({suppressed} more not logged)" if suppressed else ""
            logger.warning("listener %s: a login was refused: %s%s", spec.name, reason, more)


def _close_soon(connection: Connection, reason: str) -> None:
    """Closes a connection when its client has had time to read the last response."""
    asyncio.get_running_loop().call_later(_LINGER_S, connection.close_after_responses, reason)
