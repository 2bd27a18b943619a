"""A pipeline that is stopped, killed, robbed of its checkpoint: each row exactly once (D3)."""

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
from tests.support.spark.pipelines import PER_MINUTE, Play, click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_is_there_is_read_once_and_new_records_by_the_next_run(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    play = Play(spark, broker, tmp_path, partitions=2)
    play.produce(map(click, range(50)))
    play.produce(map(click, range(50, 60)), partition=1)
    first = play.once()
    assert first.rows == 60
    play.produce(map(click, range(60, 70)))
    second = play.once()
    assert (second.rows, second.queries[0].batches) == (10, 1)
    assert play.column("id") == sorted(range(70), key=repr)


def test_a_running_pipeline_takes_what_comes_also_from_new_partitions_and_stops_cleanly(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    play = Play(spark, broker, tmp_path)
    play.produce(map(click, range(5)))
    with play.continuously() as running:
        running.until(lambda: len(play.memory.rows) == 5)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_partitions({play.topic: 2})
        play.produce(map(click, range(5, 10)), partition=1)
        running.until(lambda: len(play.memory.rows) == 10)
    assert running.error is None
    assert running.result is not None
    assert running.result.rows == 10
    assert len(list((play.checkpoint / "commits").glob("[0-9]*"))) == len(play.memory.batches)
    play.produce(map(click, range(10, 12)), partition=1)
    assert play.once().rows == 2
    assert play.column("id") == sorted(range(12), key=repr)


def test_a_stateless_query_goes_on_without_its_checkpoint(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """The sink's own offsets count; a partition that came in the meantime is read whole."""
    play = Play(spark, broker, tmp_path)
    play.produce(map(click, range(5)))
    play.once()
    shutil.rmtree(play.checkpoint)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({play.topic: 2})
    play.produce(map(click, range(5, 8)))
    play.produce(map(click, range(8, 10)), partition=1)
    assert play.once().rows == 5
    assert play.column("id") == sorted(range(10), key=repr)


class KilledError(Exception):
    """In place of a kill: the query ends here, with nothing done after it."""


def windows(play: Play) -> dict[object, object]:
    assert len({str(row["start"]) for row in play.memory.rows}) == len(play.memory.rows)
    return {f"{row['start']:%H:%M}": row["clicks"] for row in play.memory.rows}


def test_windows_come_out_once_also_by_batches_that_read_nothing(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """The watermark of a batch counts from the next one on, which may have no records (D2)."""
    play = Play(spark, broker, tmp_path, steps=(PER_MINUTE,), view="per_minute")
    play.produce([*(click(each, second=each) for each in range(20)), click(20, second=70)])
    play.once()
    assert windows(play) == {"12:00": 20}
    assert play.memory.stored is not None
    assert play.memory.stored.batch_id == 1
    # Killed after the sink took the batch without records: its windows do not come twice.
    play.lose_last_commit()
    play.produce([click(21, second=130)])
    result = play.once()
    assert result.queries[0].skipped == 1
    assert windows(play) == {"12:00": 20, "12:01": 1}


def test_state_is_made_again_by_a_batch_that_is_left_out(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """Also by the very first one, whose start Spark does not remember."""
    play = Play(spark, broker, tmp_path, steps=(PER_MINUTE,), view="per_minute")
    play.produce(click(each, second=each) for each in range(5))

    def crash(step: str) -> None:
        if step == "stored":
            raise KilledError(step)

    with pytest.raises(PipelineError, match="stored"):
        play.once(crash)
    assert [each.batch_id for each in play.memory.batches] == [0]
    play.produce([click(5, second=6), click(6, second=70)])
    assert play.once().queries[0].skipped == 1
    assert windows(play) == {"12:00": 6}


def test_state_without_its_checkpoint_is_refused_until_it_is_rebuilt(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    play = Play(spark, broker, tmp_path, steps=(PER_MINUTE,), view="per_minute")
    play.produce([*(click(each, second=each) for each in range(5)), click(5, second=70)])
    play.once()
    shutil.rmtree(play.checkpoint)
    with pytest.raises(CheckpointLostError, match="penstock pipeline rebuild"):
        play.once()

    def crash(step: str) -> None:
        if step == "cleared":
            # A run that comes in between finds progress of nothing, and a checkpoint.
            raise KilledError

    play.checkpoint.mkdir(parents=True)
    (play.checkpoint / "metadata").write_text('{"id":"half-removed"}')
    with pytest.raises(KilledError):
        play.rebuild(crash)
    with pytest.raises(PipelineError, match="a rebuild was interrupted"):
        play.once()
    play.rebuild()
    play.once()
    assert windows(play) == {"12:00": 5}


def test_a_sink_that_lost_a_batch_is_noticed_before_anything_is_read(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """A database that was restored from an older copy."""
    play = Play(spark, broker, tmp_path)
    play.produce(map(click, range(5)))
    play.once()
    copy = play.memory.stored, list(play.memory.rows)
    play.produce(map(click, range(5, 8)))
    play.once()
    play.memory.stored, play.memory.rows = copy
    with pytest.raises(ProgressError, match="was the database restored"):
        play.once()
    shutil.rmtree(play.checkpoint)
    play.once()
    assert play.column("id") == sorted(range(8), key=repr)
