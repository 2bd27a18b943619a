"""Kafka's tools, which use its Java client, log in with OAUTHBEARER (X2)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker.in_process import running_broker
from tests.support.kafka.broker import KafkaParts
from tests.support.kafka.tools import KafkaTools, Shell
from tests.support.oauth.provider import SECRET, Provider, running_provider

_OAUTH = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def tools(
    kafka_parts: KafkaParts, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KafkaTools]:
    """A JVM that may ask the token endpoint."""
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/token"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    with KafkaTools(kafka_parts) as running:
        yield running


@pytest.fixture
def address(provider: Provider, tmp_path: Path) -> Iterator[str]:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **provider.broker_settings()}
    with running_broker(tmp_path / "broker", settings) as broker:
        yield f"127.0.0.1:{broker.addresses[0].port}"


def login(directory: Path, provider: Provider, secret: str) -> Path:
    file = directory / f"{secret}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={_OAUTH}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={provider.url}/token\n"
        f"sasl.jaas.config={_OAUTH}.OAuthBearerLoginModule required "
        f'clientId="ann" clientSecret="{secret}";\n'
        "sasl.login.refresh.min.period.seconds=1\n"
        "sasl.login.refresh.buffer.seconds=0\n"
        "sasl.login.retry.backoff.max.ms=100\n"
    )
    return file


@pytest.mark.long
def test_tools_log_in(tools: KafkaTools, provider: Provider, address: str, tmp_path: Path) -> None:
    shell = Shell(tools, address, login(tmp_path, provider, SECRET))
    shell("topics", "--create", "--topic", "orders")
    assert shell("topics", "--list").lines == ["orders"]

    stranger = Shell(tools, address, login(tmp_path, provider, "wrong"))
    run = stranger.attempt("topics", "--list", timeout=60)
    assert run.exit != 0
    assert "invalid_client" in run.text or "401" in run.text


@pytest.mark.long
def test_java_logs_in_again_before_tokens_expire(
    tools: KafkaTools, provider: Provider, address: str, tmp_path: Path
) -> None:
    """KIP-368: on the same connections, without an error."""
    provider.lifetime_s = 3.0
    shell = Shell(tools, address, login(tmp_path, provider, SECRET))
    run = shell(
        *("producer-perf-test", "--topic", "orders", "--num-records", "1600"),
        *("--record-size", "100", "--throughput", "200"),
    )
    assert "1600 records sent" in run.out
    assert provider.token_requests > 2
