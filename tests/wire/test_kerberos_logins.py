"""GSSAPI logins of our clients with a real KDC: keytabs, ticket caches and refusals (X2)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.client import Admin, Producer
from penstock.client.admin.model_topics import NewTopic
from penstock.client.errors import AuthenticationError
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.cluster.brokers import running_cluster
from tests.support.kerberos.kdc import BROKER, Realm, kerberos_realm, krb5_login_module


class Setup(NamedTuple):
    realm: Realm
    address: str
    ann: Path

    def settings(self, jaas: str | None) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_jaas_config": jaas,
        }


@pytest.fixture
def realm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    with kerberos_realm() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def broker_settings(realm: Realm) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": krb5_login_module(
            realm.keytab(BROKER), BROKER
        ),
    }


@pytest.fixture
def setup(realm: Realm, tmp_path: Path) -> Iterator[Setup]:
    realm.add("ann", "bob/admin")
    settings = broker_settings(realm) | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann",
    }
    with running_broker(tmp_path, settings) as broker:
        yield Setup(realm, f"localhost:{broker.addresses[0].port}", realm.keytab("ann"))


def create_topic(settings: dict[str, Any], topic: str) -> None:
    with Admin(**settings) as admin:
        admin.create_topics([NewTopic(topic)])


def test_logins(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = setup.realm
    with_keytab = setup.settings(krb5_login_module(setup.ann, "ann"))
    create_topic(with_keytab, "orders")  # as the super user ann, by the rule DEFAULT

    with pytest.raises(AuthenticationError, match=r"no Kerberos ticket: .*run kinit"):
        create_topic(setup.settings(None), "clicks")
    cache = realm.directory / "tickets"
    realm.kinit("ann", setup.ann, cache)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    create_topic(setup.settings(None), "clicks")

    with pytest.raises(AuthenticationError, match=r"no Kerberos ticket: .*check the principal"):
        create_topic(setup.settings(krb5_login_module(setup.ann, "eve")), "payments")
    with pytest.raises(AuthenticationError, match=r"no Kerberos ticket for shop/localhost"):
        create_topic({**with_keytab, "sasl_kerberos_service_name": "shop"}, "payments")
    realm.new_key(BROKER)  # the broker has the old one
    with pytest.raises(AuthenticationError, match="invalid Kerberos credentials"):
        create_topic(with_keytab, "payments")


    check_garbage(setup)


def check_garbage(setup: Setup) -> None:
    host, port = setup.address.split(":")
    for token in (b"", b"garbage", b"\x60\x82\xff\xff" + bytes(100), bytes(70_000)):
        with WireClient((host, int(port))) as client:
            assert client.request(SaslHandshakeRequest("GSSAPI"), 1).error_code == 0
            response = client.request(SaslAuthenticateRequest(token), 2)
            assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "invalid Kerberos credentials" in response.error_message
