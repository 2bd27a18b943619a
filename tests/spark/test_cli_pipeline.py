"""`penstock pipeline`, as a user types it: checks in this process, runs in their own."""

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
    """A command in a process of its own, with --json."""
    command = [sys.executable, "-m", "penstock", "pipeline", *arguments, "--json"]
    environment = {**os.environ, "PYTHONWARNINGS": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found: Any = json.loads(done.stdout)
    return {"queries": found} if isinstance(found, list) else found


def rows(folder: Path) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(folder / "orders.db")) as connection:
        return connection.execute("SELECT id, cents FROM large ORDER BY id").fetchall()


def test_problems_are_said_with_their_lines(file: Path) -> None:
    """E5, and what only the broker knows."""
    cli = Cli()
    text = file.read_text()
    unknown = file.with_name("unknown.yml")
    unknown.write_text(text.replace("topic: orders\n", "topic: oders\n"))
    said = cli.attempt("pipeline", "validate", str(unknown))
    assert said.exit_code == 1
    assert f"{unknown}:5: sources.orders.topic: unknown topic oders" in said.stdout
    assert "1 problem in" in said.stderr

    bad = file.with_name("bad.yml")
    bad.write_text(text.replace("from orders\n", "from order\n").replace("cents >=", "cent >="))
    said = cli.attempt("pipeline", "validate", "--offline", "--json", str(bad))
    problems = json.loads(said.stdout)["problems"]
    assert [(each["line"], each["where"]) for each in problems] == [(12, "steps.large.sql")]
    assert "did you mean orders?" in problems[0]["message"]
    assert cli.refused("pipeline", "validate", "no-such.yml").startswith("penstock: there is no")


def test_a_broker_that_is_away(file: Path) -> None:
    """E6: one line, no traceback."""
    file.write_text(f"{file.read_text()}kafka:\n  default.api.timeout.ms: 1000\n")
    said = Cli().refused("pipeline", "status", str(file), "-b", "127.0.0.1:1", status=0)
    assert "127.0.0.1:1" in said


@pytest.mark.usefixtures("_topic")
def test_from_validate_to_rebuild(file: Path, broker: Broker) -> None:
    """One pipeline through all commands (D3, D4, D5)."""
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
    assert [(each["query"], each["rows"], each["dead_letters"]) for each in result] == [
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
    committed = {each: found.offset for each, found in group.items() if found is not None}
    assert committed == {TopicPartition("orders", 0): 51, TopicPartition("orders", 1): 50}

    dead = cli.json("pipeline", "replay-dlq", str(file), "--dry-run")
    assert (dead["replayed"], dead["by_topic"]) == (1, {"orders": 1})
    assert "sent 1 to orders" in cli("pipeline", "replay-dlq", str(file)).stdout
    assert cli.json("pipeline", "status", str(file))["lag"] > 0

    refused = cli.refused("pipeline", "rebuild", str(file), status=2)
    assert "say --yes to do it" in refused
    assert penstock("rebuild", str(file), "--yes") == {"cleared": ["orders.large"]}
    assert rows(file.parent) == []
    assert cli.json("pipeline", "status", str(file))["lag"] > 101
