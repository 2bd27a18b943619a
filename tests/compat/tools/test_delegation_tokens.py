"""kafka-delegation-tokens.sh, and Kafka's Java client, which logs in with a token (X2)."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Admin
from penstock.client.admin import NewTopic
from tests.support.broker.in_process import running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS
from tests.support.kafka.tools import KafkaTools, Shell

_DAY_MS = 86_400_000
_SECURITY = "org.apache.kafka.common.security"


@pytest.fixture
def address(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker whose tokens expire after the parameter's milliseconds."""
    settings = {
        **SASL_SETTINGS,
        "delegation.token.secret.key": "the brokers' own",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin;User:ann",
        "delegation.token.expiry.time.ms": str(request.param),
    }
    with running_broker(tmp_path / "broker", settings) as broker:
        (port,) = (item.port for item in broker.addresses if item.listener == "SASL_PLAINTEXT")
        yield f"127.0.0.1:{port}"


def login(directory: Path, mechanism: str, module: str, user: str, password: str) -> Path:
    file = directory / f"{user}-{password[:4].replace('/', '_')}.properties"
    token = ' tokenauth="true"' if "Scram" in module else ""
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={_SECURITY}.{module} required "
        f'username="{user}" password="{password}"{token};\n'
    )
    return file


@pytest.mark.long
@pytest.mark.parametrize("address", [_DAY_MS], indirect=True)
def test_kafkas_tool_and_client(tools: KafkaTools, address: str, tmp_path: Path) -> None:
    def plain(user: str) -> Shell:
        password = f"{user}-secret"
        return Shell(
            tools, address, login(tmp_path, "PLAIN", "plain.PlainLoginModule", user, password)
        )

    ann, bob = plain("ann"), plain("bob")
    tool = "delegation-tokens"
    created = ann(
        *(tool, "--create", "--max-life-time-period", "-1"),
        *("--renewer-principal", "User:bob"),
    )
    words = created.lines[-1].split()
    token_id, hmac = words[0], words[1]
    assert hmac in bob(tool, "--describe", "--owner-principal", "User:ann").out
    assert hmac not in bob(tool, "--describe", "--owner-principal", "User:nobody").out
    assert bob(tool, "--renew", "--hmac", hmac, "--renew-time-period", "-1").exit == 0
    owned = plain("admin")(
        *(tool, "--create", "--max-life-time-period", "-1"), *("--owner-principal", "User:bob")
    )
    assert "User:bob" in owned.out
    assert "User:admin" in owned.out

    def holder(mechanism: str, password: str) -> Shell:
        return Shell(
            tools,
            address,
            login(tmp_path, mechanism, "scram.ScramLoginModule", token_id, password),
        )

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        shell = holder(mechanism, hmac)
        topic = f"of-{mechanism}"
        shell("topics", "--create", "--topic", topic)
        shell("console-producer", "--topic", topic, stdin="first\n")
        run = shell(
            *("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "1"),
        )
        assert "first" in run.lines
    refused = holder("SCRAM-SHA-256", hmac).attempt(
        tool, "--create", "--max-life-time-period", "-1"
    )
    assert "UnsupportedByAuthenticationException" in refused.text
    wrong = holder("SCRAM-SHA-512", "wrong" + hmac).attempt("topics", "--list")
    assert "SaslAuthenticationException" in wrong.text

    assert bob(tool, "--expire", "--hmac", hmac, "--expiry-time-period", "-1").exit == 0
    ended = holder("SCRAM-SHA-256", hmac).attempt("topics", "--list")
    assert "SaslAuthenticationException" in ended.text
    again = ann.attempt(tool, "--renew", "--hmac", hmac, "--renew-time-period", "-1")
    assert "DelegationTokenNotFoundException" in again.text


@pytest.mark.long
@pytest.mark.parametrize("address", [3000], indirect=True)
def test_java_logs_in_again_while_its_token_is_renewed(
    tools: KafkaTools, address: str, tmp_path: Path
) -> None:
    """KIP-368: on the same connections, without an error."""
    with Admin(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="ann",
        sasl_plain_password="ann-secret",
    ) as ann:
        ann.create_topics([NewTopic("orders", 1, 1)])
        token = ann.create_delegation_token()
        has_ended = threading.Event()

        def renew() -> None:
            while not has_ended.wait(0.2):
                ann.renew_delegation_token(token.hmac)

        renewing = threading.Thread(target=renew)
        renewing.start()
        try:
            module = "scram.ScramLoginModule"
            file = login(tmp_path, "SCRAM-SHA-512", module, token.token_id, token.password)
            run = Shell(tools, address, file)(
                *("producer-perf-test", "--topic", "orders", "--num-records", "1600"),
                *("--record-size", "100", "--throughput", "200"),
            )
        finally:
            has_ended.set()
            renewing.join()
    assert "1600 records sent" in run.out
    assert "Exception" not in run.text
