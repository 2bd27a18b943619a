"""Spark's own connector, `format("kafka")`, unchanged with a Penstock broker (M4, D1)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.core.ids import TopicPartition
from penstock.testing import Broker
from tests.support.spark.queries import run_once
from tests.support.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = 1_700_000_000_000


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Iterator[Topics]:
    with Topics(broker.bootstrap_servers) as topics:
        yield topics


def read(spark: "SparkSession", topics: Topics, **options: str) -> "DataFrame":
    reader = spark.read.format("kafka").options(**options)
    return reader.option("kafka.bootstrap.servers", topics.bootstrap_servers).load()


def offsets(frame: "DataFrame") -> list[tuple[str, int, int]]:
    return sorted(map(tuple, frame.select("topic", "partition", "offset").collect()))


def test_a_frame_is_written_and_read(spark: "SparkSession", topics: Topics) -> None:
    """Keys, values, headers, topics and partitions are written and read back unchanged."""
    topics.create("written", 3)
    frame = spark.range(200).selectExpr(
        "IF(id % 7 = 0, NULL, CAST(id AS STRING)) AS key",
        "IF(id % 11 = 0, NULL, CAST(id * 2 AS STRING)) AS value",
        "'written' AS topic",
        "CAST(id % 3 AS INT) AS partition",
        "array(struct('n' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
    )
    writer = frame.write.format("kafka").option("includeHeaders", "true")
    writer.option("kafka.bootstrap.servers", topics.bootstrap_servers).save()

    result = read(spark, topics, subscribe="written", includeHeaders="true")
    rows = result.selectExpr(
        "CAST(key AS STRING)",
        "CAST(value AS STRING)",
        "partition",
        "CAST(CAST(headers[0].value AS STRING) AS INT) AS n",
    ).collect()
    assert sorted(rows, key=lambda row: int(row.n)) == [
        (
            None if number % 7 == 0 else str(number),
            None if number % 11 == 0 else str(number * 2),
            number % 3,
            number,
        )
        for number in range(200)
    ]


def test_a_stream_from_topic_to_topic(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    """The sink creates its topic; a second run with the checkpoint adds only new records."""
    topics.create("stream-in", 2)
    topics.fill("stream-in", {0: 40, 1: 20})
    reader = spark.readStream.format("kafka").option("subscribe", "stream-in")
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "30")
    source = reader.option("kafka.bootstrap.servers", topics.bootstrap_servers).load()

    def run() -> None:
        writer = source.select("key", "value").writeStream.format("kafka")
        query = (
            writer.option("kafka.bootstrap.servers", topics.bootstrap_servers)
            .option("topic", "stream-out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    topics.fill("stream-in", {0: 5}, start=40)
    run()
    with Consumer(
        bootstrap_servers=topics.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition("stream-out", 0)])
        result: list[bytes | None] = []
        while len(result) < 65:
            records = consumer.poll(10)
            assert records, f"only {len(result)} records came"
            result += [record.value for record in records]
    expected = [f"0-{number}" for number in range(45)] + [f"1-{number}" for number in range(20)]
    assert sorted(item.decode() for item in result if item is not None) == sorted(expected)


def test_only_committed_records_are_read(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    """P4: in batches and streams, across gaps of markers and aborted records."""
    topics.create("committed")
    topics.in_transaction("committed", 0, 3)
    topics.in_transaction("committed", 0, 2, start=3, commit=False)
    topics.in_transaction("committed", 0, 1, start=5)
    level = {"kafka.isolation.level": "read_committed"}
    expected = [("committed", 0, offset) for offset in (0, 1, 2, 7)]
    assert offsets(read(spark, topics, subscribe="committed", **level)) == expected
    assert len(offsets(read(spark, topics, subscribe="committed"))) == 6
    reader = spark.readStream.format("kafka").options(
        **{"subscribe": "committed", "startingOffsets": "earliest", **level}
    )
    frame = reader.option("kafka.bootstrap.servers", topics.bootstrap_servers).load()
    batches, query = run_once(frame, tmp_path / "checkpoint")
    assert [row.offset for row in batches.rows()] == [0, 1, 2, 7]
    last = query.lastProgress
    assert last is not None
    assert json.loads(last.sources[0].endOffset) == {"committed": {"0": 9}}


def test_times_and_patterns(spark: "SparkSession", topics: Topics) -> None:
    for name in ("timed-a", "timed-b"):
        topics.create(name)
        topics.fill(name, {0: 10}, timestamp=NOON)
    span = {"startingTimestamp": str(NOON + 3), "endingTimestamp": str(NOON + 6)}
    result = read(spark, topics, subscribePattern="timed-.", **span)
    assert offsets(result) == [
        (topic, 0, offset) for topic in ("timed-a", "timed-b") for offset in (3, 4, 5)
    ]
    one = {
        "startingOffsetsByTimestamp": json.dumps({"timed-a": {"0": NOON + 8}}),
        "endingOffsets": json.dumps({"timed-a": {"0": 9}}),
    }
    assert offsets(read(spark, topics, subscribe="timed-a", **one)) == [("timed-a", 0, 8)]
