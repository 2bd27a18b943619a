"""OAUTHBEARER logins of our clients and of confluent-kafka, with a token endpoint (X2)."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from penstock.client import Admin
from penstock.client.aio import Admin as AsyncAdmin
from penstock.client.errors import AuthenticationError
from tests.support.broker.in_process import running_broker
from tests.support.oauth.provider import SECRET, Provider, running_provider


class Setup(NamedTuple):
    provider: Provider
    address: str

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": f"{self.provider.url}/token",
            "sasl_oauthbearer_client_credentials_client_id": "ann",
            "sasl_oauthbearer_client_credentials_client_secret": SECRET,
            **changes,
        }

    def with_token(self, token: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": lambda: token,
        }


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    with running_provider() as provider:
        settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **provider.broker_settings()}
        with running_broker(tmp_path, settings) as broker:
            yield Setup(provider, f"127.0.0.1:{broker.addresses[0].port}")


def list_topics(settings: dict[str, Any]) -> None:
    with Admin(**settings) as admin:
        admin.list_topics()


def test_clients_log_in_with_tokens(setup: Setup, tmp_path: Path) -> None:
    list_topics(setup.settings())
    assert setup.provider.token_requests == 1  # for all connections
    list_topics(setup.with_token(setup.provider.token()))
    (tmp_path / "token").write_text(setup.provider.token())
    url = f"file://{tmp_path / 'token'}"
    list_topics(setup.settings(sasl_oauthbearer_token_endpoint_url=url))

    async def use_asyncio() -> None:
        async with AsyncAdmin(**setup.settings()) as admin:
            await admin.list_topics()

    asyncio.run(use_asyncio())

    # Rotated away: the next token has a key that the broker does not know yet.
    revoked = setup.provider.token()
    setup.provider.rotate("key-2")
    list_topics(setup.settings())
    for token in (revoked, setup.provider.token(aud="other")):
        with pytest.raises(AuthenticationError, match="invalid_token"):
            list_topics(setup.with_token(token))
    with pytest.raises(AuthenticationError, match=r"401.*invalid_client.*check the client id"):
        list_topics(setup.settings(sasl_oauthbearer_client_credentials_client_secret="wrong"))
    (tmp_path / "token").write_text(setup.provider.token(exp=1000))
    with pytest.raises(AuthenticationError, match=r"expired .* ago"):
        list_topics(setup.settings(sasl_oauthbearer_token_endpoint_url=url))


def test_confluent_logs_in_with_a_callback(setup: Setup) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": setup.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda config: (setup.provider.token(), time.time() + 3600),
    }
    admin = AdminClient(settings)
    assert admin.list_topics(timeout=10).brokers


def test_a_broker_starts_without_the_issuer(tmp_path: Path) -> None:
    with running_provider() as provider:
        settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **provider.broker_settings()}
        settings["sasl.oauthbearer.jwks.endpoint.url"] = f"file://{tmp_path / 'jwks.json'}"
        settings["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"] = "100"
        with running_broker(tmp_path / "broker", settings) as broker:
            setup = Setup(provider, f"127.0.0.1:{broker.addresses[0].port}")
            with pytest.raises(AuthenticationError):
                list_topics(setup.settings())
            (tmp_path / "jwks.json").write_bytes(provider.jwks)
            for _ in range(100):  # until the broker has tried again
                try:
                    list_topics(setup.settings())
                except AuthenticationError:
                    time.sleep(0.1)
                else:
                    return
            pytest.fail("the broker never fetched the keys")
