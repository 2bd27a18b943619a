"""A pipeline that is stopped, crashes, or loses its checkpoint: each row exactly once (D3)."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client.admin.admin import Admin
from penstock.spark.errors import (
    CheckpointLostError,
    PipelineError,
    ProgressError,
)
from penstock.testing import Broker
from tests.support.spark.pipelines import PER_MINUTE, PipelineScenario, click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_existing_records_are_read_once_and_new_records_by_the_next_run(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    scenario = PipelineScenario(spark, broker, tmp_path, partitions=2)
    scenario.produce(map(click, range(50)))
    scenario.produce(map(click, range(50, 60)), partition=1)
    first = scenario.once()
    assert first.rows == 60
    scenario.produce(map(click, range(60, 70)))
    second = scenario.once()
    assert (second.rows, second.queries[0].batches) == (10, 1)
    assert scenario.column("id") == sorted(range(70), key=repr)


def test_a_running_pipeline_reads_new_records_also_of_new_partitions_and_stops_cleanly(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    scenario = PipelineScenario(spark, broker, tmp_path)
    scenario.produce(map(click, range(5)))
    with scenario.continuously() as running:
        running.until(lambda: len(scenario.memory.rows) == 5)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_partitions({scenario.topic: 2})
        scenario.produce(map(click, range(5, 10)), partition=1)
        running.until(lambda: len(scenario.memory.rows) == 10)
    assert running.error is None
    assert running.result is not None
    assert running.result.rows == 10
    assert len(list((scenario.checkpoint / "commits").glob("[0-9]*"))) == len(
        scenario.memory.batches
    )
    scenario.produce(map(click, range(10, 12)), partition=1)
    assert scenario.once().rows == 2
    assert scenario.column("id") == sorted(range(12), key=repr)


def test_a_stateless_query_resumes_without_its_checkpoint(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """The query resumes from the sink's offsets; a partition that was added is read from 0."""
    scenario = PipelineScenario(spark, broker, tmp_path)
    scenario.produce(map(click, range(5)))
    scenario.once()
    shutil.rmtree(scenario.checkpoint)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({scenario.topic: 2})
    scenario.produce(map(click, range(5, 8)))
    scenario.produce(map(click, range(8, 10)), partition=1)
    assert scenario.once().rows == 5
    assert scenario.column("id") == sorted(range(10), key=repr)


class KilledError(Exception):
    """Simulates a kill: the query ends here, without its next actions."""


def windows(scenario: PipelineScenario) -> dict[object, object]:
    assert len({str(row["start"]) for row in scenario.memory.rows}) == len(scenario.memory.rows)
    return {f"{row['start']:%H:%M}": row["clicks"] for row in scenario.memory.rows}


def test_windows_are_emitted_once_also_by_batches_that_read_nothing(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """The watermark of a batch applies to the next one, which may have no records (D2)."""
    scenario = PipelineScenario(spark, broker, tmp_path, steps=(PER_MINUTE,), view="per_minute")
    scenario.produce(
        [*(click(number, second=number) for number in range(20)), click(20, second=70)]
    )
    scenario.once()
    assert windows(scenario) == {"12:00": 20}
    assert scenario.memory.stored is not None
    assert scenario.memory.stored.batch_id == 1
    # Killed after the sink stored the batch without records: its windows are not repeated.
    scenario.lose_last_commit()
    scenario.produce([click(21, second=130)])
    result = scenario.once()
    assert result.queries[0].skipped == 1
    assert windows(scenario) == {"12:00": 20, "12:01": 1}


def test_a_skipped_batch_writes_its_state_again(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """Also by the first batch, whose start Spark does not store."""
    scenario = PipelineScenario(spark, broker, tmp_path, steps=(PER_MINUTE,), view="per_minute")
    scenario.produce(click(number, second=number) for number in range(5))

    def crash(step: str) -> None:
        if step == "stored":
            raise KilledError(step)

    with pytest.raises(PipelineError, match="stored"):
        scenario.once(crash)
    assert [batch.batch_id for batch in scenario.memory.batches] == [0]
    scenario.produce([click(5, second=6), click(6, second=70)])
    assert scenario.once().queries[0].skipped == 1
    assert windows(scenario) == {"12:00": 6}


def test_state_without_its_checkpoint_is_refused_until_it_is_rebuilt(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    scenario = PipelineScenario(spark, broker, tmp_path, steps=(PER_MINUTE,), view="per_minute")
    scenario.produce([*(click(number, second=number) for number in range(5)), click(5, second=70)])
    scenario.once()
    shutil.rmtree(scenario.checkpoint)
    with pytest.raises(CheckpointLostError, match="penstock pipeline rebuild"):
        scenario.once()

    def crash(step: str) -> None:
        if step == "cleared":
            # A run in between finds a checkpoint and no progress.
            raise KilledError

    scenario.checkpoint.mkdir(parents=True)
    (scenario.checkpoint / "metadata").write_text('{"id":"half-removed"}')
    with pytest.raises(KilledError):
        scenario.rebuild(crash)
    with pytest.raises(PipelineError, match="a rebuild was interrupted"):
        scenario.once()
    scenario.rebuild()
    scenario.once()
    assert windows(scenario) == {"12:00": 5}


def test_a_sink_that_lost_a_batch_is_refused_before_records_are_read(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """A database that was restored from an older copy."""
    scenario = PipelineScenario(spark, broker, tmp_path)
    scenario.produce(map(click, range(5)))
    scenario.once()
    copy = scenario.memory.stored, list(scenario.memory.rows)
    scenario.produce(map(click, range(5, 8)))
    scenario.once()
    scenario.memory.stored, scenario.memory.rows = copy
    with pytest.raises(ProgressError, match="was the database restored"):
        scenario.once()
    shutil.rmtree(scenario.checkpoint)
    scenario.once()
    assert scenario.column("id") == sorted(range(8), key=repr)
