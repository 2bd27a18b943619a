"""Certificates that cannot be trusted, with librdkafka, Java and our client: who says what (X2)."""

import datetime
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError as RdKafkaError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.client import Admin
from penstock.client.errors import ClientError
from tests.support.broker.certificates import Identity, make_identity, simple_name
from tests.support.broker.in_process import running_broker
from tests.support.kafka.broker import KafkaParts
from tests.support.kafka.tools import KafkaTools, Shell

pytestmark = pytest.mark.long

YESTERDAY = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)


class Certificates(NamedTuple):
    authority: Identity
    brokers: dict[str, Identity]
    clients: dict[str, Identity | None]


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    authority, other = (make_identity(simple_name(name)) for name in ("authority", "other"))
    name, client = simple_name("broker"), simple_name("client")
    return Certificates(
        authority,
        {
            "right": make_identity(name, authority),
            "unknown authority": make_identity(name, other),
            "self-signed": make_identity(name),
            "expired": make_identity(name, authority, end=YESTERDAY),
            "other host": make_identity(name, authority, alternative_names=["other.test"]),
        },
        {
            "right": make_identity(client, authority),
            "none": None,
            "unknown authority": make_identity(client, other),
            "self-signed": make_identity(client),
            "expired": make_identity(client, authority, end=YESTERDAY),
        },
    )


@pytest.fixture(scope="module")
def tools(kafka_parts: KafkaParts) -> Iterator[KafkaTools]:
    with KafkaTools(kafka_parts) as running:
        yield running


class Clients:
    """The same settings for three clients; each method returns its error, or nothing."""

    def __init__(self, tools: KafkaTools, directory: Path, address: str) -> None:
        self._tools = tools
        self._directory = directory
        self._address = address

    def errors(self, authority: Identity, identity: Identity | None) -> dict[str, str]:
        trusted = self._directory / "authority.pem"
        trusted.write_text(authority.certificate_pem)
        key = self._directory / "client.pem"
        if identity is not None:
            key.write_text(identity.key_pem() + identity.certificate_pem)
        path = key if identity is not None else None
        return {
            "ours": self._ours(trusted, path),
            "librdkafka": self._librdkafka(trusted, path),
            "java": self._java(trusted, path),
        }

    def _ours(self, trusted: Path, key: Path | None) -> str:
        try:
            with Admin(
                bootstrap_servers=self._address,
                security_protocol="SSL",
                ssl_cafile=str(trusted),
                ssl_certfile=None if key is None else str(key),
                ssl_keyfile=None if key is None else str(key),
                request_timeout_ms=5000,
            ) as admin:
                admin.list_topics()
        except ClientError as error:
            return str(error)
        return ""

    def _librdkafka(self, trusted: Path, key: Path | None) -> str:
        errors: list[str] = []

        def on_error(error: RdKafkaError) -> None:
            errors.append(error.str())

        settings: dict[str, Any] = {
            "bootstrap.servers": self._address,
            "security.protocol": "ssl",
            "ssl.ca.location": str(trusted),
            "error_cb": on_error,
        }
        if key is not None:
            settings |= {"ssl.certificate.location": str(key), "ssl.key.location": str(key)}
        quiet = logging.getLogger("librdkafka")  # it logs each of its many attempts
        quiet.disabled = True
        admin = AdminClient(settings, logger=quiet)
        try:
            admin.list_topics(timeout=3)
        except KafkaException as error:
            admin.poll(0.1)
            return " ".join([*errors, str(error)])
        return ""

    def _java(self, trusted: Path, key: Path | None) -> str:
        properties = self._directory / "client.properties"
        properties.write_text(
            "security.protocol=SSL\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={trusted}\n"
            + (f"ssl.keystore.type=PEM\nssl.keystore.location={key}\n" if key else "")
        )
        run = Shell(self._tools, self._address, properties).attempt("topics", "--list", timeout=60)
        return "" if run.exit == 0 else run.text


BROKER_CASES = {
    "right": {},
    "unknown authority": {
        "ours": "is not trusted",
        "librdkafka": "certificate verify failed",
        "java": "PKIX path",
    },
    "self-signed": {
        "ours": "is not trusted (self",
        "librdkafka": "certificate verify failed",
        "java": "PKIX path",
    },
    "expired": {
        "ours": "is not valid now (certificate has expired)",
        "librdkafka": "certificate verify failed",
        "java": "validity check failed",
    },
    "other host": {
        "ours": "is not for this host",
        "librdkafka": "certificate verify failed",
        "java": "No subject alternative DNS name matching localhost found",
    },
}


@pytest.mark.parametrize("case", BROKER_CASES)
def test_the_brokers_certificate(
    tools: KafkaTools,
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    case: str,
) -> None:
    identity = certificates.brokers[case]
    settings = {
        "listeners": "SSL://localhost:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
    }
    with running_broker(tmp_path, settings) as broker:
        clients = Clients(tools, tmp_path, f"localhost:{broker.addresses[0].port}")
        errors = clients.errors(certificates.authority, None)
    _check(errors, BROKER_CASES[case])
    assert ("TLS handshake failed" in caplog.text) == (case != "right")


CLIENT_CASES = {
    "right": {},
    "none": {"ours": "demands a client certificate", "librdkafka": "alert", "java": "SSL"},
    "unknown authority": {
        "ours": "demands a client certificate that it trusts",
        "librdkafka": "alert",
        "java": "SSL",
    },
    "self-signed": {
        "ours": "demands a client certificate that it trusts",
        "librdkafka": "alert",
        "java": "SSL",
    },
    "expired": {"ours": "the client certificate has expired", "librdkafka": "alert", "java": "SSL"},
}


@pytest.mark.parametrize("case", CLIENT_CASES)
def test_the_clients_certificate(
    tools: KafkaTools,
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    case: str,
) -> None:
    identity = certificates.brokers["right"]
    settings = {
        "listeners": "SSL://localhost:0",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem(),
        "ssl.keystore.certificate.chain": identity.certificate_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificates.authority.certificate_pem,
    }
    with running_broker(tmp_path, settings) as broker:
        clients = Clients(tools, tmp_path, f"localhost:{broker.addresses[0].port}")
        errors = clients.errors(certificates.authority, certificates.clients[case])
    _check(errors, CLIENT_CASES[case])
    assert ("TLS handshake failed" in caplog.text) == (case != "right")


def _check(errors: dict[str, str], expected: dict[str, str]) -> None:
    for client, error in errors.items():
        if not expected:
            assert error == "", client
        else:
            assert expected[client] in error, (client, error)
