"""A pipeline into SQLite with unreadable records, as a user sees it (D3, D4, D5)."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.core.ids import TopicPartition
from penstock.spark.errors import PipelineError, TooManyDeadLettersError
from penstock.spark.pipeline.model import DeadLetterSpec
from penstock.spark.progress import Batch
from penstock.spark.run.run import run
from penstock.spark.run.status import status
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.port import WriteResult
from penstock.spark.watch.report import BatchReport
from penstock.spark.watch.run_listener import RunListener
from penstock.testing import Broker
from tests.support.spark.memory_sink import MemorySink
from tests.support.spark.pipelines import PipelineScenario, click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Watching(RunListener):
    def __init__(self) -> None:
        self.stored_batches: list[tuple[str, int, int, int]] = []
        self.reports: list[BatchReport] = []

    def stored(self, query: str, batch: Batch, applied: WriteResult) -> None:
        self.stored_batches.append((query, batch.batch_id, applied.rows, applied.dead_letters))

    def finished(self, report: BatchReport) -> None:
        self.reports.append(report)


def test_rows_dead_letters_and_progress_are_one_transaction(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    scenario = PipelineScenario(spark, broker, tmp_path)
    database = tmp_path / "results.sqlite"
    sink = DatabaseSinkSpec(
        name="results", view="clicks", database=f"sqlite:///{database}", table="clicks"
    )
    view = replace(scenario.spec, steps=(), sinks=(sink,))
    key = view.query(sink)
    before = status(view)
    assert before.queries[0].state is None
    assert not database.exists()

    scenario.produce([*map(click, range(5)), b"no JSON", click(5)])
    with pytest.raises(TooManyDeadLettersError, match=r"1 of 7 records cannot be read.* offset 5"):
        run(view, once=True, spark=spark)
    letters = replace(view, dead_letters=DeadLetterSpec(table="bad"))

    def crash(step: str) -> None:
        if step == "stored":
            raise PipelineError("killed")

    with pytest.raises(PipelineError, match="killed"):
        run(letters, once=True, spark=spark, at=crash)
    scenario.produce([click(6), b"[]"])
    watching = Watching()
    result = run(letters, once=True, spark=spark, listeners=[watching])
    assert result.queries[0].skipped == 1
    assert (result.rows, result.dead_letters) == (1, 1)
    assert watching.stored_batches == [(key, 1, 1, 1)]
    assert [(report.batch_id, report.records) for report in watching.reports] == [(0, 0), (1, 2)]

    connection = sqlite3.connect(database)
    ids = connection.execute("SELECT id FROM clicks ORDER BY id").fetchall()
    bad = connection.execute('SELECT "offset", value FROM bad ORDER BY 1').fetchall()
    connection.close()
    assert [row[0] for row in ids] == list(range(7))
    assert [(offset, bytes(value)) for offset, value in bad] == [(5, b"no JSON"), (8, b"[]")]

    scenario.produce([click(7), click(8)])
    [results] = status(letters).queries
    assert (results.key, results.lag, results.problems) == (key, 2, ())
    assert results.partitions[0].next_offset == 9
    assert results.state is not None
    assert results.state.epoch == 3
    assert results.state.last_batch is not None
    assert (results.state.last_batch.rows, results.state.last_batch.dead_letters) == (1, 1)


def test_dead_letters_of_a_sink_without_support_go_to_a_topic(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """Both are written once, even if the sink fails after the dead letters were written."""
    scenario = PipelineScenario(spark, broker, tmp_path)
    topic = f"{scenario.topic}-dead"
    broker.create_topic(topic, 1)
    spec = replace(scenario.spec, dead_letters=DeadLetterSpec(topic=topic))
    scenario.produce([click(0), b"bad", click(1)])

    def crash(step: str) -> None:
        if step == "dead-letters":
            raise PipelineError("killed")

    def sink(*args: object) -> MemorySink:
        return MemorySink(scenario.memory, takes_dead_letters=False)

    with pytest.raises(PipelineError, match="killed"):
        run(spec, once=True, spark=spark, sinks=sink, at=crash)
    assert run(spec, once=True, spark=spark, sinks=sink).rows == 2
    assert scenario.column("id") == [0, 1]
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        result = consumer.poll(10)
        assert [record.value for record in result] == [b"bad"]
        assert dict(result[0].headers)["penstock.dlq.offset"] == b"1"
        assert not consumer.poll(0.2)
