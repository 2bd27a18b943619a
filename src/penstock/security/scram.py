"""SASL SCRAM on the server's side (RFC 5802 and RFC 7677, X2)."""

import base64
import binascii
import re
from collections.abc import Callable
from hmac import compare_digest
from typing import NamedTuple

from penstock.security.sasl import bad_credentials, illegal_state, not_done, refused
from penstock.security.scram_credential import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    decoy_credential,
)

CredentialLookup = Callable[[str], ScramCredential | None]
"""The credential of a user; None where there is no such user."""

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
    """A user name as it is, from how SCRAM writes it."""
    return name.replace("=2C", ",").replace("=3D", "=")


def encode_saslname(user: str) -> str:
    """A user name as SCRAM writes it: without commas and equals signs."""
    return user.replace("=", "=3D").replace(",", "=2C")


class _Exchange(NamedTuple):
    """What the client's proof is about."""

    user: str
    credential: ScramCredential
    known: bool
    header: bytes
    nonce: str
    messages: str
    """The client's first message without its header, a comma, the server's first message."""


class ScramServer:
    """Checks that the client knows a password without either side sending it."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        lookup: CredentialLookup,
        nonce: str,
        decoy_secret: bytes,
    ) -> None:
        """`nonce` is fresh for each log-in; `decoy_secret` is the same for all of a broker's.

        `random_text(secrets.randbits(130))` makes a nonce.
        """
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = nonce
        self._decoy_secret = decoy_secret
        self._exchange: _Exchange | None = None
        self._name: str | None = None
        self._ended = False

    @property
    def mechanism(self) -> str:
        return self._mechanism.mechanism_name

    @property
    def done(self) -> bool:
        return self._name is not None

    @property
    def principal_name(self) -> str:
        if self._name is None:
            raise not_done(self.mechanism)
        return self._name

    def step(self, response: bytes) -> bytes:
        if self._ended:
            raise illegal_state(self.mechanism)
        self._ended = True  # unless this step leads to a next one
        try:
            message = response.decode()
        except UnicodeDecodeError as error:
            raise refused(f"invalid {self.mechanism} message: it is not UTF-8") from error
        exchange = self._exchange
        if exchange is None:
            self._exchange, reply = self._first(message)
            self._ended = False
            return reply.encode()
        self._exchange = None
        return self._final(exchange, message).encode()

    def _first(self, message: str) -> tuple[_Exchange, str]:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise refused(f"invalid first message of a {self.mechanism} client")
        if match["binding"].startswith("p"):
            raise refused("channel binding is not supported; use a mechanism without -PLUS")
        if match["reserved"]:
            raise refused("the client asks for a mandatory SCRAM extension that is not supported")
        if _TOKEN_AUTH in match["extensions"].lower().split(","):
            raise refused("delegation tokens are not supported; log in with user name and password")
        user = decode_saslname(match["name"])
        authzid = decode_saslname(match["authzid"] or "")
        if authzid not in ("", user):
            raise refused(
                "authentication failed: the authorization id must be empty or the user name"
            )
        found = self._lookup(user)
        known = found is not None and found.iterations >= MIN_ITERATIONS
        decoy = decoy_credential(self._mechanism, self._decoy_secret, user)
        credential = found if found is not None and known else decoy
        nonce = match["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        reply = f"r={nonce},s={salt},i={credential.iterations}"
        header = match["header"].encode()
        messages = f"{match['bare']},{reply}"
        return _Exchange(user, credential, known, header, nonce, messages), reply

    def _final(self, exchange: _Exchange, message: str) -> str:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            raise refused(f"invalid final message of a {self.mechanism} client")
        try:
            header = base64.b64decode(match["header"], validate=True)
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error as error:
            raise refused(f"invalid base64 in a message of a {self.mechanism} client") from error
        if not compare_digest(match["nonce"], exchange.nonce):
            raise refused(f"the nonce of the {self.mechanism} client is not the server's")
        if header != exchange.header:
            raise refused("the client's channel binding differs from the one it announced")
        credential = exchange.credential
        signed = f"{exchange.messages},{match['without_proof']}".encode()
        signature = self._mechanism.hmac(credential.stored_key, signed)
        if len(proof) != len(signature):
            raise bad_credentials(self.mechanism)
        client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
        right = compare_digest(self._mechanism.hash(client_key), credential.stored_key)
        if not (right and exchange.known):
            raise bad_credentials(self.mechanism)
        self._name = exchange.user
        verifier = self._mechanism.hmac(credential.server_key, signed)
        return f"v={base64.b64encode(verifier).decode()}"
