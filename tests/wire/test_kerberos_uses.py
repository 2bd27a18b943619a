"""GSSAPI in producers and consumers, the command line, kcat, and between brokers (X2)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Admin, Consumer, Producer
from penstock.client.errors import AuthenticationError
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER
from tests.support.client.cli import Cli
from tests.support.cluster.brokers import running_cluster
from tests.support.kerberos.kdc import (
    Realm,
    broker_settings,
    krb5_login_module,
    realm_of_this_process,
)
from tests.support.kerberos.raw_login import authenticate, log_in, prepared_login, start_login

_JAAS = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
_SHORT_LIFE_S = 3
"""Long enough for one login on a busy machine."""


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    with realm_of_this_process() as running:
        running.add("ann")
        yield running


@pytest.fixture(scope="module")
def broker(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker"), broker_settings(realm)) as running:
        yield running


def login(broker: RunningBroker, keytab: Path, principal: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"localhost:{broker.addresses[0].port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_jaas_config": krb5_login_module(keytab, principal),
    }


def test_records_are_produced_and_consumed(realm: Realm, broker: RunningBroker) -> None:
    settings = login(broker, realm.keytab("ann"), "ann")
    with Producer(**settings) as producer:
        producer.send("orders", b"first").result(10)
    with Consumer(group_id="readers", auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe("orders")
        records = consumer.poll(10.0)
    assert [record.value for record in records] == [b"first"]


def test_the_command_line_logs_in(realm: Realm, broker: RunningBroker, tmp_path: Path) -> None:
    settings = login(broker, realm.keytab("ann"), "ann")
    address = settings.pop("bootstrap_servers")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name.replace('_', '.')}={settings[name]}\n" for name in settings))
    cli = Cli(address, "--command-config", str(file))
    cli("topic", "create", "payments")
    assert "payments" in cli("topic", "list").output


@pytest.mark.long
def test_brokers_log_in_to_each_other(realm: Realm, tmp_path: Path) -> None:
    """The first broker logs in on its own listener too; both are super users by their principal."""
    settings = broker_settings(realm) | {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:kafka;User:ann",
        "default.replication.factor": "2",
    }
    with running_cluster(tmp_path, brokers=2, settings=settings) as cluster:
        client = login(cluster.brokers[0], realm.keytab("ann"), "ann")
        with Producer(acks="all", **client) as producer:
            for number in range(4):
                producer.send(f"topic-{number}", b"x").result(10)
        cluster.wait_on_all(
            lambda broker: {len(state.isr) for state in broker.image.partitions.values()} == {2},
            "all replicas are in sync",
        )


def list_topics_for(admin: Admin, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        admin.list_topics()
        time.sleep(0.02)


@pytest.mark.long
def test_clients_log_in_again_with_new_tickets(realm: Realm, tmp_path: Path) -> None:
    """KIP-368: sessions end after a second and tickets after three, and no request may notice."""
    realm.add("dora", options=f'-maxlife "{_SHORT_LIFE_S} seconds"')
    settings = broker_settings(realm) | {"connections.max.reauth.ms": "1000"}
    with (
        running_broker(tmp_path, settings) as broker,
        Admin(retries=0, **login(broker, realm.keytab("dora"), "dora")) as admin,
    ):
        list_topics_for(admin, 3 * _SHORT_LIFE_S)
        assert realm.tickets_issued("dora") > 2
        realm.delete("dora")
        with pytest.raises(AuthenticationError, match="no Kerberos ticket"):
            list_topics_for(admin, 60)


def session_lifetime_ms(client: WireClient, realm: Realm) -> int:
    """Logs in; returns for how long."""
    responses = []

    def send(token: bytes) -> bytes:
        responses.append(authenticate(client, token))
        return responses[-1].auth_bytes

    start_login(client)
    log_in(prepared_login(realm.keytab("ann"), "ann"), send)
    assert responses[-1].error_code == 0
    return responses[-1].session_lifetime_ms


def test_the_end_of_a_ticket_does_not_end_the_session(realm: Realm, broker: RunningBroker) -> None:
    """As in Kafka, where only OAUTHBEARER and delegation tokens do."""
    with broker.connect() as client:
        assert session_lifetime_ms(client, realm) == 0


def test_a_client_logs_in_again_on_the_same_connection(realm: Realm, tmp_path: Path) -> None:
    setting = "listener.name.sasl_plaintext.gssapi.connections.max.reauth.ms"
    settings = broker_settings(realm) | {setting: "60000"}
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        assert [session_lifetime_ms(client, realm) for _ in range(2)] == [60_000, 60_000]


@pytest.mark.long
def test_expired_tickets_are_refused(tmp_path: Path) -> None:
    """The broker allows for `clockskew`, which is a second here."""
    with realm_of_this_process(clock_skew_s=1) as realm:
        realm.add("emil", options=f'-maxlife "{_SHORT_LIFE_S} seconds"')
        with running_broker(tmp_path, broker_settings(realm)) as broker:
            first = prepared_login(realm.keytab("emil"), "emil")
            time.sleep(_SHORT_LIFE_S + 2.5)
            with broker.connect() as client:
                start_login(client)
                response = authenticate(client, first.initial_response())
                assert "invalid Kerberos credentials" in str(response.error_message)
            cache = realm.directory / "expired"
            realm.kinit("emil", realm.keytab("emil"), cache, "-l", "1s")
            time.sleep(2.5)
            settings = login(broker, realm.keytab("emil"), "emil") | {
                "sasl_jaas_config": "com.sun.security.auth.module.Krb5LoginModule required "
                f'useTicketCache=true ticketCache="{cache}";'
            }
            with (
                pytest.raises(
                    AuthenticationError, match=r"no Kerberos ticket: .*expired; run kinit"
                ),
                Admin(**settings) as admin,
            ):
                admin.list_topics()
