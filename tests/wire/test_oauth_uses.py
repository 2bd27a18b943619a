"""OAUTHBEARER in producers, consumers, the command line, librdkafka and between brokers (X2)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from penstock.client import Admin, Consumer, Producer
from tests.support.broker.in_process import running_broker
from tests.support.client.cli import Cli
from tests.support.cluster.brokers import running_cluster
from tests.support.oauth.provider import SECRET, Provider, running_provider

_TOKEN_LIFETIME_S = 2.0
_LOAD_S = 5.0


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def address(provider: Provider, tmp_path: Path) -> Iterator[str]:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **provider.broker_settings()}
    with running_broker(tmp_path, settings) as broker:
        yield f"127.0.0.1:{broker.addresses[0].port}"


def login(provider: Provider) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": f"{provider.url}/token",
        "sasl_oauthbearer_client_credentials_client_id": "ann",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
    }


def properties(provider: Provider) -> dict[str, str]:
    return {name.replace("_", "."): str(value) for name, value in login(provider).items()}


def test_records_are_produced_and_consumed(provider: Provider, address: str) -> None:
    settings = {"bootstrap_servers": address, **login(provider)}
    with Producer(**settings) as producer:
        producer.send("orders", b"first").result(10)
    with Consumer(group_id="readers", auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe("orders")
        records = consumer.poll(10.0)
    assert [record.value for record in records] == [b"first"]


def test_the_command_line_logs_in(provider: Provider, address: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    lines = [f"{name}={value}\n" for name, value in properties(provider).items()]
    file.write_text("".join(lines))
    Cli(address, "--command-config", str(file))("topic", "create", "orders")
    options = [text for line in lines for text in ("-X", line.strip())]
    assert "orders" in Cli(address, *options)("topic", "list").output


def test_librdkafka_gets_tokens_from_the_endpoint(provider: Provider, address: str) -> None:
    admin = AdminClient(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
            "sasl.oauthbearer.client.id": "ann",
            "sasl.oauthbearer.client.secret": SECRET,
        }
    )
    assert admin.list_topics(timeout=10).brokers


def test_brokers_log_in_to_each_other(provider: Provider, tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "default.replication.factor": "2",
        **provider.broker_settings(),
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "broker",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    }
    with running_cluster(tmp_path, brokers=2, settings=settings) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            for number in range(4):
                producer.send(f"topic-{number}", b"x").result(10)
        cluster.wait_on_all(
            lambda broker: {len(state.isr) for state in broker.image.partitions.values()} == {2},
            "all replicas are in sync",
        )


@pytest.mark.long
def test_logins_are_renewed_before_tokens_expire(provider: Provider, address: str) -> None:
    """KIP-368: the broker ends sessions with their tokens, and no request may notice."""
    provider.lifetime_s = _TOKEN_LIFETIME_S
    with Admin(bootstrap_servers=address, retries=0, **login(provider)) as admin:
        deadline = time.monotonic() + _LOAD_S
        while time.monotonic() < deadline:
            admin.list_topics()
            time.sleep(0.01)
    assert provider.token_requests > 1
