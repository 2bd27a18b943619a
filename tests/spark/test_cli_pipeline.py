"""The commands of `penstock pipeline`: checks in this process, runs in their own."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Admin, Producer
from penstock.client.admin import NewTopic
from penstock.core.ids import TopicPartition
from penstock.testing import Broker
from tests.support.client.cli import Cli

PIPELINE = """\
name: orders
bootstrap_servers: {servers}
sources:
  orders:
    topic: orders
    schema: id bigint, cents bigint
    required: [id]
steps:
  - name: large
    sql: |
      select id, cents
      from orders
      where cents >= 100
sinks:
  large:
    from: large
    database: sqlite:///orders.db
    table: large
dead_letters:
  topic: orders-dead
"""


@pytest.fixture
def file(broker: Broker, tmp_path: Path) -> Path:
    file = tmp_path / "pipeline.yml"
    file.write_text(PIPELINE.format(servers=broker.bootstrap_servers))
    return file


@pytest.fixture
def _topic(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        if "orders" not in admin.list_topics():
            admin.create_topics([NewTopic("orders", 2)])


def penstock(*arguments: str) -> dict[str, Any]:
    """Runs a command in its own process, with --json."""
    command = [sys.executable, "-m", "penstock", "pipeline", *arguments, "--json"]
    environment = {**os.environ, "PYTHONWARNINGS": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    result: Any = json.loads(done.stdout)
    return {"queries": result} if isinstance(result, list) else result


def rows(directory: Path) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(directory / "orders.db")) as connection:
        return connection.execute("SELECT id, cents FROM large ORDER BY id").fetchall()


def test_problems_have_their_lines(file: Path) -> None:
    """E5, and problems that only the broker can show."""
    cli = Cli()
    text = file.read_text()
    unknown = file.with_name("unknown.yml")
    unknown.write_text(text.replace("topic: orders\n", "topic: oders\n"))
    result = cli.attempt("pipeline", "validate", str(unknown))
    assert result.exit_code == 1
    assert f"{unknown}:5: sources.orders.topic: unknown topic oders" in result.stdout
    assert "1 problem in" in result.stderr

    bad = file.with_name("bad.yml")
    bad.write_text(text.replace("from orders\n", "from order\n").replace("cents >=", "cent >="))
    result = cli.attempt("pipeline", "validate", "--offline", "--json", str(bad))
    problems = json.loads(result.stdout)["problems"]
    assert [(problem["line"], problem["where"]) for problem in problems] == [
        (12, "steps.large.sql")
    ]
    assert "did you mean orders?" in problems[0]["message"]
    assert cli.refused("pipeline", "validate", "no-such.yml").startswith("penstock: there is no")


def test_an_unreachable_broker(file: Path) -> None:
    """E6: one line, no traceback."""
    file.write_text(f"{file.read_text()}kafka:\n  default.api.timeout.ms: 1000\n")
    result = Cli().refused("pipeline", "status", str(file), "-b", "127.0.0.1:1", status=0)
    assert "127.0.0.1:1" in result


@pytest.mark.long
@pytest.mark.usefixtures("_topic")
def test_from_validate_to_rebuild(file: Path, broker: Broker) -> None:
    """All commands with one pipeline (D3, D4, D5)."""
    cli = Cli()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(100):
            event = {"id": number, "cents": number * 10}
            producer.send("orders", json.dumps(event).encode(), partition=number % 2)
        producer.send("orders", b"what?", partition=0)
    assert "no problems found" in cli("pipeline", "validate", str(file)).stdout
    before = cli.json("pipeline", "status", str(file))
    assert (before["lag"], before["queries"][0]["last_batch"]) == (101, None)
    assert "topic orders (2 partitions)" in cli("pipeline", "plan", str(file)).stdout

    result = penstock("run", str(file), "--once", "--metrics-port", "0")["queries"]
    assert [(query["query"], query["rows"], query["dead_letters"]) for query in result] == [
        ("orders.large", 90, 1)
    ]
    expected = [(number, number * 10) for number in range(10, 100)]
    assert rows(file.parent) == expected

    after = cli.json("pipeline", "status", str(file))
    assert (after["lag"], after["queries"][0]["last_batch"]) == (0, 0)
    assert "orders.large" in cli("pipeline", "status", str(file)).stdout
    assert "51" in cli("pipeline", "plan", str(file)).stdout
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        group = admin.list_group_offsets(["orders"])["orders"]
    committed = {partition: offset.offset for partition, offset in group.items() if offset}
    assert committed == {TopicPartition("orders", 0): 51, TopicPartition("orders", 1): 50}

    dead = cli.json("pipeline", "replay-dlq", str(file), "--dry-run")
    assert (dead["replayed"], dead["by_topic"]) == (1, {"orders": 1})
    assert "sent 1 to orders" in cli("pipeline", "replay-dlq", str(file)).stdout
    assert cli.json("pipeline", "status", str(file))["lag"] > 0

    refused = cli.refused("pipeline", "rebuild", str(file), status=2)
    assert "nothing was done. Add --yes" in refused
    assert penstock("rebuild", str(file), "--yes") == {"cleared": ["orders.large"]}
    assert rows(file.parent) == []
    assert cli.json("pipeline", "status", str(file))["lag"] > 101
