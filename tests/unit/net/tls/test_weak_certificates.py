"""Certificates that OpenSSL refuses as weak: the error says which weakness it is (X1, E3)."""

import subprocess
from pathlib import Path

import pytest

from penstock.core.errors import KafkaError
from penstock.net.tls.settings import TlsSettings, build_context


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def new_key_store(directory: Path, digest: str) -> Path:
    """Returns a PEM file with a key and a certificate that an authority has signed."""
    new_key = ("req", "-newkey", "rsa:2048", "-nodes", "-sha256")
    openssl(directory, *new_key, "-x509", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(directory, *new_key, "-subj", "/CN=broker", "-keyout", "key.pem", "-out", "csr.pem")
    sign = ("x509", "-req", "-in", "csr.pem", "-CA", "ca.pem", "-CAkey", "ca.key")
    openssl(directory, *sign, "-CAcreateserial", f"-{digest}", "-out", "cert.pem")
    store = directory / "store.pem"
    store.write_bytes((directory / "key.pem").read_bytes() + (directory / "cert.pem").read_bytes())
    return store


def test_a_certificate_signed_with_sha1_is_refused_by_name(tmp_path: Path) -> None:
    store = new_key_store(tmp_path, "sha1")
    settings = TlsSettings(keystore_type="PEM", keystore_location=str(store))
    with pytest.raises(KafkaError, match=r"weak hash such as SHA-1.*SHA-256"):
        build_context(settings)


def test_the_same_certificate_with_sha256_is_accepted(tmp_path: Path) -> None:
    store = new_key_store(tmp_path, "sha256")
    build_context(TlsSettings(keystore_type="PEM", keystore_location=str(store)))
