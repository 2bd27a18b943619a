"""GSSAPI logins of our clients and of raw requests, with a real KDC (X2)."""

import asyncio
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.client import Admin, aio
from penstock.client.admin.model_topics import NewTopic
from penstock.client.errors import AuthenticationError
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.metadata import MetadataRequest
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER
from tests.support.kerberos.kdc import (
    BROKER,
    Realm,
    broker_settings,
    krb5_login_module,
    realm_of_this_process,
)
from tests.support.kerberos.raw_login import authenticate, log_in, prepared_login, start_login


class Setup(NamedTuple):
    realm: Realm
    broker: RunningBroker
    ann: Path
    """The keytab of the super user."""

    def settings(self, jaas: str | None, **others: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": f"localhost:{self.broker.addresses[0].port}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_jaas_config": jaas,
            **others,
        }

    def as_ann(self, **others: Any) -> dict[str, Any]:
        return self.settings(krb5_login_module(self.ann, "ann"), **others)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    with realm_of_this_process() as realm:
        realm.add("ann")
        settings = broker_settings(realm) | {
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ann",
        }
        with running_broker(tmp_path_factory.mktemp("kerberos"), settings) as broker:
            yield Setup(realm, broker, realm.keytab("ann"))


def create_topic(settings: dict[str, Any], topic: str) -> None:
    with Admin(**settings) as admin:
        admin.create_topics([NewTopic(topic)])


def test_a_keytab_logs_in(setup: Setup) -> None:
    """ann is a super user by the rule DEFAULT."""
    create_topic(setup.as_ann(), "orders")

    async def produce() -> int:
        async with aio.Producer(**setup.as_ann()) as producer:
            metadata = await (await producer.send("orders", b"asyncio"))
            return metadata.offset

    assert asyncio.run(produce()) == 0


def test_tickets_in_a_cache_log_in(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthenticationError, match=r"no Kerberos ticket: .*run kinit"):
        create_topic(setup.settings(None), "clicks")
    cache = setup.realm.directory / "tickets"
    setup.realm.kinit("ann", setup.ann, cache)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    create_topic(setup.settings(None), "clicks")


def test_the_login_of_a_jaas_file(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    path = setup.realm.directory / "jaas.conf"
    path.write_text(f"KafkaClient {{ {krb5_login_module(setup.ann, 'ann')} }};")
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={path}")
    create_topic(setup.settings(None), "returns")


@pytest.mark.parametrize("version", [0, 1])
def test_raw_logins(setup: Setup, version: int) -> None:
    """After SaslHandshake version 0, tokens are frames of their own."""
    with setup.broker.connect() as client:
        start_login(client, version)

        def send(token: bytes) -> bytes:
            if version == 1:
                response = authenticate(client, token)
                assert response.error_code == 0, response.error_message
                return response.auth_bytes
            client.sock.sendall(struct.pack(">i", len(token)) + token)
            return client.receive_frame()

        log_in(prepared_login(setup.ann, "ann"), send)
        assert client.request(MetadataRequest([]), 9).brokers


def test_wrong_credentials(setup: Setup) -> None:
    with pytest.raises(
        AuthenticationError, match=r"no Kerberos ticket: .* has no keys of eve; check"
    ):
        create_topic(setup.settings(krb5_login_module(setup.ann, "eve")), "payments")
    with pytest.raises(AuthenticationError, match=r"no Kerberos ticket for shop/localhost"):
        create_topic(setup.as_ann(sasl_kerberos_service_name="shop"), "payments")


def refusal(client: WireClient, token: bytes) -> str:
    response = authenticate(client, token)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message is not None
    assert client.is_closed()
    return response.error_message


def test_a_replayed_ticket_is_refused(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    """The library's replay cache knows each authenticator, so its bytes log in once."""
    token = prepared_login(setup.ann, "ann").initial_response()
    with setup.broker.connect() as first, setup.broker.connect() as second:
        start_login(first)
        assert authenticate(first, token).error_code == 0
        start_login(second)
        with caplog.at_level(logging.WARNING):
            assert "invalid Kerberos credentials" in refusal(second, token)
    assert "a login was refused: Request is a replay" in caplog.text


@pytest.mark.parametrize(
    "token", [b"", b"garbage", b"\x60\x82\xff\xff" + bytes(100), bytes(70_000)]
)
def test_garbage_is_refused(setup: Setup, token: bytes) -> None:
    with setup.broker.connect() as client:
        start_login(client)
        assert "invalid Kerberos credentials" in refusal(client, token)


def test_a_bare_garbage_token_closes_the_connection(setup: Setup) -> None:
    with setup.broker.connect() as client:
        start_login(client, 0)
        client.sock.sendall(struct.pack(">i", 7) + b"garbage")
        assert client.is_closed()


def test_a_new_key_of_the_broker_takes_effect_with_its_keytab(setup: Setup) -> None:
    """The broker reads its keytab for each login: no restart is needed."""
    setup.realm.new_key(BROKER)
    with pytest.raises(AuthenticationError, match="invalid Kerberos credentials"):
        create_topic(setup.as_ann(), "payments")
    setup.realm.keytab(BROKER)
    create_topic(setup.as_ann(), "payments")
