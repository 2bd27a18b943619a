"""Key stores and trust stores as PEM: reads PEM and PKCS12, and explains how to convert JKS."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_PEM_ENTRY: Final = re.compile(
    rb"(-----BEGIN [^-]+-----)\s+([A-Za-z0-9/+=\s]*?)\s*(-----END [^-]+-----)\s*"
)
_JKS_MAGIC: Final = bytes.fromhex("feedfeed")


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def read_store(setting: str, path: str) -> bytes:
    """Returns the content of the file that a setting such as `ssl.keystore.location` names."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise invalid(f"{setting}={path} cannot be read: {error.strerror}") from None


def key_store_to_pem(path: str, data: bytes, password: str | None) -> bytes:
    """Returns the unencrypted private key and the certificates of a PKCS12 key store."""
    store = _open_pkcs12("ssl.keystore", path, data, password)
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    if store.key is None or store.cert is None:
        raise invalid(f"ssl.keystore.location={path} has no private key with a certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key + b"".join(
        entry.certificate.public_bytes(Encoding.PEM)
        for entry in (store.cert, *store.additional_certs)
    )


def trust_store_to_pem(path: str, data: bytes, password: str | None) -> bytes:
    """Returns all certificates of a PKCS12 trust store."""
    store = _open_pkcs12("ssl.truststore", path, data, password)
    from cryptography.hazmat.primitives.serialization import Encoding

    entries = [*([store.cert] if store.cert else []), *store.additional_certs]
    if not entries:
        raise invalid(f"ssl.truststore.location={path} has no certificate in it")
    return b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in entries)


def with_lines(pem: bytes) -> bytes:
    """Returns PEM whose keys and certificates are broken into lines, as OpenSSL needs them.

    Java accepts any white space, such as the blanks of a value in one line of a properties file.
    """

    def broken(match: re.Match[bytes]) -> bytes:
        content = b"".join(match[2].split())
        lines = [content[at : at + 64] for at in range(0, len(content), 64)]
        return b"\n".join([match[1], *lines, match[3], b""])

    return _PEM_ENTRY.sub(broken, pem)


def check_format(store: str, path: str, data: bytes) -> None:
    """A store of type JKS may be PKCS12 in truth, as Java allows; a real JKS cannot be read."""
    if data.startswith(_JKS_MAGIC):
        raise invalid(
            f"{store}.location={path} is a JKS store, which only Java can read. Convert it: "
            f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 "
            f"-deststoretype PKCS12, then set {store}.location={path}.p12 and {store}.type=PKCS12"
        )


def _open_pkcs12(
    store: str, path: str, data: bytes, password: str | None
) -> "PKCS12KeyAndCertificates":
    check_format(store, path, data)
    if b"-----BEGIN " in data:
        raise invalid(f"{store}.location={path} is in PEM: set {store}.type=PEM")
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise invalid(
            f"{store}.location={path} is a PKCS12 store, which needs the package `cryptography`: "
            "install it, or convert the store: "
            f"openssl pkcs12 -in {path} -out {path}.pem -nodes, then set {store}.type=PEM"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError as error:
        raise invalid(
            f"{store}.location={path} cannot be opened as PKCS12, is {store}.password right? "
            f"({error})"
        ) from None


@contextlib.contextmanager
def as_file(data: bytes) -> Iterator[str]:
    """Yields a path for bytes, for functions that only take a file; on Linux it is not on disk."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("penstock-store")
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(data)
        temporary.flush()
        yield temporary.name
