"""GSSAPI logins of kcat (librdkafka), Kafka's Java client and ours: which credentials work (X2)."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from penstock.client import Admin, Consumer, Producer
from penstock.core.errors import ErrorCode, KafkaError
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.kafka.tools import KafkaTools, Shell
from tests.support.kafka_clients.kafka_python_client import KafkaAdminClient
from tests.support.kerberos.kdc import (
    BROKER,
    Realm,
    broker_settings,
    krb5_login_module,
    realm_of_this_process,
)
from tests.support.kerberos.raw_login import authenticate, prepared_login, start_login

_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


class Credentials(NamedTuple):
    """A keytab, or a ticket cache, of a principal."""

    principal: str
    keytab: Path | None = None
    cache: Path | None = None

    @property
    def jaas_config(self) -> str:
        if self.keytab is not None:
            return krb5_login_module(self.keytab, self.principal)
        return (
            f'{_MODULE} useTicketCache=true doNotPrompt=true ticketCache="{self.cache}" '
            f'principal="{self.principal}";'
        )


Attempt: TypeAlias = Callable[[Credentials], str]
"""Lists the topics; returns an empty text, or the error."""


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    """Tickets are accepted for a second after their end."""
    with realm_of_this_process(clock_skew_s=1) as running:
        running.add("ann")
        yield running


@pytest.fixture(scope="module")
def address(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker"), broker_settings(realm)) as broker:
        yield f"localhost:{broker.addresses[0].port}"


@pytest.fixture(scope="module")
def tools(kafka_parts: KafkaParts, realm: Realm) -> Iterator[KafkaTools]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", realm.java_option)
        with KafkaTools(kafka_parts) as running:
            yield running


def with_kcat(realm: Realm, address: str) -> Attempt:
    def attempt(credentials: Credentials) -> str:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal": credentials.principal,
        }
        cache = realm.directory / "kcat-tickets"
        cache.unlink(missing_ok=True)
        if credentials.keytab is not None:
            settings["sasl.kerberos.keytab"] = str(credentials.keytab)
        elif credentials.cache is not None:
            cache = credentials.cache
            settings["sasl.kerberos.kinit.cmd"] = "true"
        options = [text for name in settings for text in ("-X", f"{name}={settings[name]}")]
        run = subprocess.run(
            ["kcat", "-L", "-b", address, "-m", "3", *options],
            env={**os.environ, "KRB5CCNAME": f"FILE:{cache}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return "" if run.returncode == 0 else run.stderr

    return attempt


def java_properties(credentials: Credentials) -> str:
    return (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        "sasl.kerberos.service.name=kafka\nrequest.timeout.ms=10000\n"
        f"sasl.jaas.config={credentials.jaas_config}\n"
    )


def with_java(tools: KafkaTools, address: str, directory: Path) -> Attempt:
    def attempt(credentials: Credentials) -> str:
        file = directory / "java.properties"
        file.write_text(java_properties(credentials) + "default.api.timeout.ms=20000\n")
        run = Shell(tools, address, file).attempt("topics", "--list", timeout=60)
        return "" if run.exit == 0 else run.text

    return attempt


def with_ours(address: str) -> Attempt:
    def attempt(credentials: Credentials) -> str:
        try:
            with Admin(
                bootstrap_servers=address,
                security_protocol="SASL_PLAINTEXT",
                sasl_jaas_config=credentials.jaas_config,
            ) as admin:
                admin.list_topics()
        except KafkaError as error:
            return error.message
        return ""

    return attempt


class Refusals(NamedTuple):
    """What a client says about credentials."""

    unknown: str
    wrong_key: str
    revoked: str
    expired: str


_REFUSALS = {
    "kcat": Refusals(
        "Keytab contains no suitable keys for eve",
        "Decrypt integrity check failed|Preauthentication failed|Password incorrect",
        "Client 'bob@PENSTOCK.TEST' not found in Kerberos database",
        "Ticket expired",
    ),
    "java": Refusals(
        "client is being asked for a password",
        "Checksum failed",
        "Client not found in Kerberos database",
        "Unable to obtain password from user",
    ),
    "ours": Refusals(
        r"ann\.keytab has no keys of eve; check the principal",
        "Decrypt integrity check failed; check",
        "Client 'bob@PENSTOCK.TEST' not found in Kerberos database; check",
        "credential has expired; run kinit",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("client", _REFUSALS)
def test_which_credentials_log_in(
    client: str, realm: Realm, address: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if client == "kcat":
        attempt = with_kcat(realm, address)
    elif client == "java":
        attempt = with_java(request.getfixturevalue("tools"), address, tmp_path)
    else:
        attempt = with_ours(address)
    refusals = _REFUSALS[client]

    ann = realm.keytab("ann")
    assert attempt(Credentials("ann", ann)) == ""
    cache = realm.directory / "tickets"
    realm.kinit("ann", ann, cache)
    assert attempt(Credentials("ann", cache=cache)) == ""
    realm.kinit("ann", ann, cache, "-l", "1s")
    expiry = time.monotonic() + 1

    assert re.search(refusals.unknown, attempt(Credentials("eve", ann)))
    realm.add("bob")
    bob = realm.keytab("bob")
    assert attempt(Credentials("bob", bob)) == ""
    realm.new_key("bob")
    assert re.search(refusals.wrong_key, attempt(Credentials("bob", bob)))
    bob = realm.keytab("bob")
    assert attempt(Credentials("bob", bob)) == ""
    realm.delete("bob")
    assert re.search(refusals.revoked, attempt(Credentials("bob", bob)))

    time.sleep(max(0, expiry + 2 - time.monotonic()))
    assert re.search(refusals.expired, attempt(Credentials("ann", cache=cache)))


@pytest.mark.long
def test_java_logs_in_again_on_the_same_connection(
    realm: Realm, tools: KafkaTools, tmp_path: Path
) -> None:
    """KIP-368: sessions end after a second, and no request fails."""
    settings = broker_settings(realm) | {"connections.max.reauth.ms": "1000"}
    with running_broker(tmp_path / "broker", settings) as broker:
        file = tmp_path / "java.properties"
        file.write_text(java_properties(Credentials("ann", realm.keytab("ann"))) + "retries=0\n")
        address = f"localhost:{broker.addresses[0].port}"
        run = Shell(tools, address, file)(
            *("producer-perf-test", "--topic", "orders", "--num-records", "1000"),
            *("--record-size", "100", "--throughput", "200"),
        )
    assert "1000 records sent" in run.out


@pytest.mark.long
def test_kafka_python_logs_in(realm: Realm, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = realm.directory / "kafka-python"
    realm.kinit("ann", realm.keytab("ann"), cache)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    admin = KafkaAdminClient(
        bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI"
    )
    try:
        assert admin.list_topics() == []
    finally:
        admin.close()


@pytest.fixture
def kafka(
    kafka_parts: KafkaParts, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KafkaBroker]:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", realm.java_option)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.plaintext.gssapi.sasl.jaas.config": krb5_login_module(
            realm.keytab(BROKER), BROKER
        ),
        "connections.max.reauth.ms": "2000",
    }
    with KafkaBroker(kafka_parts, tmp_path, settings) as broker:
        yield broker


@pytest.mark.long
def test_we_log_in_to_kafka(realm: Realm, kafka: KafkaBroker) -> None:
    """Its host is an address here, so a setting names the host of its principal."""
    settings: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_jaas_config": krb5_login_module(realm.keytab("ann"), "ann"),
        "sasl_kerberos_domain_name": "localhost",
    }
    with Producer(retries=0, **settings) as producer:
        producer.send("orders", b"0").result(30)
        end = time.monotonic() + 3
        while time.monotonic() < end:  # sessions end after two seconds
            producer.send("orders", b"again").result(10)
            time.sleep(0.05)
    with Consumer(group_id="readers", auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe("orders")
        assert consumer.poll(20.0)[0].value == b"0"

    token = prepared_login(realm.keytab("ann"), "ann").initial_response()
    responses = []
    for _ in range(2):
        with WireClient(("127.0.0.1", kafka.port)) as client:
            start_login(client)
            responses.append(authenticate(client, token).error_code)
    assert responses == [0, ErrorCode.SASL_AUTHENTICATION_FAILED]  # the second one is a replay
