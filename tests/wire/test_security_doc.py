"""docs/security.md: its commands, settings and clients close a broker (X1 to X3)."""

import re
import shlex
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from penstock import client as penstock_client
from penstock.broker.config.broker_config import BrokerConfig
from penstock.client import Producer
from penstock.core.java_properties import parse_properties
from penstock.net.client.errors import AuthorizationError
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.broker.in_process import running_broker
from tests.support.client.cli import Cli

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
TLS_ALERT = b"\x15"
PASSWORDS = {"admin.password": "admin-secret", "ann.password": "ann-secret"}


def blocks(kind: str, section: str) -> list[str]:
    """Returns the code blocks of a section of the page."""
    text = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert text is not None, section
    return re.findall(rf"```{kind}\n(.*?)```", text[1], re.DOTALL)


def properties(text: str) -> dict[str, str]:
    return {name: value.value for name, value in parse_properties(text).items()}


def run(command: str, cli: Cli) -> None:
    """Runs a command line of the page, whose input is a file with a password."""
    words, _, password = command.removeprefix("$ penstock ").partition(" < ")
    cli(*shlex.split(words), stdin=PASSWORDS.get(password.strip(), ""))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A directory with the files of /etc/penstock."""
    authority = make_identity(simple_name("authority"))
    identity = make_identity(simple_name("broker"), authority)
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    (tmp_path / "broker.pem").write_text(identity.key_pem() + identity.certificate_pem)
    return tmp_path


def test_from_an_open_broker_to_a_closed_one(tmp_path: Path, keys: Path) -> None:
    section = "From an open broker to a closed one"
    server, admin = (
        text.replace("/etc/penstock", str(keys)) for text in blocks("properties", section)
    )
    first, second = (text.splitlines() for text in blocks("console", section))
    assert len(first) + len(server.splitlines()) == 10

    with running_broker(tmp_path) as broker:
        for command in first:
            run(command, Cli(broker.bootstrap_servers))

    (tmp_path / "server.properties").write_text(server)
    settings = {
        **properties(server),
        "listeners": "SASL_SSL://localhost:0",
        "group.initial.rebalance.delay.ms": "0",
    }
    with running_broker(tmp_path, settings) as broker:
        address = f"localhost:{broker.address[1]}"
        (tmp_path / "admin.properties").write_text(admin.replace("localhost:9093", address))
        for command in second:
            paths = re.sub(r"(\w+)\.properties", rf"{tmp_path}/\1.properties", command)
            run(paths, Cli())
        admin_cli = Cli("", "--command-config", str(tmp_path / "admin.properties"))
        for topic in ("orders", "secrets"):
            admin_cli("topic", "create", topic)

        names: dict[str, object] = {"Producer": Producer}
        own, spark = blocks("python", "SCRAM")
        own = own.replace("/etc/penstock", str(tmp_path)).replace("localhost:9093", address)
        exec(own, names)  # noqa: S102
        producer = names["producer"]
        assert isinstance(producer, penstock_client.Producer)
        with producer:
            assert producer.send("orders", b"value").result(30).offset == 0
            with pytest.raises(AuthorizationError):
                producer.send("secrets", b"value").result(30)

        options = re.findall(r"""^ +"kafka\.(.*?)": ["'](.*)["'],$""", spark, re.MULTILINE)
        assert options
        text = "".join(f"{name}={value}\n" for name, value in options)
        file = tmp_path / "spark.properties"
        file.write_text(text.replace("/etc/penstock", str(keys)).replace("localhost:9093", address))
        assert "orders" in Cli("", "--command-config", str(file))("topic", "list").stdout

        (librdkafka,) = blocks("ini", "SCRAM")
        librdkafka = librdkafka.replace("/etc/penstock", str(tmp_path))
        consumer = confluent_kafka.Consumer(
            {
                **properties(librdkafka.replace("localhost:9093", address)),
                "group.id": "reports",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        record = consumer.poll(30)
        consumer.close()
        assert record is not None
        assert (record.error(), record.value()) == (None, b"value")

        with broker.connect() as stranger:
            stranger.send(ApiVersionsRequest(), 0)
            assert stranger.sock.recv(1) in (TLS_ALERT, b"")


def test_plain(tmp_path: Path, keys: Path) -> None:
    server, _ = blocks("properties", "From an open broker to a closed one")
    (plain,) = blocks("properties", "PLAIN")
    settings = {
        **properties(server.replace("/etc/penstock", str(keys)) + plain),
        "listeners": "SASL_SSL://localhost:0",
    }
    with running_broker(tmp_path, settings) as broker:
        admin = confluent_kafka.admin.AdminClient(
            {
                "bootstrap.servers": f"localhost:{broker.address[1]}",
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(keys / "ca.pem"),
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": "admin-secret",
            }
        )
        assert admin.list_topics(timeout=30).brokers


def test_settings_of_one_listener(keys: Path) -> None:
    (page,) = blocks("properties", "Settings of one listener")
    config = BrokerConfig.from_properties(properties(page.replace("/etc/penstock", str(keys))))
    reauth = "connections.max.reauth.ms"
    assert config.listener_value("CLIENTS", reauth, "SCRAM-SHA-512") == 3_600_000
    assert config.listener_value("INTERNAL", reauth, "PLAIN") == 0
    assert config.listener_value("INTERNAL", "sasl.enabled.mechanisms") == ["PLAIN"]
