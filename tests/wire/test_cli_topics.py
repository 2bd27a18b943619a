"""`penstock topic` and `penstock offsets` at our broker (M1, C2)."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.cli import app as cli_app
from penstock.cli.session import VARIABLE
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.cli import Cli
from tests.support.coordinator.transaction_client import TxnProducer
from tests.support.protocol.requests import NOW, batch_of, make_topic, send_batch


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "log.retention.ms": "-1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
    }


@pytest.fixture(scope="module")
def cli(broker: RunningBroker) -> Cli:
    return Cli(broker.bootstrap_servers)


def test_a_topic_is_created_listed_described_grown_and_deleted(cli: Cli) -> None:
    """M1: partitions can be added, never taken away."""
    created = cli("topic", "create", "life", "-p", "2", "-r", "1", "-c", "retention.ms=60000")
    assert created.stdout == "created: life (partitions: 2, replicas: 1)\n"
    assert ["life", "2", "1", "no"] in [row[:4] for row in cli.rows("topic", "list")]
    assert "life" in cli("topic", "list", "--names").stdout.splitlines()

    [described] = cli.json("topic", "describe", "life")
    assert len(described.pop("topic_id")) == 22
    assert described == {
        "topic": "life",
        "internal": False,
        "partition_count": 2,
        "replication_factor": 1,
        "configs": {"retention.ms": "60000"},
        "partitions": [
            {
                "partition": number,
                "leader": 0,
                "leader_epoch": 0,
                "replicas": [0],
                "isr": [0],
                "offline_replicas": [],
                "eligible_leader_replicas": [],
                "last_known_eligible_leader_replicas": [],
            }
            for number in range(2)
        ],
    }
    text = cli("topic", "describe", "life").stdout
    assert "Settings:   retention.ms=60000\n" in text
    assert "PARTITION  LEADER  REPLICAS  ISR  ELR  LAST KNOWN ELR\n" in text

    assert cli("topic", "alter", "life", "-p", "4").stdout == "life now has 4 partitions\n"
    assert "partitions can only be added" in cli.refused("topic", "alter", "life", "-p", "3")
    assert "--yes" in cli.refused("topic", "delete", "life", status=2)
    assert cli.json("topic", "delete", "life", "--yes") == [{"topic": "life", "deleted": True}]
    assert "life" not in cli("topic", "list", "--names").stdout.splitlines()
    assert "(UNKNOWN_TOPIC_OR_PARTITION)" in cli.refused("topic", "delete", "life", "-y")
    assert cli("topic", "delete", "life", "lif.", "--if-exists").stdout == ""


def test_what_create_refuses(cli: Cli) -> None:
    """E1: the message says how many brokers there are, and what to do."""
    error = cli.refused("topic", "create", "a", "-r", "3")
    assert "the 1 broker that is up: start more brokers" in error
    assert "min.insync.replicas" in cli.refused(
        "topic", "create", "a", "-c", "min.insync.replicas=0"
    )
    assert "not allowed" in cli.refused("topic", "create", "bad name!")
    assert "leave" in cli.refused(
        "topic", "create", "a", "-p", "1", "--replica-assignment", "0", status=2
    )
    assert "KEY=VALUE" in cli.refused("topic", "create", "a", "-c", "x", status=2)
    cli.refused("topic", "create", status=2)
    cli.refused("topic", "create", "a", "-p", "0", status=2)


def test_some_of_several_topics_exist(cli: Cli) -> None:
    cli("topic", "create", "here")
    error = json.loads(cli.refused("topic", "create", "here", "there", "--json"))
    assert error["error"] == "TOPIC_ALREADY_EXISTS"
    assert (list(error["errors"]), error["done"]) == (["here"], ["there"])
    again = cli("topic", "create", "here", "elsewhere", "--if-not-exists")
    assert again.stdout == "created: elsewhere (partitions: 1, replicas: 1)\n"
    assert again.stderr == "topic here exists already\n"
    assert "(TOPIC_ALREADY_EXISTS)" in cli.refused("topic", "create", "here")


def test_dry_runs_change_nothing(cli: Cli) -> None:
    assert "could be created: dry" in cli("topic", "create", "dry", "--dry-run").stdout
    assert cli.json("topic", "list", "dr.*", "-q") == []
    cli("topic", "create", "wet")
    [altered] = cli.json("topic", "alter", "wet", "-p", "5", "--dry-run")
    assert altered == {"topic": "wet", "partitions": 5, "altered": False}
    [described] = cli.json("topic", "describe", "wet")
    assert described["partition_count"] == 1


def test_patterns_and_ids(cli: Cli) -> None:
    cli("topic", "create", "pat.a", "pat.b", "--replica-assignment", "0,0")
    assert cli.json("topic", "list", "pat.*", "-q") == ["pat.a", "pat.b"]
    [by_name] = cli.json("topic", "describe", "pat.a")
    [by_id] = cli.json("topic", "describe", "--topic-id", by_name["topic_id"])
    assert by_id == by_name
    assert by_name["partition_count"] == 2
    assert "no topic has the id" in cli.refused("topic", "describe", "--topic-id", "x")
    deleted = cli.json("topic", "delete", r"pat\..*", "--yes")
    assert [row["topic"] for row in deleted] == ["pat.a", "pat.b"]
    assert "no topic matches" in cli.refused("topic", "delete", r"pat\..*", "--yes")


def test_internal_topics_are_shown_on_demand(cli: Cli, client: WireClient) -> None:
    TxnProducer.started(client, "maker")
    assert cli.json("topic", "list", "__.*", "-q") == []
    assert "__transaction_state" in cli.json("topic", "list", "--internal", "-q")
    [described] = cli.json("topic", "describe", "__transaction_state")
    assert described["internal"]
    assert "--internal" in cli.refused("topic", "delete", "__t.*", "--yes")


def test_only_partitions_in_need(cli: Cli) -> None:
    """E7: what to look at when producers are refused."""
    cli("topic", "create", "need", "-p", "2", "-c", "min.insync.replicas=1")
    for need in ("under-replicated", "unavailable", "under-min-isr"):
        result = cli("topic", "describe", "need", f"--{need}-partitions")
        assert result.stdout == ""
        assert "no partition is " in result.stderr
    rows = cli.rows("topic", "describe", "need", "--at-min-isr-partitions")
    assert [row[:2] for row in rows] == [["need", "0"], ["need", "1"]]
    overridden = cli.json("topic", "describe", "--topics-with-overrides")
    assert "need" in [item["topic"] for item in overridden]
    cli.refused(
        "topic", "describe", "--unavailable-partitions", "--topics-with-overrides", status=2
    )


def test_leaders_are_elected(cli: Cli, tmp_path: Path) -> None:
    """R8: nothing is needed on one broker, and that is said."""
    cli("topic", "create", "led", "-p", "3")
    assert cli.json("topic", "elect", "led:0,2") == [
        {"topic": "led", "partition": 0, "elected": False},
        {"topic": "led", "partition": 2, "elected": False},
    ]
    assert cli.json("topic", "elect", "--all") == []
    file = tmp_path / "x.json"
    file.write_text('{"partitions": [{"topic": "led", "partition": 1}]}')
    assert [row[1] for row in cli.rows("topic", "elect", "--file", str(file))] == ["1"]
    assert "--yes" in cli.refused("topic", "elect", "led", "--type", "unclean", status=2)
    assert "(UNKNOWN_TOPIC_OR_PARTITION)" in cli.refused("topic", "elect", "missing")
    cli.refused("topic", "elect", status=2)


def test_offsets(cli: Cli, client: WireClient) -> None:
    """C2: the first offset, the high watermark, and where read_committed ends."""
    make_topic(client, "off", 2)
    for number in range(5):
        send_batch(client, "off", batch_of(b"v", timestamp=NOW + 1000 * number))
    TxnProducer.started(client, "open").write("off", b"x", b"y")
    cli("log", "delete-records", "off:0=2", "--yes")
    assert cli.json("offsets", "off") == [
        {
            "topic": "off",
            "partition": 0,
            "earliest": 2,
            "high_watermark": 7,
            "last_stable": 5,
            "offsets": 5,
        },
        {
            "topic": "off",
            "partition": 1,
            "earliest": 0,
            "high_watermark": 0,
            "last_stable": 0,
            "offsets": 0,
        },
    ]
    assert cli.rows("offsets", "off:0", "-t", "earliest") == [["off", "0", "2", "-"]]
    assert cli.rows("offsets", "o.*f:0", "-t", "-1") == [["off", "0", "7", "-"]]
    level = ("--isolation-level", "read_committed")
    assert cli.rows("offsets", "o.*f:0", "-t", "-1", *level) == [["off", "0", "5", "-"]]
    [result] = cli.json("offsets", "off:0", "-t", str(NOW + 2500))
    assert (result["offset"], result["timestamp"]) == (3, NOW + 3000)
    [row] = cli.rows("offsets", "off:0", "-t", "2023-11-14T22:13:23Z")
    assert row[2:] == ["3", "2023-11-14", "22:13:23.000+00:00"]
    assert cli.json("offsets", "off:1", "-t", "max-timestamp")[0]["offset"] is None
    assert "has no partition 7" in cli.refused("offsets", "off:7")
    assert "penstock topic list" in cli.refused("offsets", "missing")
    assert "is not a time" in cli.refused("offsets", "off", "-t", "soon", status=2)
    everything = {item["topic"] for item in cli.json("offsets")}
    assert "__transaction_state" not in everything
    assert "__transaction_state" in {item["topic"] for item in cli.json("offsets", "--internal")}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("topic describe complete.", ["complete.a", "complete.b"]),
        ("topic describe complete.a nothing.", []),
        ("topic d", ["describe", "delete"]),
        ("topic elect --ty", ["--type"]),
        ("config describe topic complete.a", ["complete.a"]),
    ],
)
def test_words_are_completed_from_the_cluster(
    cli: Cli,
    broker: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    expected: list[str],
) -> None:
    """As bash calls it for the Tab key."""
    cli("topic", "create", "complete.a", "complete.b", "--if-not-exists")
    commands = {name: cli_app.COMMANDS[name] for name in ("topic", "config")}
    monkeypatch.setattr(cli_app, "COMMANDS", commands)
    line = f"penstock {words}"
    monkeypatch.setenv("_PENSTOCK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    monkeypatch.setenv(VARIABLE, broker.bootstrap_servers)
    with pytest.raises(SystemExit):
        cli_app.new_app()(prog_name="penstock")
    assert capsys.readouterr().out.split() == expected


def test_no_broker_there() -> None:
    """E6: the address and what to check, after no more than the time that was given."""
    error = Cli("127.0.0.1:1").refused("topic", "list", "--timeout", "0.3")
    assert "127.0.0.1:1: check --bootstrap-server, that the broker runs" in error
    assert "(REQUEST_TIMED_OUT)" in error
