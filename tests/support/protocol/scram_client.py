"""The client side of SCRAM, for tests of the server."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.security.sasl.scram import CredentialLookup
from penstock.security.scram_credential import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_from_salted_password,
    decoy_credential,
    salted_password,
)


def credential_lookup(
    mechanism: ScramMechanism, credentials: Mapping[str, ScramCredential]
) -> CredentialLookup:
    """Returns the lookup of a server that knows these users; others get decoys."""

    def lookup(user: str) -> tuple[ScramCredential, bool]:
        decoy = decoy_credential(mechanism, b"the broker's own", user, [])
        return credentials.get(user, decoy), user in credentials

    return lookup


@dataclass
class ScramClient:
    """A login with a password. Tests may change the attributes to make it misbehave."""

    digest: str
    """The name in hashlib."""
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
        without_proof = f"c={binding},r={fields['r']}"
        signed = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self.digest)
        stored_key = hashlib.new(self.digest, client_key).digest()
        signature = hmac.digest(stored_key, signed, self.digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.digest)
        self.server_signature = hmac.digest(server_key, signed, self.digest)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def accepts(self, verdict: bytes) -> bool:
        """Returns whether the server has proved that it knows the password."""
        return verdict == b"v=" + base64.b64encode(self.server_signature)


def credential_from_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """Returns the credential that the server stores for a password."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_from_salted_password(mechanism, salted, salt, iterations)
