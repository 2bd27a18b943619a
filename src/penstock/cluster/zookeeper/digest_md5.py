"""The client side of SASL DIGEST-MD5 (RFC 2831), as ZooKeeper's servers use it (X2)."""

import hashlib
import re
from typing import Final

_SERVICE_NAME: Final = "zookeeper/zk-sasl-md5"
"""The `digest-uri`: ZooKeeper has the same one for all hosts."""
_DEFAULT_REALM: Final = "zk-sasl-md5"
_NONCE_COUNT: Final = "00000001"
_DIRECTIVE: Final = re.compile(rb'\s*([\w-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s,"]*))\s*(?:,|$)')


class SaslExchangeError(Exception):
    """The server's message is not what the mechanism allows next."""


class DigestMd5Exchange:
    """One login. The client begins with an empty message; the server then challenges it."""

    def __init__(self, username: str, password: str, client_nonce: str) -> None:
        self._username = username
        self._password = password
        self._client_nonce = client_nonce.encode()
        self._proof: str | None = None
        """The server's proof that it knows the password, once that is known."""
        self.is_complete = False

    def respond(self, challenge: bytes) -> bytes:
        """Returns the next message; none has to be sent when `is_complete` is set then.

        Raises `SaslExchangeError`.
        """
        directives = _parse(challenge)
        if self._proof is not None:
            if directives.get("rspauth") != self._proof.encode():
                raise SaslExchangeError("the server does not know the password")
            self.is_complete = True
            return b""
        nonce = directives.get("nonce")
        if nonce is None or directives.get("algorithm", b"md5-sess").lower() != b"md5-sess":
            raise SaslExchangeError("the server does not offer DIGEST-MD5")
        if b"auth" not in directives.get("qop", b"auth").replace(b" ", b"").split(b","):
            raise SaslExchangeError("the server requires a qop other than auth")
        realm = directives.get("realm", _DEFAULT_REALM.encode())
        self._proof = self._digest(realm, nonce, "")
        response = self._digest(realm, nonce, "AUTHENTICATE")
        return b",".join(
            (
                b"charset=utf-8",
                b'username="%s"' % _quote(self._username.encode()),
                b'realm="%s"' % _quote(realm),
                b'nonce="%s"' % _quote(nonce),
                f"nc={_NONCE_COUNT}".encode(),
                b'cnonce="%s"' % self._client_nonce,
                f'digest-uri="{_SERVICE_NAME}"'.encode(),
                b"maxbuf=65536",
                f"response={response}".encode(),
                b"qop=auth",
            )
        )

    def _digest(self, realm: bytes, nonce: bytes, method: str) -> str:
        secret = _md5(b":".join((_encode(self._username), realm, _encode(self._password)))).digest()
        session_key = _md5(b":".join((secret, nonce, self._client_nonce))).hexdigest()
        target = _md5(f"{method}:{_SERVICE_NAME}".encode()).hexdigest()
        parts = (
            session_key.encode(),
            nonce,
            _NONCE_COUNT.encode(),
            self._client_nonce,
            b"auth",
            target.encode(),
        )
        return _md5(b":".join(parts)).hexdigest()


def _md5(data: bytes) -> "hashlib._Hash":
    return hashlib.md5(data, usedforsecurity=False)


def _encode(text: str) -> bytes:
    """Returns ISO 8859-1 if the text is in it, else UTF-8: what the RFC has for digests."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quote(text: bytes) -> bytes:
    return text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _parse(challenge: bytes) -> dict[str, bytes]:
    directives: dict[str, bytes] = {}
    at = 0
    while at < len(challenge):
        match = _DIRECTIVE.match(challenge, at)
        if match is None:
            raise SaslExchangeError("the server sent a message that is not one of DIGEST-MD5")
        value = match[3] if match[2] is None else re.sub(rb"\\(.)", rb"\1", match[2])
        directives.setdefault(match[1].decode().lower(), value)
        at = match.end()
    return directives
