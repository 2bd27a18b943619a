"""A token endpoint and a JWKS on a free port, with keys that can be rotated."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "penstock"
ISSUER = "https://issuer.test"
SECRET = "s3cret"


class Provider:
    """Issues tokens to any client that knows `SECRET`; the client's id becomes the subject."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lifetime_s = 3600.0
        self.key_requests = 0
        self.token_requests = 0
        self.rotate("key-1")

    def rotate(self, key_id: str) -> None:
        """Replaces the key: tokens of the old one are not to be accepted any more."""
        self.key_id = key_id
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def jwks(self) -> bytes:
        public: dict[str, Any] = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**public, "kid": self.key_id, "use": "sig"}]}).encode()

    def token(self, subject: str = "ann", **claims: object) -> str:
        now = time.time()
        values = {
            "sub": subject,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + self.lifetime_s,
            **claims,
        }
        return jwt.encode(values, self.key, "RS256", {"kid": self.key_id})

    def broker_settings(self) -> dict[str, str]:
        return {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.url}/jwks",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connection.failed.authentication.delay.ms": "10",
        }


@contextmanager
def running_provider() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.key_requests += 1
            self._send(200, provider.jwks)

        def do_POST(self) -> None:
            provider.token_requests += 1
            self.rfile.read(int(self.headers["Content-Length"]))
            kind, _, encoded = self.headers["Authorization"].partition(" ")
            client, _, secret = base64.b64decode(encoded).decode().partition(":")
            if kind != "Basic" or secret != SECRET:
                self._send(401, b'{"error":"invalid_client"}')
                return
            token = provider.token(client)
            response = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
            self._send(200, json.dumps(response).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = Provider(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
