"""`penstock cluster` and `penstock log` at our broker (S1, S4, R8)."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.client.cli import Cli
from tests.support.coordinator.group_client import wait_until
from tests.support.protocol.requests import batch_of, make_topic, send_batch


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    base = tmp_path_factory.mktemp("dirs")
    return [str(base / "a"), str(base / "b")]


@pytest.fixture(scope="module")
def settings(directories: list[str]) -> Mapping[str, str]:
    return {"log.dirs": ",".join(directories), "broker.rack": "r1"}


@pytest.fixture(scope="module")
def cli(broker: RunningBroker) -> Cli:
    return Cli(broker.bootstrap_servers)


def test_the_cluster(cli: Cli, broker: RunningBroker) -> None:
    host, port = broker.address
    result = cli.json("cluster", "describe")
    assert len(result.pop("cluster_id")) == 22
    node = {"id": 0, "host": host, "port": port, "rack": "r1"}
    assert result == {"controller": node, "brokers": [node | {"fenced": False}]}
    lines = cli("cluster", "describe").stdout.splitlines()
    assert lines[1] == f"Controller: {host}:{port} (id 0)"
    assert lines[3].split() == ["0", host, str(port), "r1", "yes", "up"]


def test_versions(cli: Cli) -> None:
    """E4: what the broker serves, and what client and broker have in common."""
    [served] = cli.json("cluster", "versions")
    assert served["error"] is None
    metadata = next(api for api in served["apis"] if api["name"] == "Metadata")
    assert (metadata["api_key"], metadata["min_version"]) == (3, 0)
    assert ["0", "3", "Metadata", "0", "13", "13"] in cli.rows(
        "cluster", "versions", "--broker", "0"
    )
    assert "there is no broker 7" in cli.refused("cluster", "versions", "--broker", "7")


def test_features(cli: Cli) -> None:
    assert ["transaction.version", "0", "2", "2", "0"] in cli.rows("cluster", "features")
    assert "--yes" in cli.refused("cluster", "downgrade", "-f", "group.version=0", status=2)
    down = ("cluster", "downgrade", "-f", "transaction.version=1")
    [planned] = cli.json(*down, "--dry-run")
    assert planned == {"feature": "transaction.version", "level": 1, "updated": False}
    cli(*down, "--yes")
    assert cli.json("cluster", "upgrade", "--latest") == [
        {"feature": "transaction.version", "level": 2, "updated": True}
    ]
    assert cli.json("cluster", "upgrade", "--latest") == []
    error = cli.refused("cluster", "upgrade", "-f", "group.version=99")
    assert "penstock cluster features" in error
    cli.refused("cluster", "upgrade", status=2)
    cli.refused("cluster", "upgrade", "-f", "group.version=x", status=2)
    cli.refused("cluster", "downgrade", status=2)


def test_what_only_kraft_has(cli: Cli) -> None:
    """E4: it says which Kafka has it."""
    for call in (("quorum",), ("unregister", "3", "--yes")):
        error = cli.refused("cluster", *call)
        assert "only KRaft clusters" in error
        assert "(UNSUPPORTED_VERSION)" in error


def test_directories(cli: Cli, client: WireClient, directories: list[str]) -> None:
    """S1: where partitions are, and how large."""
    make_topic(client, "big", 1)
    send_batch(client, "big", batch_of(b"x" * 500))
    result = cli.json("log", "dirs", "--topic", "big")
    assert [item["log_dir"] for item in result] == directories
    [partition] = [item for directory in result for item in directory["partitions"]]
    assert (partition["topic"], partition["is_future"]) == ("big", False)
    assert partition["size"] > 500
    summary = cli.rows("log", "dirs", "--summary", "--broker", "0")
    assert [row[:3] for row in summary] == [["0", directory, "ok"] for directory in directories]
    assert "big" in cli("log", "dirs").stdout


def test_records_are_deleted(cli: Cli, client: WireClient, tmp_path: Path) -> None:
    """S4."""
    make_topic(client, "cut", 2)
    for partition in range(2):
        send_batch(client, "cut", batch_of(b"a", b"b", b"c"), partition=partition)
    assert "--yes" in cli.refused("log", "delete-records", "cut:0=1", status=2)
    assert cli.json("log", "delete-records", "cut:0=1", "cut:1=-1", "--yes") == [
        {"topic": "cut", "partition": 0, "low_watermark": 1},
        {"topic": "cut", "partition": 1, "low_watermark": 3},
    ]
    file = tmp_path / "cut.json"
    file.write_text('{"partitions": [{"topic": "cut", "partition": 0, "offset": 2}]}')
    assert cli.rows("log", "delete-records", "--file", str(file), "--yes") == [["cut", "0", "2"]]
    error = cli.refused("log", "delete-records", "cut:0=99", "--yes")
    assert "(OFFSET_OUT_OF_RANGE)" in error
    assert "such as orders:0=42" in cli.refused("log", "delete-records", "cut:0", "-y", status=2)
    cli.refused("log", "delete-records", status=2)


def test_a_plan_is_generated_executed_and_verified(
    cli: Cli, client: WireClient, tmp_path: Path
) -> None:
    """R8: on one broker there is nowhere to go, and the plan says so."""
    make_topic(client, "move", 2)
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    generated = cli("log", "move", "generate", "move", "-o", str(plan))
    assert "0 partitions of 2 would change" in generated.stderr
    text = cli("log", "move", "generate", "move").stdout
    assert json.loads(text) == json.loads(plan.read_text())
    both = cli.json("log", "move", "generate", "move:1", "--brokers", "0")
    assert both["current"] == both["proposed"]
    topics = tmp_path / "topics.json"
    topics.write_text('{"topics": [{"topic": "move"}]}')
    same = cli("log", "move", "generate", "--topics-file", str(topics)).stdout
    assert same == text

    executed = cli("log", "move", "execute", str(plan), "--rollback", str(back), "--wait", "--yes")
    assert executed.stderr == "all partitions are on the brokers of the plan\n"
    assert json.loads(back.read_text()) == json.loads(plan.read_text())
    states = cli.json("log", "move", "verify", str(plan))
    assert [state["state"] for state in states] == ["complete", "complete"]
    assert cli.json("log", "move", "list") == []
    assert cli.json("log", "move", "cancel", "--all") == []


def test_plans_that_are_refused(cli: Cli, client: WireClient, tmp_path: Path) -> None:
    """E1: more copies than brokers."""
    make_topic(client, "stay", 1)
    generate = ("log", "move", "generate", "stay")
    assert "needs 2 brokers" in cli.refused(*generate, "-r", "2")
    assert "there is no broker 9" in cli.refused(*generate, "--brokers", "9")
    assert "--brokers x" in cli.refused(*generate, "--brokers", "x", status=2)
    cli.refused("log", "move", "generate", status=2)
    plan = tmp_path / "plan.json"
    entry = {"topic": "stay", "partition": 0, "replicas": [9]}
    plan.write_text(json.dumps({"partitions": [entry]}))
    assert "--yes" in cli.refused("log", "move", "execute", str(plan), status=2)
    error = cli.refused("log", "move", "execute", str(plan), "--yes")
    assert "brokers that are not up, [9]" in error
    result = cli.attempt("log", "move", "verify", str(plan))
    assert (result.exit_code, "different" in result.stdout) == (1, True)
    plan.write_text(json.dumps({"partitions": [entry | {"partition": 5}]}))
    assert "there is no partition stay-5" in cli.refused("log", "move", "execute", str(plan))
    cli.refused("log", "move", "cancel", status=2)


def test_a_partition_moves_to_another_directory(
    cli: Cli, client: WireClient, directories: list[str], tmp_path: Path
) -> None:
    """S1: and the throttle is there while it moves, and is taken away after."""
    make_topic(client, "wander", 1)
    send_batch(client, "wander", batch_of(b"v" * 100))

    def where() -> list[str]:
        result = cli.json("log", "dirs", "--topic", "wander")
        return [row["log_dir"] for row in result if row["partitions"]]

    def throttle() -> object:
        rate = "replica.alter.log.dirs.io.max.bytes.per.second"
        [result] = cli.json("config", "describe", "broker", "0")
        return {row["name"]: row["value"] for row in result["settings"]}.get(rate)

    [here] = where()
    [there] = [directory for directory in directories if directory != here]
    plan = tmp_path / "plan.json"
    entry = {"topic": "wander", "partition": 0, "replicas": [0], "log_dirs": [there]}
    plan.write_text(json.dumps({"partitions": [entry]}))
    option = "--replica-alter-log-dirs-throttle"
    started = cli("log", "move", "execute", str(plan), option, "100000000", "--yes")
    assert "penstock log move verify" in started.stderr
    assert throttle() == "100000000"
    wait_until(lambda: where() == [there])
    states = cli.json("log", "move", "verify", str(plan))
    assert [state["state"] for state in states] == ["complete", "complete"]
    assert throttle() is None


def test_files_are_dumped(cli: Cli, client: WireClient) -> None:
    make_topic(client, "dumped")
    send_batch(client, "dumped", batch_of(b"hello"))
    result = cli.json("log", "dirs", "--topic", "dumped")
    [directory] = [row["log_dir"] for row in result if row["partitions"]]
    file = Path(directory) / "dumped-0" / "00000000000000000000.log"
    assert "payload: hello" in cli("log", "dump", str(file), "--print-data-log").stdout


def test_the_status(cli: Cli, client: WireClient, broker: RunningBroker) -> None:
    make_topic(client, "status")
    send_batch(client, "status", batch_of(b"a", b"b", b"c"))
    host, port = broker.address
    document = cli.json("cluster", "status", "--topic", "status")
    assert document["controller"]["id"] == 0
    [node] = document["brokers"]
    assert (node["address"], node["rack"], node["is_up"]) == (f"{host}:{port}", "r1", True)
    [replica] = document["replicas"]
    assert replica == {
        "topic": "status",
        "partition": 0,
        "broker": 0,
        "is_leader": True,
        "in_sync": True,
        "log_end_offset": 3,
        "high_watermark": 3,
        "lag": 0,
    }
    lines = cli("cluster", "status", "--topic", "status", "--replicas").stdout.splitlines()
    assert "Partitions: 1, 0 under-replicated, 0 under min ISR, 0 offline" in lines
    assert lines[-1].split() == ["status", "0", "0", "leader", "yes", "3", "3", "0"]
