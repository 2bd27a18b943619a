"""`penstock config` and `penstock quota` at our broker (X4)."""

from pathlib import Path

import pytest

from tests.support.broker.in_process import RunningBroker
from tests.support.client.cli import Cli


@pytest.fixture(scope="module")
def cli(broker: RunningBroker) -> Cli:
    return Cli(broker.bootstrap_servers)


def values(cli: Cli, kind: str, name: str, *options: str) -> dict[str, str]:
    [result] = cli.json("config", "describe", kind, name, *options)
    assert (result["kind"], result["name"]) == (kind, name)
    return {row["name"]: row["value"] for row in result["settings"]}


def test_settings_of_a_topic(cli: Cli, tmp_path: Path) -> None:
    """Set, append, subtract, delete; those that are not named stay."""
    cli("topic", "create", "t")
    nothing = cli("config", "describe", "topic", "t")
    assert (nothing.stdout, nothing.stderr) == (
        "",
        "nothing was set here: --all shows every setting\n",
    )
    changed = cli("config", "alter", "topic", "t", "-s", "retention.ms=5", "-s", "segment.ms=7")
    assert changed.stdout == "changed: topic t: retention.ms, segment.ms\n"
    alter = ("config", "alter", "topic", "t")
    cli(*alter, "--append", "cleanup.policy=compact", "-d", "segment.ms")
    assert values(cli, "topic", "t") == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "5",
    }
    cli(*alter, "--subtract", "cleanup.policy=delete")
    assert values(cli, "topic", "t", "-k", "cleanup.policy") == {"cleanup.policy": "compact"}
    file = tmp_path / "t.properties"
    file.write_text("retention.ms=9\nmax.message.bytes = 2000000\n")
    cli(*alter, "--file", str(file), "-s", "retention.ms=8")
    result = values(cli, "topic", "t")
    assert (result["retention.ms"], result["max.message.bytes"]) == ("8", "2000000")
    everything = values(cli, "topic", "t", "--all")
    assert everything["segment.ms"] == "604800000"
    [row] = cli.rows("config", "describe", "topic", "t", "-k", "retention.ms", "--synonyms")
    assert row == ["topic", "t", "retention.ms", "8", "dynamic-topic", "no", "retention.ms=8"]


def test_changes_that_are_refused(cli: Cli) -> None:
    """E5 and others: the name of the setting, and what it may be."""
    cli("topic", "create", "refused")
    alter = ("config", "alter", "topic", "refused")
    assert "compression.type" in cli.refused(*alter, "-s", "compression.type=zip")
    assert "(INVALID_CONFIG)" in cli.refused(*alter, "-s", "no.such=1", "--dry-run")
    assert "(UNKNOWN_TOPIC_OR_PARTITION)" in cli.refused("config", "describe", "topic", "none")
    assert "name what to change" in cli.refused(*alter, status=2)
    assert "in two ways" in cli.refused(*alter, "-s", "a=1", "-d", "a", status=2)
    assert "is not a broker" in cli.refused("config", "alter", "broker", "x", "-s", "a=1", status=2)
    cli.refused("config", "describe", "planet", status=2)
    assert "No such file" in cli.refused(*alter, "--file", "/no/such", status=2)


def test_a_dry_run_changes_nothing(cli: Cli) -> None:
    cli("topic", "create", "dry")
    [planned] = cli.json("config", "alter", "topic", "dry", "-s", "retention.ms=1", "--dry-run")
    assert planned == {
        "kind": "topic",
        "name": "dry",
        "altered": False,
        "settings": ["retention.ms"],
    }
    assert values(cli, "topic", "dry") == {}


def test_settings_of_brokers(cli: Cli) -> None:
    alter = ("config", "alter", "broker")
    cli(*alter, "default", "-s", "log.cleaner.threads=2")
    cli(*alter, "0", "-s", "background.threads=11")
    assert values(cli, "broker", "default") == {"log.cleaner.threads": "2"}
    assert values(cli, "broker", "0") == {"background.threads": "11"}
    rows = [row[:4] for row in cli.rows("config", "describe", "broker")]
    assert rows == [
        ["broker", "0", "background.threads", "11"],
        ["broker", "default", "log.cleaner.threads", "2"],
    ]
    secret = cli.rows("config", "describe", "broker", "0", "-k", "ssl.keystore.password")
    assert secret[0][3] == "(hidden)"


def test_settings_of_loggers_groups_and_clients(cli: Cli) -> None:
    cli("config", "alter", "broker-logger", "0", "-s", "kafka=DEBUG")
    assert values(cli, "broker-logger", "0", "-k", "kafka") == {"kafka": "DEBUG"}
    cli("config", "alter", "broker-logger", "0", "-d", "kafka")
    cli("config", "alter", "group", "g", "-s", "consumer.session.timeout.ms=50000")
    assert values(cli, "group", "g") == {"consumer.session.timeout.ms": "50000"}
    cli("config", "alter", "client-metrics", "m", "-s", "interval.ms=60000")
    [row] = cli.rows("config", "describe", "client-metrics")
    assert row[:4] == ["client-metrics", "m", "interval.ms", "60000"]
    listed = cli.json("config", "list", "group", "client-metrics")
    assert listed == [{"kind": "client-metrics", "name": "m"}, {"kind": "group", "name": "g"}]


def test_quotas(cli: Cli) -> None:
    """X4: of users, client ids, both, addresses, and defaults."""
    alter = ("quota", "alter")
    cli(*alter, "--user", "ann", "-s", "producer_byte_rate=1024", "-s", "request_percentage=12.5")
    cli(*alter, "--user", "ann", "--client-defaults", "-s", "consumer_byte_rate=5")
    cli(*alter, "--ip-defaults", "-s", "connection_creation_rate=3")
    assert cli.rows("quota", "describe") == [
        ["ann", "<default>", "-", "consumer_byte_rate", "5"],
        ["ann", "-", "-", "producer_byte_rate", "1024"],
        ["ann", "-", "-", "request_percentage", "12.5"],
        ["-", "-", "<default>", "connection_creation_rate", "3"],
    ]
    result = cli.json("quota", "describe", "--user", "ann", "--strict")
    assert result[0] == {
        "user": "ann",
        "client_id": None,
        "ip": None,
        "quota": "producer_byte_rate",
        "value": 1024,
    }
    assert len(result) == 2
    planned = cli.json(*alter, "--user", "ann", "-d", "producer_byte_rate", "--dry-run")
    assert planned["quotas"] == {"producer_byte_rate": None}
    assert len(cli.json("quota", "describe", "--user", "ann")) == 3
    cli(*alter, "--user", "ann", "-d", "producer_byte_rate")
    assert len(cli.json("quota", "describe", "--user", "ann")) == 2
    assert cli.json("quota", "describe", "--client-id", "nobody") == []
    assert "it has producer_byte_rate" in cli.refused(*alter, "--user", "ann", "-s", "no=1")
    assert "must be a number" in cli.refused(*alter, "--user", "a", "-s", "x=y", status=2)
    assert "owner of the quota" in cli.refused(*alter, "-s", "producer_byte_rate=1", status=2)
    cli.refused(*alter, "--user", "ann", status=2)
    cli.refused(*alter, "--user", "ann", "-s", "x=1", "-d", "x", status=2)
