"""SASL SCRAM: a challenge that proves the password without sending it (RFC 5802, RFC 7677, X2)."""

import base64
import binascii
import re
from collections.abc import Callable
from hmac import compare_digest
from typing import NamedTuple

from penstock.core.errors import KafkaError
from penstock.security.delegation_token import TokenLogins
from penstock.security.sasl.server import (
    SaslServer,
    ServerContext,
    ServerMechanism,
    already_ended,
    authentication_error,
    bad_credentials,
    not_done,
)
from penstock.security.scram_credential import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
)

CredentialLookup = Callable[[str], tuple[ScramCredential, bool]]
"""Returns the credential of a user, or a decoy, and whether the user exists."""

_SASLNAME = r"(?:[^\0=,]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^\0,]+)*"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>(?P<binding>[ny]|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>{_SASLNAME}))?,)"
    rf"(?P<bare>(?P<reserved>m=[^\0,]+,)?n=(?P<name>{_SASLNAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))",
    re.DOTALL,
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<header>[A-Za-z0-9/+=]+),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
    r",p=(?P<proof>[A-Za-z0-9/+=]+)",
    re.DOTALL,
)
_TOKEN_AUTH = "tokenauth=true"


def decode_saslname(name: str) -> str:
    """Returns the user name that a message encodes."""
    return name.replace("=2C", ",").replace("=3D", "=")


def encode_saslname(user: str) -> str:
    """Returns a user name as messages encode it: without commas and equals signs."""
    return user.replace("=", "=3D").replace(",", "=2C")


class _Login(NamedTuple):
    """Who logs in, and with what."""

    name: str | None
    """None if there is no such user or token: no password is right then."""
    credential: ScramCredential
    is_token: bool = False
    expires_ms: int | None = None
    is_expired: bool = False


class _Exchange(NamedTuple):
    """The state between the first and the final message."""

    login: _Login
    header: bytes
    nonce: str
    messages: str
    """The client's first message without its header, a comma, the server's first message."""


class ScramServer:
    """Checks that the client knows a password, and proves that the server has its credential."""

    prepare = None

    def __init__(
        self,
        mechanism: ScramMechanism,
        lookup: CredentialLookup,
        nonce: str,
        tokens: TokenLogins | None = None,
    ) -> None:
        """`nonce` is new for each login."""
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = nonce
        self._tokens = tokens
        self._exchange: _Exchange | None = None
        self._login: _Login | None = None
        self.claimed_name: str | None = None
        self._ended = False

    @property
    def mechanism(self) -> str:
        return self._mechanism.mechanism_name

    @property
    def done(self) -> bool:
        return self._login is not None

    @property
    def principal_name(self) -> str:
        if self._login is None or self._login.name is None:
            raise not_done(self.mechanism)
        return self._login.name

    @property
    def expires_ms(self) -> int | None:
        return None if self._login is None else self._login.expires_ms

    @property
    def token_id(self) -> str | None:
        is_token = self._login is not None and self._login.is_token
        return self.claimed_name if is_token else None

    def step(self, response: bytes) -> bytes:
        if self._ended:
            raise already_ended(self.mechanism)
        self._ended = True  # unless this step leads to a next one
        try:
            message = response.decode()
        except UnicodeDecodeError as error:
            raise authentication_error(
                f"invalid {self.mechanism} message: it is not UTF-8"
            ) from error
        exchange = self._exchange
        if exchange is None:
            self._exchange, challenge = self._first(message)
            self._ended = False
            return challenge.encode()
        self._exchange = None
        return self._final(exchange, message).encode()

    def _first(self, message: str) -> tuple[_Exchange, str]:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise authentication_error(f"invalid first message of a {self.mechanism} client")
        if match["binding"].startswith("p"):
            raise authentication_error(
                "channel binding is not supported; use a mechanism without -PLUS"
            )
        if match["reserved"]:
            raise authentication_error(
                "the client needs a mandatory SCRAM extension that is not supported"
            )
        user = self.claimed_name = decode_saslname(match["name"])
        authzid = decode_saslname(match["authzid"] or "")
        if authzid not in ("", user):
            raise authentication_error(
                "authentication failed: the authorization id must be empty or the user name"
            )
        if _TOKEN_AUTH in match["extensions"].lower().split(","):
            login = self._find_token(user)
        else:
            credential, is_known = self._lookup(user)
            login = _Login(user if is_known else None, credential)
        nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(login.credential.salt).decode()
        challenge = f"r={nonce},s={salt},i={login.credential.iterations}"
        header = match["header"].encode()
        messages = f"{match['bare']},{challenge}"
        return _Exchange(login, header, nonce, messages), challenge

    def _find_token(self, token_id: str) -> _Login:
        if self._tokens is None or not self._tokens.is_enabled:
            raise authentication_error(
                "delegation tokens are disabled on this broker: set delegation.token.secret.key "
                "there, or log in with user name and password"
            )
        credential, owner, expires_ms, is_expired = self._tokens.login(self._mechanism, token_id)
        return _Login(owner, credential, True, expires_ms, is_expired)

    def _final(self, exchange: _Exchange, message: str) -> str:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            raise authentication_error(f"invalid final message of a {self.mechanism} client")
        try:
            header = base64.b64decode(match["header"], validate=True)
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error as error:
            raise authentication_error(
                f"invalid base64 in a message of a {self.mechanism} client"
            ) from error
        if not compare_digest(match["nonce"], exchange.nonce):
            raise authentication_error(
                f"the nonce of the {self.mechanism} client is not the server's"
            )
        if header != exchange.header:
            raise authentication_error(
                "the client's channel binding differs from the one it announced"
            )
        credential = exchange.login.credential
        signed = f"{exchange.messages},{match['without_proof']}".encode()
        signature = self._mechanism.hmac(credential.stored_key, signed)
        if len(proof) != len(signature):
            raise self._refusal(exchange.login)
        client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
        is_right = compare_digest(self._mechanism.hash(client_key), credential.stored_key)
        if not is_right or exchange.login.name is None:
            raise self._refusal(exchange.login)
        if exchange.login.is_expired:
            raise authentication_error("the delegation token has expired; create another")
        self._login = exchange.login
        verifier = self._mechanism.hmac(credential.server_key, signed)
        return f"v={base64.b64encode(verifier).decode()}"

    def _refusal(self, login: _Login) -> KafkaError:
        if not login.is_token:
            return bad_credentials(self.mechanism)
        return authentication_error(
            "authentication failed: wrong id or HMAC of a delegation token, or the token has ended"
            f" (SASL mechanism {self.mechanism})"
        )


def _mechanism(mechanism: ScramMechanism) -> ServerMechanism:
    name = mechanism.mechanism_name

    def create(context: ServerContext) -> Callable[[], SaslServer]:
        def lookup(user: str) -> tuple[ScramCredential, bool]:
            text = context.user_configs(user).get(name)
            # Created in any case: an unknown user must take as long as a known one.
            decoy = context.decoys.scram_credential(name, user)
            credential = ScramCredential.from_text(decoy if text is None else text)
            if credential.iterations < MIN_ITERATIONS:
                return ScramCredential.from_text(decoy), False
            return credential, text is not None

        return lambda: ScramServer(mechanism, lookup, context.new_nonce(), context.tokens)

    return ServerMechanism(name, create)


SCRAM_SHA_256_MECHANISM = _mechanism(ScramMechanism.SCRAM_SHA_256)
SCRAM_SHA_512_MECHANISM = _mechanism(ScramMechanism.SCRAM_SHA_512)
