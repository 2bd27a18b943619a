"""Our clients log in to Apache Kafka with every mechanism, over TLS too (X1, X2)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.client import Admin, Consumer, Producer, aio
from penstock.client.admin.model_security import ScramUpsertion
from penstock.client.admin.model_topics import NewTopic
from penstock.client.errors import AuthenticationError
from penstock.core.ids import TopicPartition
from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.certificates import make_identity, simple_name
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.oauth.provider import SECRET, Provider, running_provider

PASSWORD = "ann-secret"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Kafka(NamedTuple):
    broker: KafkaBroker
    provider: Provider
    tls: dict[str, Any]
    """The settings of a client with a certificate."""

    def client(
        self, protocol: str, mechanism: str = "", password: str = PASSWORD
    ) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap_servers": f"localhost:{self.broker.ports[protocol]}",
            "security_protocol": protocol,
        }
        if protocol.endswith("SSL"):
            settings |= self.tls
        if mechanism:
            settings["sasl_mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauthbearer_token_endpoint_url"] = f"{self.provider.url}/token"
            settings["sasl_oauthbearer_client_credentials_client_id"] = "ann"
            settings["sasl_oauthbearer_client_credentials_client_secret"] = (
                SECRET if password == PASSWORD else password
            )
        elif mechanism:
            settings |= {"sasl_plain_username": "ann", "sasl_plain_password": password}
        return settings


@pytest.fixture(scope="module")
def kafka(kafka_parts: KafkaParts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    directory = tmp_path_factory.mktemp("kafka")
    authority = make_identity(simple_name("authority"))
    for name in ("localhost", "client"):
        identity = make_identity(simple_name(name), authority)
        (directory / f"{name}.pem").write_text(identity.key_pem() + identity.certificate_pem)
    (directory / "authority.pem").write_text(authority.certificate_pem)
    with pytest.MonkeyPatch.context() as patches, running_provider() as provider:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/jwks"
        patches.setenv("JAVA_TOOL_OPTIONS", allowed)
        settings = broker_settings(directory, provider)
        with KafkaBroker(kafka_parts, directory, settings, listeners=LISTENERS) as broker:
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.alter_user_scram_credentials(
                    ScramUpsertion("ann", mechanism, PASSWORD) for mechanism in ScramMechanism
                )
                admin.create_topics([NewTopic("orders", 1, 1)])
            tls = {
                "ssl_cafile": str(directory / "authority.pem"),
                "ssl_certfile": str(directory / "client.pem"),
                "ssl_keyfile": str(directory / "client.pem"),
            }
            yield Kafka(broker, provider, tls)


def broker_settings(directory: Path, provider: Provider) -> dict[str, str]:
    settings = {
        **provider.broker_settings(),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "localhost.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
    }
    modules = {
        "plain": f'plain.PlainLoginModule required user_ann="{PASSWORD}";',
        "scram-sha-256": "scram.ScramLoginModule required;",
        "scram-sha-512": "scram.ScramLoginModule required;",
        "oauthbearer": "oauthbearer.OAuthBearerLoginModule required;",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        for mechanism, module in modules.items():
            text = f"org.apache.kafka.common.security.{module}"
            settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = text
        handler = f"{OAUTH}.OAuthBearerValidatorCallbackHandler"
        settings[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = handler
    return settings


@pytest.mark.long
@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        *((protocol, name) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for name in MECHANISMS),
        ("SSL", ""),
    ],
)
def test_our_clients_log_in_to_kafka(kafka: Kafka, protocol: str, mechanism: str) -> None:
    settings = kafka.client(protocol, mechanism)
    value = f"{protocol} {mechanism}".encode()
    with Producer(**settings) as producer:
        sent = producer.send("orders", value=value).result()
    with Consumer(**settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek(TopicPartition("orders", 0), sent.offset)
        assert next(iter(consumer)).value == value

    async def send() -> int:
        async with aio.Producer(**settings) as another:
            return (await (await another.send("orders", value=value))).offset

    assert asyncio.run(send()) == sent.offset + 1


@pytest.mark.long
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_refuses_wrong_passwords_of_our_clients(kafka: Kafka, mechanism: str) -> None:
    settings = kafka.client("SASL_SSL", mechanism, "wrong")
    reason = "invalid_client" if mechanism == "OAUTHBEARER" else "(?i)authentication failed"
    with pytest.raises(AuthenticationError, match=reason), Admin(**settings) as admin:
        admin.list_topics()
