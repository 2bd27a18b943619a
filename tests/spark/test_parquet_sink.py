"""The Parquet sink: exactly-once, and readers never see a part of a batch (D3)."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.dataset
import pytest

from penstock.spark.errors import FencedError, OptionError, TooManyDeadLettersError
from penstock.spark.progress import StoredProgress
from penstock.spark.sinks.hadoop_files import HadoopFiles
from penstock.spark.sinks.parquet.commit_log import Commit, CommitLog
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec
from penstock.spark.sinks.parquet.sink import ParquetSink
from tests.support.spark.topic_sinks import Killed, at, batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def new_sink(spark: "SparkSession", path: Path, *partition_by: str) -> ParquetSink:
    spec = ParquetSinkSpec(name="files", view="v", path=str(path), partition_by=partition_by)
    return ParquetSink(spec, "p.files", spark)


def numbers(spark: "SparkSession", start: int, end: int) -> "DataFrame":
    return spark.range(start, end, 1, 3).selectExpr("id", "concat('g', id % 2) as group")


def by_spark(spark: "SparkSession", path: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(path)).select("id").collect())


def by_pandas(path: Path) -> list[int]:
    return sorted(pd.read_parquet(path)["id"])


def by_arrow(path: Path) -> list[int]:
    table = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive").to_table()
    return sorted(table["id"].to_pylist())


def test_batches_are_files_for_every_reader(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "with space ü"
    sink = new_sink(spark, path)
    assert sink.open("first") is None
    sink.begin_at(at(0))
    assert sink.write(numbers(spark, 0, 10), batch(0, 10, 0)).rows == 10
    assert sink.write(numbers(spark, 0, 0), batch(10, 11, 1)).rows == 0
    assert sink.write(numbers(spark, 10, 15), batch(11, 15, 2)).rows == 5
    everything = list(range(15))
    assert by_spark(spark, path) == by_pandas(path) == by_arrow(path) == everything
    assert list(pd.read_parquet(path).columns) == ["id", "group"]
    assert len(list(path.glob("*.parquet"))) == 2
    assert new_sink(spark, path).open("second") == StoredProgress(at(15), "q", 2)


def test_batches_with_partitions_are_directories(spark: "SparkSession", tmp_path: Path) -> None:
    sink = new_sink(spark, tmp_path, "group")
    sink.open("first")
    sink.write(numbers(spark, 0, 10), batch(0, 10, 0))
    sink.write(numbers(spark, 10, 15), batch(10, 15, 1))
    everything = list(range(15))
    assert by_spark(spark, tmp_path) == by_pandas(tmp_path) == by_arrow(tmp_path) == everything
    frame = spark.read.parquet(str(tmp_path))
    assert set(frame.columns) == {"id", "group", "penstock_batch"}
    assert frame.where("group = 'g1' and penstock_batch = 3").count() == 2
    assert not list(tmp_path.rglob("_SUCCESS"))


@pytest.mark.parametrize(
    ("step", "partition_by"),
    [
        ("before:append", ()),
        ("after:append", ()),
        ("after:append", ("group",)),
        ("after:finish", ("group",)),
    ],
)
def test_a_driver_dies_at_every_step(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    partition_by: tuple[str, ...],
) -> None:
    """Before the commit exists nothing is stored; afterwards the next owner finishes it."""
    sink = new_sink(spark, tmp_path, *partition_by)
    sink.open("first")
    sink.write(numbers(spark, 0, 3), batch(0, 3, 0))
    when, _, name = step.partition(":")
    owner, method = (sink._log, "append") if name == "append" else (sink, "_finish")
    real = getattr(owner, method)

    def die(commit: Commit) -> None:
        if when == "after":
            real(commit)
        raise Killed(step)

    with monkeypatch.context() as patched:
        patched.setattr(owner, method, die)
        with pytest.raises(Killed):
            sink.write(numbers(spark, 3, 7), batch(3, 7, 1))
    # Readers see whole batches, also before the next owner opens the sink.
    assert by_pandas(tmp_path) == list(range(7 if name == "finish" else 3))
    assert name == "finish" or list((tmp_path / "_staging").iterdir())

    sink = new_sink(spark, tmp_path, *partition_by)
    stored = sink.open("second")
    if step == "before:append":
        assert stored == StoredProgress(at(3), "q", 0)
        sink.write(numbers(spark, 3, 7), batch(3, 7, 1))
    else:
        assert stored == StoredProgress(at(7), "q", 1)
    assert by_spark(spark, tmp_path) == by_pandas(tmp_path) == list(range(7))
    assert not (tmp_path / "_staging").exists() or not list((tmp_path / "_staging").iterdir())


def test_an_owner_that_was_replaced_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    """Also a driver that still stages its files, which the new owner removes."""
    old = new_sink(spark, tmp_path)
    old.open("old")
    old.write(numbers(spark, 0, 3), batch(0, 3, 0))
    assert new_sink(spark, tmp_path).open("new") == StoredProgress(at(3), "q", 0)
    with pytest.raises(FencedError, match=r"taken over p\.files"):
        old.write(numbers(spark, 3, 7), batch(3, 7, 1))
    assert by_pandas(tmp_path) == [0, 1, 2]


def test_a_rebuild_removes_the_files_of_the_sink(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an interruption; files of other queries stay."""
    pd.DataFrame({"id": [-1], "group": ["x"]}).to_parquet(tmp_path / "mine.parquet")
    sink = new_sink(spark, tmp_path)
    sink.open("first")
    sink.write(numbers(spark, 0, 3), batch(0, 3, 0))
    with monkeypatch.context() as patched:
        patched.setattr(sink, "_finish", lambda commit: None)
        sink.clear()
    assert by_pandas(tmp_path) == [-1, 0, 1, 2]
    sink = new_sink(spark, tmp_path)
    assert sink.open("second") is None
    assert by_pandas(tmp_path) == [-1]
    sink.write(numbers(spark, 0, 2), batch(0, 2, 0))
    assert by_pandas(tmp_path) == [-1, 0, 1]


def test_a_batch_with_too_many_dead_letters_leaves_no_trace(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """D5: their number is known after the plan has run, before anything is stored."""
    sink = new_sink(spark, tmp_path)
    sink.open("first")

    def too_many() -> None:
        assert list((tmp_path / "_staging").iterdir())
        raise TooManyDeadLettersError("too many")

    with pytest.raises(TooManyDeadLettersError):
        sink.write(numbers(spark, 0, 3), batch(0, 3, 0), too_many)
    assert not list((tmp_path / "_staging").iterdir())
    sink.write(numbers(spark, 0, 3), batch(0, 3, 0), lambda: None)
    assert by_pandas(tmp_path) == [0, 1, 2]


def test_the_error_of_a_missing_partition_column_names_it(
    spark: "SparkSession", tmp_path: Path
) -> None:
    sink = new_sink(spark, tmp_path, "country")
    sink.open("first")
    with pytest.raises(OptionError, match="has no column country for partition_by"):
        sink.write(numbers(spark, 0, 3), batch(0, 3, 0))


@pytest.mark.parametrize("is_local", [True, False])
def test_a_commit_succeeds_once_on_any_file_system(
    spark: "SparkSession", tmp_path: Path, is_local: bool
) -> None:
    """With hard links, and with a rename as in Spark's checkpoints."""
    files = HadoopFiles(spark, str(tmp_path), is_local=is_local)
    assert files.names("missing") == []
    assert files.create("a/1.json", b'{"first": 1}')
    assert not files.create("a/1.json", b"second")
    assert json.loads(files.read("a/1.json")) == {"first": 1}
    assert [name for name in files.names("a") if not name.startswith(".")] == ["1.json"]
    assert files.rename("a/1.json", "a/2.json")
    assert not files.rename("a/1.json", "a/3.json")
    files.delete("a")
    files.delete("a")
    assert files.names("a") == []
    log = CommitLog(HadoopFiles(spark, str(tmp_path), is_local=is_local), "p.s")
    assert log.take_over("me", lambda commit: None) is None
    log.append(Commit(2, "begin", StoredProgress(at(1)), "me"))
    assert CommitLog(files, "p.s").take_over("you", lambda commit: None) == StoredProgress(at(1))
    with pytest.raises(FencedError):
        log.append(Commit(3, "begin", StoredProgress(at(2)), "me"))
