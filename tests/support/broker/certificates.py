"""Certificates for tests: a certificate authority and certificates that it signs."""

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

_START = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


class Identity(NamedTuple):
    """A key with its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str | None = None) -> str:
        protection = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection).decode()

    def pkcs12(self, password: str) -> bytes:
        protection = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"broker", self.key, self.certificate, None, protection
        )


def simple_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def make_identity(
    name: x509.Name,
    issuer: Identity | None = None,
    *,
    alternative_names: Sequence[str] = ("localhost",),
    end: datetime.datetime = _END,
) -> Identity:
    """Creates a certificate signed by `issuer`, or a self-signed authority without one."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.certificate.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_START)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if alternative_names:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in alternative_names])
        builder = builder.add_extension(names, critical=False)
    return Identity(key, builder.sign(issuer.key if issuer else key, hashes.SHA256()))
