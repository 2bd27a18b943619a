"""The client's side of SCRAM, as far as tests of the server need it."""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field


@dataclass
class ScramClient:
    """Logs in with a password. The attributes may be changed to make it misbehave."""

    digest: str
    """As hashlib names it."""
    user: str
    password: str
    nonce: str = "fyko+d2lbbFgONRv9qkxdawL"
    header: str = "n,,"
    extensions: str = ""
    bare: str = field(init=False, default="")
    server_signature: bytes = field(init=False, default=b"")

    def first(self) -> bytes:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={name},r={self.nonce}{self.extensions}"
        return (self.header + self.bare).encode()

    def final(self, challenge: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self.digest, self.password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        binding = base64.b64encode(self.header.encode()).decode()
        unproved = f"c={binding},r={fields['r']}"
        signed = f"{self.bare},{challenge.decode()},{unproved}".encode()
        client_key = hmac.digest(salted, b"Client Key", self.digest)
        stored_key = hashlib.new(self.digest, client_key).digest()
        signature = hmac.digest(stored_key, signed, self.digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.digest)
        self.server_signature = hmac.digest(server_key, signed, self.digest)
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()

    def accepts(self, verdict: bytes) -> bool:
        """Whether the server knows the password too."""
        return verdict == b"v=" + base64.b64encode(self.server_signature)
