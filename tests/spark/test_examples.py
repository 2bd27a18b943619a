"""The worked examples under examples/ run as documented (D1 to D5)."""

import json
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.change_data import generate as change_data
from examples.clickstream import generate as clickstream
from examples.payments import generate as payments
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.pipeline.yaml_file import load
from penstock.spark.run.run import RunResult, run
from penstock.testing import Broker
from tests.support.spark.databases import PostgreSqlServer, engine_for
from tests.support.spark.topic_sinks import committed, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(autouse=True)
def _broker_of_the_examples(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", broker.bootstrap_servers)


def run_once(spark: "SparkSession", name: str) -> tuple[PipelineSpec, RunResult]:
    spec = load(EXAMPLES / name / "pipeline.yml")
    return spec, run(spec, once=True, spark=spark)


def test_clickstream(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window and a join with a table, upserted (D2, D3), in two runs with views in between."""
    monkeypatch.setenv("CLICKSTREAM_FOLDER", str(tmp_path))
    database = tmp_path / "shop.db"
    clickstream.make_customers(database, 20)
    clickstream.make_topic(broker.bootstrap_servers)
    expected: Counter[tuple[str, str]] = Counter()
    broken = dead_letters = 0
    for seed in (1, 2):
        begin = datetime(2026, 1, 1, 12 + seed, tzinfo=UTC)
        counts, more = clickstream.send_views(broker.bootstrap_servers, 700, seed, 20, begin)
        expected.update({group: views for group, (views, _) in counts.items()})
        broken += more
        _, result = run_once(spark, "clickstream")
        dead_letters += result.dead_letters
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT minute, segment, views FROM views_per_minute").fetchall()
    assert {(minute[:16], segment): views for minute, segment, views in rows} == dict(expected)
    assert (
        dead_letters
        == broken
        == len(committed(broker.bootstrap_servers, "clicks.dead-letters"))
        == 2
    )


def test_change_data(
    spark: "SparkSession",
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgresql: PostgreSqlServer,
) -> None:
    """A table follows the inserts, updates and deletions of a topic (D3)."""
    url = postgresql.fresh()
    monkeypatch.setenv("CHANGE_DATA_FOLDER", str(tmp_path))
    monkeypatch.setenv("CHANGE_DATA_DATABASE", url.render_as_string(hide_password=False))
    table = change_data.send(broker.bootstrap_servers, 1_500, seed=3)
    run_once(spark, "change_data")
    with engine_for(url) as engine, engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT id, name, city, credit FROM customers").all()
    assert {tuple(row) for row in rows} == {
        (row["id"], row["name"], row["city"], Decimal(row["credit"])) for row in table.values()
    }
    assert len(rows) == len(table)


def test_payments(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topic to topic in transactions: each payment once, although shops send some twice (D1)."""
    monkeypatch.setenv("PAYMENTS_FOLDER", str(tmp_path))
    payments.make_merchants(tmp_path / "merchants.csv")
    payments.make_topics(broker.bootstrap_servers)
    approved: set[str] = set()
    suspicious: set[str] = set()
    for seed in (1, 2):
        sent = payments.send(broker.bootstrap_servers, 600, seed)
        approved |= sent.approved
        suspicious |= sent.suspicious
        _, result = run_once(spark, "payments")
        assert result.dead_letters == sent.broken == 1
    ids: dict[str, list[str]] = {}
    for topic in ("payments.approved", "payments.suspicious"):
        values = values_of(broker.bootstrap_servers, topic)
        ids[topic] = [json.loads(value)["id"] for value in values]
    assert sorted(ids["payments.approved"]) == sorted(approved)
    assert sorted(ids["payments.suspicious"]) == sorted(suspicious)
    assert "examples.payments.steps" not in sys.modules  # it was loaded from the file
