"""SASL SCRAM: proves knowledge of the password without sending it (RFC 5802, RFC 7677)."""

import base64
import binascii
import functools
import re
import secrets
from collections.abc import Callable
from hmac import compare_digest
from typing import Final, TypeAlias

from penstock.net.client.errors import AuthenticationError
from penstock.net.client.sasl.client import ClientMechanism, SaslClient, SaslSettings
from penstock.net.client.sasl.credentials import (
    PASSWORD_SETTINGS,
    Credentials,
    password_credentials,
)
from penstock.security.jaas import SCRAM_LOGIN_MODULE
from penstock.security.sasl.scram import encode_saslname
from penstock.security.scram_credential import (
    MIN_ITERATIONS,
    ScramMechanism,
    random_text,
    salted_password,
)

_MAX_ITERATIONS: Final = 1_000_000
"""Limits the work that a broker can demand before it has proved anything."""

_CACHED_PASSWORDS: Final = 4
"""Brokers have the same salt for a user, unless the password has just been changed."""

SaltedPassword: TypeAlias = Callable[[bytes, int], bytes]
"""Returns the salted password for a salt and a number of iterations."""

_GS2_HEADER: Final = "n,,"
_VALUE: Final = r"[^,\0]+"
_SERVER_FIRST: Final = re.compile(
    rf"(?P<mandatory>m={_VALUE},)?r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9/+=]+),"
    rf"i=(?P<iterations>[1-9][0-9]{{0,9}})(?:,[A-Za-z]+={_VALUE})*"
)
_SERVER_FINAL: Final = re.compile(
    rf"(?:e=(?P<error>{_VALUE})|v=(?P<verifier>[A-Za-z0-9/+=]+))(?:,[A-Za-z]+={_VALUE})*"
)


class ScramClient:
    """Proves that it knows the password, and demands the same proof from the broker."""

    prepare = None

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Credentials,
        nonce: str,
        derive: SaltedPassword | None = None,
    ) -> None:
        """`nonce` must be a new random text for each login; see `random_nonce`.

        `derive` returns the salted password, perhaps one that an earlier login has derived.
        """
        self.mechanism = mechanism.mechanism_name
        self.user = credentials.user
        self._mechanism = mechanism
        self._derive = derive or functools.partial(salted_password, mechanism, credentials.password)
        self._nonce = nonce
        token = ",tokenauth=true" if credentials.is_token else ""
        self._first_bare = f"n={encode_saslname(credentials.user)},r={nonce}{token}"
        self._server_signature: bytes | None = None
        self._is_complete = False

    def initial_response(self) -> bytes:
        return (_GS2_HEADER + self._first_bare).encode()

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        if self._is_complete:
            raise self._error("the broker sent another challenge after the login has ended")
        try:
            message = challenge.decode()
        except UnicodeDecodeError:
            raise self._error("the broker's message is not UTF-8") from None
        if self._server_signature is None:
            return self._proof(message)
        self._verify_broker(message, self._server_signature)
        self._is_complete = True
        return None

    def _proof(self, message: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(message)
        if match is None:
            raise self._error("the broker's first message cannot be read")
        if match["mandatory"]:
            raise self._error("the broker demands an extension that this client does not support")
        nonce = match["nonce"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._error("the broker's nonce does not start with this client's")
        iterations = int(match["iterations"])
        if not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise self._error(
                f"the broker demands {iterations} iterations, allowed are {MIN_ITERATIONS} to "
                f"{_MAX_ITERATIONS}: set the user's password again with a count in that range"
            )
        mechanism = self._mechanism
        salted = self._derive(self._decode_base64(match["salt"]), iterations)
        binding = base64.b64encode(_GS2_HEADER.encode()).decode()
        final = f"c={binding},r={nonce}"
        signed = f"{self._first_bare},{message},{final}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        signature = mechanism.hmac(mechanism.hash(client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _verify_broker(self, message: str, expected: bytes) -> None:
        match = _SERVER_FINAL.fullmatch(message)
        if match is None:
            raise self._error("the broker's last message cannot be read")
        if match["error"] is not None:
            raise self._error(
                f"the broker says {match['error']}: check the user name and the password"
            )
        if not compare_digest(self._decode_base64(match["verifier"]), expected):
            raise self._error(
                "the broker does not know the password and may be an impostor: "
                "check `bootstrap_servers`, and use `security_protocol`=SASL_SSL"
            )

    def _decode_base64(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise self._error("the broker's message is not valid base64") from None

    def _error(self, reason: str) -> AuthenticationError:
        return AuthenticationError(
            f"the login of user {self.user} with {self.mechanism} failed: {reason}"
        )


def random_nonce() -> str:
    return random_text(secrets.randbits(130))


def _create(mechanism: ScramMechanism, settings: SaslSettings) -> Callable[[str], SaslClient]:
    credentials = password_credentials(settings, SCRAM_LOGIN_MODULE)
    # Several milliseconds, in which a client does nothing else: once, not for each connection.
    derive = functools.lru_cache(_CACHED_PASSWORDS)(
        functools.partial(salted_password, mechanism, credentials.password)
    )
    return lambda host: ScramClient(mechanism, credentials, random_nonce(), derive)


SCRAM_MECHANISMS: Final = tuple(
    ClientMechanism(
        mechanism.mechanism_name, PASSWORD_SETTINGS, functools.partial(_create, mechanism)
    )
    for mechanism in ScramMechanism
)
