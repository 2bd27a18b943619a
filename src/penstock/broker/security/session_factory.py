"""Who connects: the session of a new connection, and how its client may log in (X1, X2)."""

import asyncio
import logging
import secrets
from collections.abc import Callable

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.listeners import ListenerSpec
from penstock.broker.request import Session
from penstock.broker.security.connection_quotas import ConnectionQuotas
from penstock.broker.security.sasl_authenticator import NewServer, SaslServerAuthenticator
from penstock.controller.image import ClusterImage
from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.net.server.connection import Connection
from penstock.security.jaas import plain_users
from penstock.security.plain import PLAIN, PlainServer
from penstock.security.principal import ANONYMOUS, Principal, SslPrincipalMapper
from penstock.security.scram import ScramServer
from penstock.security.scram_credential import ScramCredential, ScramMechanism, random_text

logger = logging.getLogger(__name__)

_NONCE_BITS = 130
_LINGER_S = 0.2
"""Some clients do not read an answer whose end of stream came with it."""


class SessionFactory:
    """Makes sessions, by what the settings of each listener say."""

    def __init__(self, config: BrokerConfig, image: ClusterImage, clock: Clock) -> None:
        self._config = config
        self._image = image
        self._clock = clock
        self.connection_quotas = ConnectionQuotas(config, image, clock)
        """How fast clients may connect."""
        self._listeners = {spec.name: spec for spec in config.listeners}
        self._decoy_secret = secrets.token_bytes(32)
        self._mechanisms = self._all_mechanisms()
        self._mappers = {
            spec.name: SslPrincipalMapper(
                config.listener_setting(spec.name, "ssl.principal.mapping.rules") or "DEFAULT"
            )
            for spec in config.listeners
        }
        config.subscribe("", lambda _: self._reconfigured())

    def _reconfigured(self) -> None:
        """Settings have changed: they hold for who connects from now on."""
        self.connection_quotas.reconfigure()
        try:
            self._mechanisms = self._all_mechanisms()
        except KafkaError as error:
            logger.error("log-ins go on as before: %s", error.message)

    def open(self, connection: Connection) -> Session:
        peer = connection.peer
        spec = self._listeners[peer.listener]
        session = Session(
            spec.name,
            spec.protocol,
            peer.host,
            f"{peer.host}:{peer.port}",
            lambda reason: _end_soon(connection, reason),
        )
        if spec.protocol.sasl:
            session.authenticator = SaslServerAuthenticator(
                self._mechanisms[spec.name],
                self._logged_in(connection, session),
                now_ms=self._clock.monotonic_ms,
                max_reauth_ms=self._max_reauth_ms(spec),
            )
        else:
            connection.authenticated = True
            if peer.tls_subject is not None:
                self._name(connection, session, peer.tls_subject)
        return session

    def _name(self, connection: Connection, session: Session, subject: str) -> None:
        """Who shows a certificate goes by the name in it, as the listener's rules write it."""
        try:
            name = self._mappers[session.listener].name(subject)
        except KafkaError as error:
            connection.close(error.message)
        else:
            session.principal = Principal(ANONYMOUS.kind, name)

    def _max_reauth_ms(self, spec: ListenerSpec) -> Callable[[str], int]:
        def of_mechanism(mechanism: str) -> int:
            value = self._config.listener_value(spec.name, "connections.max.reauth.ms", mechanism)
            return value if isinstance(value, int) else 0

        return of_mechanism

    @staticmethod
    def _logged_in(connection: Connection, session: Session) -> Callable[[str], None]:
        def logged_in(user: str) -> None:
            session.principal = Principal(ANONYMOUS.kind, user)
            connection.authenticated = True

        return logged_in

    def _all_mechanisms(self) -> dict[str, dict[str, NewServer]]:
        return {
            spec.name: self._new_servers(spec)
            for spec in self._config.listeners
            if spec.protocol.sasl
        }

    def _new_servers(self, spec: ListenerSpec) -> dict[str, NewServer]:
        """The mechanisms of a listener; KafkaError where its settings will not do."""
        servers: dict[str, NewServer] = {}
        for name in self._config.sasl_mechanisms(spec.name):
            mechanism = ScramMechanism.of_name(name)
            servers[name] = self._plain(spec) if mechanism is None else self._scram(mechanism)
        return servers

    def _plain(self, spec: ListenerSpec) -> NewServer:
        text = self._config.listener_setting(spec.name, "sasl.jaas.config", PLAIN)
        users = plain_users(text or "")
        return lambda: PlainServer(users)

    def _scram(self, mechanism: ScramMechanism) -> NewServer:
        def credential(user: str) -> ScramCredential | None:
            text = self._image.config("users", user).get(mechanism.mechanism_name)
            return None if text is None else ScramCredential.from_text(text)

        return lambda: ScramServer(
            mechanism,
            credential,
            random_text(secrets.randbits(_NONCE_BITS)),
            self._decoy_secret,
        )


def _end_soon(connection: Connection, reason: str) -> None:
    """Ends a connection when its client has had the time to read why, unless it goes by itself."""
    asyncio.get_running_loop().call_later(_LINGER_S, connection.close_after_replies, reason)
