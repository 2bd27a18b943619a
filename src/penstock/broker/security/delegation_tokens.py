"""The delegation tokens of the cluster, as this broker uses them (KIP-48, X2).

The store has no secrets of tokens: their HMACs, and the SCRAM credentials for logins with them,
are computed from `delegation.token.secret.key`.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.delegation_token_config import token_rules, token_secret
from penstock.broker.request import Session
from penstock.broker.workers import Workers
from penstock.controller.delegation_tokens import is_expired
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Change,
    DelegationTokenKey,
    DelegationTokenRecord,
    Delete,
    Put,
    SecurityProtocol,
)
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.delegation_token import (
    TokenLogin,
    decoy_token_credential,
    token_credential,
    token_hmac,
)
from penstock.security.principal import ANONYMOUS, Principal
from penstock.security.scram_credential import ScramCredential, ScramMechanism

logger = logging.getLogger(__name__)


class DelegationTokens:
    """Finds tokens by their HMACs, and the credentials of logins with them."""

    def __init__(
        self, config: BrokerConfig, image: ClusterImage, clock: Clock, workers: Workers
    ) -> None:
        self._secret = token_secret(config)
        self.rules = token_rules(config)
        self._config = config
        self._image = image
        self._clock = clock
        self._workers = workers
        self._ids: dict[bytes, str] = {}
        """The ids of tokens by their HMACs."""
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        self._unprepared: set[str] = set()
        """The tokens whose credentials are still to be computed in the background."""
        self._task: asyncio.Task[None] | None = None
        self.apply(map(Put, image.delegation_tokens.values()))

    @property
    def is_enabled(self) -> bool:
        return bool(self._secret)

    def require_enabled(self) -> None:
        """Raises KafkaError if this broker has no secret."""
        if not self._secret:
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
                "this broker has no delegation tokens",
                remedy="set delegation.token.secret.key, the same on all brokers",
            )

    def hmac(self, token_id: str) -> bytes:
        """Returns the password of a token."""
        return token_hmac(self._secret, token_id)

    def find(self, image: ClusterImage, hmac: bytes) -> DelegationTokenRecord | None:
        """Returns the token with an HMAC; it may have expired."""
        token_id = self._ids.get(hmac)
        return None if token_id is None else image.delegation_tokens.get(token_id)

    def apply(self, changes: Iterable[Change]) -> None:
        """Follows the tokens that are stored."""
        if not self._secret:
            return
        for change in changes:
            match change:
                case Put(DelegationTokenRecord(token_id=token_id)):
                    hmac = self.hmac(token_id)
                    if hmac not in self._ids:
                        self._ids[hmac] = token_id
                        self._unprepared.add(token_id)
                case Delete(DelegationTokenKey(token_id)):
                    self._ids.pop(self.hmac(token_id), None)
                    self._unprepared.discard(token_id)
                    for mechanism in ScramMechanism:
                        self._credentials.pop((token_id, mechanism), None)
        if self._unprepared and self._task is None:
            self._task = asyncio.ensure_future(self._prepare_credentials())

    # --- logins

    def login(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin:
        """Returns the credential of a token, or a decoy with the same salt if there is none."""
        decoy = decoy_token_credential(mechanism, self._image.login_secret, token_id)
        token = self._image.delegation_tokens.get(token_id)
        if token is None:
            return TokenLogin(decoy, None)
        owner = Principal.parse(token.owner)
        if owner.kind != ANONYMOUS.kind:
            return TokenLogin(decoy, None)  # a login is always one of a user
        credential = self._credentials.get((token_id, mechanism))
        if credential is None:
            credential = self._compute(mechanism, token_id)
            self._credentials[token_id, mechanism] = credential
        return TokenLogin(
            credential,
            owner.name,
            min(token.expiry_ms, token.max_ms),
            is_expired(token, self._clock.now_ms()),
        )

    def _compute(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        decoy = decoy_token_credential(mechanism, self._image.login_secret, token_id)
        return token_credential(mechanism, self.hmac(token_id), decoy.salt)

    async def _prepare_credentials(self) -> None:
        """Computes the credentials of new tokens on a thread, before somebody logs in with them.

        The first login with a token would take longer otherwise, and tell that there is one.
        """
        try:
            while self._unprepared:
                token_id = self._unprepared.pop()
                for mechanism in self._mechanisms():
                    credential = await self._workers.run(
                        self._workers.compute, partial(self._compute, mechanism, token_id)
                    )
                    if token_id in self._image.delegation_tokens:
                        self._credentials[token_id, mechanism] = credential
        finally:
            self._task = None

    def _mechanisms(self) -> list[ScramMechanism]:
        """Returns the SCRAM mechanisms that some listener has."""
        names = {
            name
            for spec in self._config.listeners
            if spec.protocol.sasl
            for name in self._config.sasl_mechanisms(spec.name)
        }
        return [mechanism for mechanism in ScramMechanism if mechanism.mechanism_name in names]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def require_own_login(session: Session) -> None:
    """Raises KafkaError unless the client has proved who it is other than with a token.

    A token must not live on by means of others that it creates.
    """
    is_anonymous = session.principal == ANONYMOUS
    if (
        session.token_id is not None
        or session.security_protocol is SecurityProtocol.PLAINTEXT
        or (session.security_protocol is SecurityProtocol.SSL and is_anonymous)
    ):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "requests about delegation tokens need a login with SASL or a client certificate, and "
            "not with a token",
        )
