"""Logins of confluent-kafka and kafka-python, with every mechanism, with and without TLS."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.broker.in_process import running_broker
from tests.support.broker.logins import PLAIN_JAAS, set_password
from tests.support.protocol.admin import create_topic

with warnings.catch_warnings():
    # It loads its schemas with an API that is deprecated in Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.errors import KafkaTimeoutError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class SecuredBroker(NamedTuple):
    """The addresses and the trusted certificate for clients."""

    ports: dict[str, int]
    authority: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    directory = tmp_path_factory.mktemp("logins")
    authority = make_identity(simple_name("authority"))
    server = make_identity(simple_name("localhost"), authority)
    (directory / "authority.pem").write_text(authority.certificate_pem)
    (directory / "server.pem").write_text(server.key_pem() + server.certificate_pem)
    settings = {
        "listeners": ",".join(f"{name}://localhost:0" for name in ("PLAINTEXT", *PROTOCOLS)),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.jaas.config": PLAIN_JAAS,
        "connection.failed.authentication.delay.ms": "10",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "server.pem"),
    }
    with running_broker(directory, settings) as broker:
        with broker.connect("PLAINTEXT") as admin:
            create_topic(admin, "t")
            for mechanism in ScramMechanism:
                assert set_password(admin, mechanism, "ann", "ann-secret").error_code == 0
        yield SecuredBroker(
            {address.listener: address.port for address in broker.addresses},
            directory / "authority.pem",
        )


# --- confluent-kafka


def confluent_settings(
    secured: SecuredBroker, protocol: str, mechanism: str, password: str
) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": f"localhost:{secured.ports[protocol]}",
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": password,
        "ssl.ca.location": str(secured.authority),
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in(secured: SecuredBroker, protocol: str, mechanism: str) -> None:
    """M4, X2."""
    settings = confluent_settings(secured, protocol, mechanism, "ann-secret")
    reports: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce("t", b"v", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(15) == 0
    assert reports == [None]
    assert "t" in AdminClient(settings).list_topics(timeout=10).topics


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_reports_a_wrong_password(
    secured: SecuredBroker, protocol: str, mechanism: str
) -> None:
    """E3."""
    errors: list[KafkaError] = []
    settings = confluent_settings(secured, protocol, mechanism, "wrong")
    consumer = Consumer({**settings, "group.id": "g", "error_cb": errors.append})
    try:
        consumer.subscribe(["t"])
        for _ in range(100):
            consumer.poll(0.1)
            if errors:
                break
    finally:
        consumer.close()
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "wrong user name or password" in errors[0].str()


# --- kafka-python


def kafka_python_settings(
    secured: SecuredBroker, protocol: str, mechanism: str, password: str
) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap_servers": f"localhost:{secured.ports[protocol]}",
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ann",
        "sasl_plain_password": password,
        "ssl_cafile": str(secured.authority),
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(secured: SecuredBroker, protocol: str, mechanism: str) -> None:
    """M4, X2."""
    settings = kafka_python_settings(secured, protocol, mechanism, "ann-secret")
    producer = KafkaProducer(**settings)
    try:
        assert producer.send("t", b"v").get(timeout=15).topic == "t"
    finally:
        producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_reports_a_wrong_password(
    secured: SecuredBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """E3: it retries until its timeout, and logs the message of the broker every time."""
    settings = kafka_python_settings(secured, "SASL_PLAINTEXT", mechanism, "wrong")
    with pytest.raises(KafkaTimeoutError):
        KafkaAdminClient(**settings, bootstrap_timeout_ms=1000)
    attempts = [line for line in caplog.messages if line.startswith("Bootstrap connection")]
    assert "wrong user name or password" in attempts[0]
    assert not any("disconnected" in line for line in attempts), attempts
