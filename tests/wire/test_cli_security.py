"""`penstock acl` and `penstock user` at our broker; logins and rights (X2, X3, E3)."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.broker.in_process import RunningBroker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS
from tests.support.client.cli import Cli


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        **SASL_SETTINGS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }


@pytest.fixture(scope="module")
def cli(broker: RunningBroker) -> Cli:
    """A super user, without a login."""
    super_user = Cli(broker.bootstrap_servers)
    super_user("topic", "create", "orders")
    return super_user


def logged_in(
    broker: RunningBroker, directory: Path, user: str, password: str, mechanism: str
) -> Cli:
    """A user with Kafka's property file."""
    address = next(address for address in broker.addresses if address.listener == "SASL_PLAINTEXT")
    kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    file = directory / f"{user}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{kind} required "
        f'username="{user}" password="{password}";\n'
    )
    return Cli(f"{address.host}:{address.port}", "--command-config", str(file))


def test_acls_are_added_listed_and_removed(cli: Cli) -> None:
    """X3."""
    ann = ("--allow-principal", "User:ann")
    added = cli.json("acl", "add", *ann, "--topic", "t", "--producer", "--transactional-id", "x")
    assert len(added) == 5
    cli("acl", "add", *ann, "--topic", "pre", "--resource-pattern-type", "prefixed")
    cli("acl", "add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--cluster")
    cli("acl", "add", *ann, "--topic", "t", "--group", "*", "--consumer")
    assert len(cli.json("acl", "list")) == 9
    assert cli.rows("acl", "list", "--principal", "User:bob") == [
        ["cluster", "kafka-cluster", "literal", "User:bob", "10.0.0.1", "all", "deny"]
    ]
    matching = ("--topic", "prefix", "--resource-pattern-type", "match")
    assert cli.json("acl", "list", *matching) == [
        {
            "resource": "topic",
            "name": "pre",
            "pattern": "prefixed",
            "principal": "User:ann",
            "host": "*",
            "operation": "all",
            "permission": "allow",
        }
    ]
    assert "--yes" in cli.refused("acl", "remove", "--topic", "t", status=2)
    assert len(cli.json("acl", "remove", "--topic", "t", "--operation", "write", "--yes")) == 1
    shown = cli("acl", "remove", "--topic", "t", "--yes")
    assert (len(shown.stdout.splitlines()), shown.stderr) == (1 + 3, "removed 3 ACLs\n")
    assert len(cli.json("acl", "remove", *ann, "--yes")) == 4
    assert len(cli.json("acl", "remove", "--cluster", "--yes")) == 1
    assert cli.json("acl", "list") == []
    assert "no ACL matches" in cli("acl", "remove", "--topic", "t").stderr


def test_options_that_make_no_acl(cli: Cli) -> None:
    for options, reason in (
        (["--topic", "a"], "--allow-principal"),
        (["--topic", "a", "--allow-principal", "ann"], "write User:ann"),
        (["--allow-principal", "User:a"], "name a resource"),
        (["--group", "g", "--allow-principal", "User:a", "--operation", "write"], "it has all"),
        (["--topic", "a", "--allow-principal", "User:a", "--operation", "fly"], "fly"),
    ):
        assert reason in cli.refused("acl", "add", *options, status=2)


def test_users_log_in_with_what_was_created(
    cli: Cli, broker: RunningBroker, tmp_path: Path
) -> None:
    """X2, E3: the password comes from stdin or the environment, and is printed nowhere."""
    result = cli("user", "create", "zoe", "--password-stdin", stdin="sesame\n")
    assert result.output == "user zoe can log in with SCRAM-SHA-512\n"
    both = ("-m", "SCRAM-SHA-256", "-m", "SCRAM-SHA-512", "--iterations", "8192")
    result = cli("user", "create", "max", *both, env={"PENSTOCK_USER_PASSWORD": "moritz"})
    assert "moritz" not in result.output
    assert cli.rows("user", "list") == [
        ["max", "SCRAM-SHA-256", "8192"],
        ["max", "SCRAM-SHA-512", "8192"],
        ["zoe", "SCRAM-SHA-512", "4096"],
    ]
    assert cli.json("user", "describe", "zoe") == [
        {"user": "zoe", "mechanism": "SCRAM-SHA-512", "iterations": 4096}
    ]
    zoe = logged_in(broker, tmp_path, "zoe", "sesame", "SCRAM-SHA-512")
    assert zoe.json("topic", "list", "-q") == []  # she may see none
    cli("acl", "add", "--allow-principal", "User:zoe", "--topic", "orders", "--operation", "read")
    assert zoe.json("topic", "list", "-q") == ["orders"]
    assert "(TOPIC_AUTHORIZATION_FAILED)" in zoe.refused("topic", "delete", "orders", "--yes")
    assert "(CLUSTER_AUTHORIZATION_FAILED)" in zoe.refused("acl", "list")
    wrong = logged_in(broker, tmp_path, "zoe", "wrong", "SCRAM-SHA-512")
    assert "(SASL_AUTHENTICATION_FAILED)" in wrong.refused("topic", "list")

    assert "--yes" in cli.refused("user", "delete", "max", status=2)
    cli("user", "delete", "max", "-m", "SCRAM-SHA-256", "--yes")
    assert cli.json("user", "delete", "max", "--yes") == [
        {"user": "max", "mechanism": "SCRAM-SHA-512", "deleted": True}
    ]
    assert "(RESOURCE_NOT_FOUND)" in cli.refused("user", "describe", "max")
    assert "(RESOURCE_NOT_FOUND)" in cli.refused("user", "delete", "max", "--yes")


def test_passwords_that_are_missing(cli: Cli) -> None:
    assert "--password-stdin" in cli.refused("user", "create", "x", status=2)
    error = cli.refused("user", "create", "x", "--password-stdin", stdin="\n", status=2)
    assert "the password is empty" in error
    cli.refused("user", "create", "x", "--iterations", "1", status=2)
