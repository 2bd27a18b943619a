"""`format("penstock")` as a source: compared with Spark's own, and its additional features."""

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.progress import first_batch_start
from penstock.testing import Broker
from tests.support.broker.guarded import PASSWORD, guarded_broker
from tests.support.spark.queries import run_once, running
from tests.support.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

NOON = 1_700_000_000_000


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Iterator[Topics]:
    with Topics(broker.bootstrap_servers) as topics:
        yield topics


@pytest.fixture(scope="module")
def filled(topics: Topics) -> Topics:
    """Topics that tests only read: `plain-a`, `plain-b`, and one with transactions."""
    topics.create("plain-a", 3)
    topics.fill("plain-a", {0: 30, 1: 10, 2: 20}, timestamp=NOON, headers=True)
    topics.create("plain-b")
    topics.fill("plain-b", {0: 7}, timestamp=NOON + 5)
    topics.create("with-transactions")
    topics.in_transaction("with-transactions", 0, 3)
    topics.in_transaction("with-transactions", 0, 4, start=3, commit=False)
    topics.in_transaction("with-transactions", 0, 2, start=7)
    return topics


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def batch(spark: "SparkSession", kind: str, topics: Topics, **options: str) -> "DataFrame":
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", topics.bootstrap_servers)
    return reader.options(**options).load()


def stream(spark: "SparkSession", kind: str, topics: Topics, **options: str) -> "DataFrame":
    reader = spark.readStream.format(kind)
    reader = reader.option("kafka.bootstrap.servers", topics.bootstrap_servers)
    return reader.options(**{"startingOffsets": "earliest", **options}).load()


def by_task(frame: "DataFrame") -> "list[list[Row]]":
    """Returns the rows of each non-empty task, in order."""
    tasks: dict[int, list[Row]] = {}
    for row in frame.selectExpr("spark_partition_id() AS task", "struct(*) AS row").collect():
        tasks.setdefault(row.task, []).append(row.row)
    return sorted(tasks.values(), key=lambda rows: _position(rows[0]))


def _position(row: "Row") -> tuple[str, int, int]:
    return row.topic, row.partition, row.offset


def values(rows: "list[Row]") -> list[str]:
    return sorted(row.value.decode() for row in rows)


def numbers(partition: int, first: int, end: int) -> list[str]:
    return sorted(f"{partition}-{number}" for number in range(first, end))


A_OFFSETS = json.dumps({"plain-a": {"0": 5, "1": -2, "2": 0}})
A_ENDS = json.dumps({"plain-a": {"0": 25, "1": 10, "2": -1}})
A_EXACT = json.dumps({"plain-a": {"0": 5, "1": 0, "2": 0}})
A_EXACT_ENDS = json.dumps({"plain-a": {"0": 25, "1": 10, "2": 18}})
A_TIMES = json.dumps({"plain-a": {"0": NOON + 3, "1": NOON + 9, "2": NOON}})
A_LATER = json.dumps({"plain-a": {"0": NOON + 20, "1": NOON + 99, "2": NOON + 5}})


@pytest.mark.parametrize(
    ("options", "count"),
    [
        pytest.param({"subscribe": "plain-a, plain-b"}, 67, id="subscribe"),
        pytest.param(
            {"subscribePattern": "plain-.*", "includeHeaders": "true"}, 67, id="pattern, headers"
        ),
        pytest.param({"assign": '{"plain-a": [0, 2]}'}, 50, id="assign"),
        pytest.param(
            {"subscribe": "plain-a", "startingOffsets": A_OFFSETS, "endingOffsets": A_ENDS},
            50,
            id="offsets",
        ),
        pytest.param(
            {
                "subscribe": "plain-a",
                "startingTimestamp": str(NOON + 2),
                "endingTimestamp": str(NOON + 12),
            },
            28,
            id="time",
        ),
        pytest.param(
            {
                "subscribe": "plain-a",
                "startingOffsetsByTimestamp": A_TIMES,
                "endingOffsetsByTimestamp": A_LATER,
            },
            23,
            id="times",
        ),
        pytest.param(
            {
                "subscribe": "plain-a",
                "startingTimestamp": str(NOON + 15),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            20,
            id="time, latest where there is none",
        ),
        pytest.param({"subscribe": "plain-a", "minPartitions": "8"}, 60, id="minPartitions"),
        pytest.param(
            {
                "subscribe": "plain-a",
                "startingOffsets": A_EXACT,
                "endingOffsets": A_EXACT_ENDS,
                "maxRecordsPerPartition": "8",
            },
            48,
            id="maxRecordsPerPartition",
        ),
        pytest.param({"subscribe": "with-transactions"}, 9, id="read_uncommitted"),
        pytest.param(
            {"subscribe": "with-transactions", "kafka.isolation.level": "read_committed"},
            5,
            id="read_committed",
        ),
    ],
)
def test_a_batch_has_the_rows_of_sparks_own_source(
    spark: "SparkSession", filled: Topics, options: dict[str, str], count: int
) -> None:
    """D1: the same columns, the same rows, in the same tasks."""
    theirs = batch(spark, "kafka", filled, **options)
    ours = batch(spark, "penstock", filled, **options)
    assert ours.schema == theirs.schema
    tasks = by_task(ours)
    assert tasks == by_task(theirs)
    assert sum(map(len, tasks)) == count


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"subscribe": "plain-a,plain-b", "maxOffsetsPerTrigger": "25", "minPartitions": "6"},
            id="limits",
        ),
        pytest.param(
            {"subscribePattern": "with-.*", "kafka.isolation.level": "read_committed"},
            id="read_committed",
        ),
    ],
)
def test_a_stream_has_the_batches_of_sparks_own_source(
    spark: "SparkSession", filled: Topics, tmp_path: Path, options: dict[str, str]
) -> None:
    """D1: the same batches, up to the same offsets, with AvailableNow; then it ends."""
    result = []
    for kind in ("kafka", "penstock"):
        frame = stream(spark, kind, filled, **options)
        batches, query = run_once(frame, tmp_path / kind)
        ends = [json.loads(progress.sources[0].endOffset) for progress in query.recentProgress]
        latest = [json.loads(progress.sources[0].latestOffset) for progress in query.recentProgress]
        for end in (*ends, *latest):
            end.pop("#penstock", None)
        result.append((ends, latest, [sorted(item, key=_position) for item in batches.non_empty]))
    assert result[0] == result[1]
    assert len(result[1][0]) == (3 if "maxOffsetsPerTrigger" in options else 1)


def test_a_running_query_reads_new_records(
    spark: "SparkSession", topics: Topics, name: str, tmp_path: Path
) -> None:
    """D1: new records, new partitions, and topics that match the pattern later."""
    topics.create(f"{name}-1")
    topics.fill(f"{name}-1", {0: 2})
    frame = stream(spark, "penstock", topics, subscribePattern=f"{name}-.", sourceName="s")
    with running(frame, tmp_path / "checkpoint") as batches:
        batches.wait_for(lambda rows: len(rows) == 2)
        topics.create(f"{name}-2")
        topics.fill(f"{name}-2", {0: 3}, start=10)
        batches.wait_for(lambda rows: len(rows) == 5)
        topics.add_partitions(f"{name}-2", 2)
        topics.fill(f"{name}-2", {1: 2})
        batches.wait_for(lambda rows: len(rows) == 7)
        topics.fill(f"{name}-1", {0: 1}, start=2)
        batches.wait_for(lambda rows: len(rows) == 8)
    result = {f"{row.topic}: {row.value.decode()}" for row in batches.rows()}
    assert result == {
        *(f"{name}-1: 0-{number}" for number in (0, 1, 2)),
        *(f"{name}-2: 0-{number}" for number in (10, 11, 12)),
        *(f"{name}-2: 1-{number}" for number in (0, 1)),
    }
    written = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    assert json.loads(written)["#penstock"]["source"] == "s"


@contextmanager
def being_written(topics: Topics, name: str) -> Iterator[None]:
    """Produces records one by one during the block."""
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            topics.fill(name, {0: 1}, start=number)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def test_a_query_that_starts_at_the_end_misses_no_records(
    spark: "SparkSession", topics: Topics, name: str, tmp_path: Path
) -> None:
    """D1: `latest` of a topic that is written concurrently, and a repeated first batch."""
    topics.create(name)
    checkpoint = tmp_path / "checkpoint"
    frame = stream(spark, "penstock", topics, subscribe=name, startingOffsets="latest")

    def fail(frame: "DataFrame", batch_id: int) -> None:
        raise RuntimeError("of the test")

    with being_written(topics, name):
        writer = frame.writeStream.foreachBatch(fail)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        with pytest.raises(Exception, match="of the test"):
            query.awaitTermination()
        first = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
        with running(frame, checkpoint) as batches:
            batches.wait_for(lambda rows: bool(rows) and rows[-1].offset > first[name]["0"] + 20)
    offsets = [row.offset for row in batches.rows()]
    begin = first_batch_start(first)
    assert begin is not None
    assert begin[name] == {"0": offsets[0]}
    assert offsets == list(range(offsets[0], offsets[-1] + 1))


@pytest.mark.long
def test_a_checkpoint_of_sparks_own_source_is_resumed_and_losses_stop_it(
    spark: "SparkSession", topics: Topics, name: str, tmp_path: Path
) -> None:
    """D1: users swap the name of the format; then records and the topic itself get lost."""
    checkpoint = tmp_path / "checkpoint"
    topics.create(name)

    def rows(kind: str = "penstock", **options: str) -> list[str]:
        frame = stream(spark, kind, topics, subscribe=name, **options)
        return values(run_once(frame, checkpoint)[0].rows())

    topics.fill(name, {0: 3})
    assert rows("kafka") == numbers(0, 0, 3)
    topics.fill(name, {0: 2}, start=3)
    assert rows() == numbers(0, 3, 5)

    topics.fill(name, {0: 5}, start=5)
    topics.delete_records(name, 0, 7)
    with pytest.raises(Exception, match=f"DataLossError: {name}-0 starts at offset 7 now"):
        rows()
    assert rows(failOnDataLoss="false") == numbers(0, 7, 10)

    topics.delete(name)
    topics.create(name)
    topics.fill(name, {0: 12})
    with pytest.raises(
        Exception, match=f"DataLossError: topic {name} was deleted and created again"
    ):
        rows()
    assert rows(failOnDataLoss="false") == numbers(0, 0, 12)


def test_secrets_are_sent_to_the_broker_only(
    spark: "SparkSession", tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """X2: SCRAM over TLS for the driver and for tasks, which read and write."""
    with guarded_broker() as guarded:
        guarded.create("guarded", 2)
        for partition in (0, 1):
            guarded.fill("guarded", partition, [b"%d" % number for number in range(5)])

        def options(password: str = PASSWORD) -> dict[str, str]:
            return {f"kafka.{name}": prop for name, prop in guarded.properties(password).items()}

        def read(password: str = PASSWORD) -> "DataFrame":
            reader = spark.read.format("penstock").options(**options(password))
            return reader.option("subscribe", "guarded").load()

        frame = read()
        assert {row.partition for row in frame.collect()} == {0, 1}
        for mode in ("extended", "formatted", "cost"):
            frame.explain(mode=mode)

        reader = spark.readStream.format("penstock").options(**options())
        source = reader.option("subscribe", "guarded").option("startingOffsets", "earliest").load()
        checkpoint = tmp_path / "checkpoint"
        query = (
            source.select("key", "value")
            .writeStream.format("penstock")
            .options(**options(), topic="copies", pipeline="guarded")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(True)
        last = query.lastProgress
        assert last is not None
        assert last.numInputRows == 10

        wrong = read("Hush-guess")
        with pytest.raises(Exception, match=r"login of user spark .* failed") as failure:
            wrong.collect()
    captured = capfd.readouterr()
    written = [path.read_text(errors="replace") for path in checkpoint.rglob("*") if path.is_file()]
    assert "RelationV2" in captured.out
    assert written
    for text in (captured.out, captured.err, last.json, str(failure.value), *written):
        assert "Hush" not in text


def test_wrong_options_are_reported_when_the_frame_is_created(
    spark: "SparkSession", topics: Topics
) -> None:
    with pytest.raises(Exception, match="OptionError: one of subscribe, subscribePattern and"):
        batch(spark, "penstock", topics)
    with pytest.raises(Exception, match=r"OptionError: there is no option .* startingOffsets"):
        stream(spark, "penstock", topics, subscribe="t", startingOffset="latest")
    fixed = spark.read.format("penstock").schema("value STRING")
    fixed = fixed.option("kafka.bootstrap.servers", topics.bootstrap_servers)
    with pytest.raises(Exception, match="OptionError: the columns of this source are fixed"):
        fixed.option("subscribe", "t").load().collect()


def test_a_stream_without_an_end(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    frame = stream(spark, "penstock", topics, subscribe="t", endingOffsets="latest")
    with pytest.raises(Exception, match=r"OptionError: endingOffsets is for spark\.read only"):
        run_once(frame, tmp_path / "checkpoint")


def test_an_empty_topic(spark: "SparkSession", topics: Topics, name: str) -> None:
    topics.create(name, 2)
    assert batch(spark, "penstock", topics, subscribe=name).collect() == []
    assert batch(spark, "penstock", topics, subscribePattern=f"{name}-none").collect() == []
