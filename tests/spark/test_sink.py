"""`format("penstock")` as a sink: beside Spark's own (D1), and exactly-once (D3)."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client import ConsumerRecord
from penstock.spark.errors import OptionError, TooManyDeadLettersError
from penstock.spark.sinks.topic.kind import TopicSinkSpec
from penstock.spark.sinks.topic.sink import TopicSink, as_records
from penstock.testing import Broker
from tests.support.spark.topic_sinks import batch, client_of, committed, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HEADERS = "array<struct<key:string,value:binary>>"


@pytest.fixture
def options(broker: Broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


def columns_of(records: list[ConsumerRecord]) -> list[object]:
    """Returns all columns of the records, partition by partition."""
    return [
        (record.partition, record.offset, record.key, record.value, list(record.headers))
        for record in records
    ]


@pytest.mark.parametrize(
    "columns",
    [
        ["cast(id as string) as value"],
        [
            "cast(concat('k', id) as binary) as key",
            "if(id % 7 = 0, null, cast(id as string)) as value",
        ],
        [
            "concat('k', id % 5) as key",
            "cast(id as string) as value",
            "cast(id % 3 as int) as partition",
        ],
        [
            "cast(id as string) as value",
            "concat('k', id) as key",
            "if(id % 4 = 0, cast(id % 3 as int), null) as partition",
            "case when id % 3 = 0 then"
            " array(named_struct('key', 'a', 'value', cast('h' as binary)),"
            " named_struct('key', 'a', 'value', cast(null as binary)))"
            f" when id % 3 = 1 then cast(array() as {HEADERS}) end as headers",
            "id as left_out",
        ],
    ],
    ids=["value", "binary-key", "partition", "headers"],
)
def test_rows_are_written_as_by_sparks_own_sink(
    spark: "SparkSession",
    broker: Broker,
    options: dict[str, str],
    request: pytest.FixtureRequest,
    columns: list[str],
) -> None:
    """D1: same columns, same records in the same partitions."""
    frame = spark.range(0, 60, 1, 1).selectExpr(*columns)
    name = request.node.callspec.id
    for which in ("kafka", "penstock"):
        broker.create_topic(f"{which}-{name}", 1 if name == "value" else 3)
        frame.write.format(which).options(**options).option("topic", f"{which}-{name}").mode(
            "append"
        ).save()
    theirs = columns_of(committed(broker.bootstrap_servers, f"kafka-{name}"))
    ours = columns_of(committed(broker.bootstrap_servers, f"penstock-{name}"))
    assert ours == theirs
    assert len(ours) == 60


def test_a_column_names_the_topic(
    spark: "SparkSession", broker: Broker, options: dict[str, str]
) -> None:
    broker.create_topic("even")
    broker.create_topic("odd")
    frame = spark.range(0, 10, 1, 2).selectExpr(
        "cast(id as string) as value", "if(id % 2 = 0, 'even', 'odd') as topic"
    )
    frame.write.format("penstock").options(**options).mode("append").save()
    assert sorted(values_of(broker.bootstrap_servers, "even")) == list("02468")
    assert sorted(values_of(broker.bootstrap_servers, "odd")) == list("13579")


@pytest.mark.parametrize("transactional", ["false", "true"])
def test_a_task_that_fails_stops_the_write(
    spark: "SparkSession", broker: Broker, options: dict[str, str], transactional: str
) -> None:
    """In a transaction nothing becomes visible; the message names the problem (E2)."""
    topic = f"failing-{transactional}"
    broker.create_topic(topic)
    frame = spark.range(0, 10, 1, 2).selectExpr(
        "if(id = 9, repeat('x', 2000000), cast(id as string)) as value"
    )
    writer = frame.write.format("penstock").options(**options).option("topic", topic)
    with pytest.raises(Exception, match="max_request_size"):
        writer.option("transactional", transactional).mode("append").save()
    values = values_of(broker.bootstrap_servers, topic)
    assert values == [] if transactional == "true" else set(values) <= set("0123456789")


def test_a_batch_in_one_transaction(
    spark: "SparkSession", broker: Broker, options: dict[str, str]
) -> None:
    broker.create_topic("at-once", 2)
    frame = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as value")
    writer = frame.write.format("penstock").options(**options).option("topic", "at-once")
    writer.option("transactional", "true").mode("append").save()
    values = values_of(broker.bootstrap_servers, "at-once")
    assert sorted(map(int, values)) == list(range(100))
    empty = frame.where("value = 'x'").write.format("penstock").options(**options)
    empty.option("topic", "at-once").option("transactional", "true").mode("append").save()
    assert len(values_of(broker.bootstrap_servers, "at-once")) == 100


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("id", "Required attribute 'value' not found"),
        ("id as value", "value must be a"),
        ("'x' as value", "topic option required"),
    ],
)
def test_unsupported_columns_are_refused_before_the_query_runs(
    spark: "SparkSession", options: dict[str, str], column: str, problem: str
) -> None:
    frame = spark.range(3).selectExpr(column)
    writer = frame.write.format("penstock").options(**options).mode("append")
    if "topic option" not in problem:
        writer = writer.option("topic", "t")
    with pytest.raises(Exception, match=problem):
        writer.save()


def test_a_topic_is_not_overwritten(spark: "SparkSession", options: dict[str, str]) -> None:
    writer = spark.sql("select 'x' as value").write.format("penstock").options(**options)
    with pytest.raises(Exception, match="mode overwrite is not possible"):
        writer.option("topic", "t").mode("overwrite").save()


Start = Callable[..., "StreamingQuery"]


@pytest.fixture
def start(spark: "SparkSession", options: dict[str, str], tmp_path: Path) -> Start:
    """Copies lines of files to a topic: each file is a batch."""
    source = tmp_path / "lines"
    source.mkdir()

    def run(topic: str, checkpoint: str = "checkpoint", **more: str) -> "StreamingQuery":
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
        writer = lines.where("value != 'left out'").writeStream.format("penstock")
        query = (
            writer.options(**options, **more)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return run


def add(tmp_path: Path, name: str, *lines: str) -> None:
    hidden = tmp_path / f".{name}"
    hidden.write_text("".join(f"{line}\n" for line in lines))
    hidden.rename(tmp_path / "lines" / name)


def forget_last_commit(checkpoint: Path) -> None:
    """Removes Spark's last commit, as if the driver was killed after Kafka's commit."""
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()),
        key=lambda topic: int(topic.name),
    )
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_a_stream_with_a_name_is_exactly_once(broker: Broker, start: Start, tmp_path: Path) -> None:
    """D3: repeated batches are skipped, and empty batches do no harm."""
    broker.create_topic("exactly")
    add(tmp_path, "1", "a", "b")
    add(tmp_path, "2", "c")
    start("exactly", pipeline="copy")
    forget_last_commit(tmp_path / "checkpoint")
    add(tmp_path, "3", "left out")
    add(tmp_path, "4", "d")
    start("exactly", pipeline="copy")
    forget_last_commit(tmp_path / "checkpoint")
    start("exactly", pipeline="copy")
    assert sorted(values_of(broker.bootstrap_servers, "exactly")) == ["a", "b", "c", "d"]


def test_a_stream_without_a_name_is_at_least_once(
    broker: Broker, start: Start, tmp_path: Path
) -> None:
    broker.create_topic("at-least")
    add(tmp_path, "1", "a", "b")
    start("at-least")
    forget_last_commit(tmp_path / "checkpoint")
    start("at-least")
    assert sorted(values_of(broker.bootstrap_servers, "at-least")) == ["a", "a", "b", "b"]


def test_a_second_query_is_refused(broker: Broker, start: Start, tmp_path: Path) -> None:
    """A lost checkpoint, or another query with the same name: the error names the duplicates."""
    broker.create_topic("second")
    add(tmp_path, "1", "a")
    start("second", pipeline="mine")
    with pytest.raises(Exception, match=r"(?s)pipeline mine: .*duplicated.*newCheckpoint=accept"):
        start("second", "other-checkpoint", pipeline="mine")
    assert values_of(broker.bootstrap_servers, "second") == ["a"]
    start("second", "other-checkpoint", pipeline="mine", newCheckpoint="accept")
    assert values_of(broker.bootstrap_servers, "second") == ["a", "a"]


def too_many() -> None:
    raise TooManyDeadLettersError("too many")


def test_rows_of_a_pipeline_become_json(spark: "SparkSession", broker: Broker) -> None:
    """A view without `value` is written as Spark's to_json does, with keys from columns."""
    broker.create_topic("json")
    rows = spark.sql(
        "select 1L as id, 'ü' as `na.me`, null as nothing, timestamp'2026-01-02 03:04:05' as at"
    )
    spec = TopicSinkSpec(name="s", view="v", topic="json", key=("id", "nothing"))
    sink = TopicSink(spec, "json.s", client_of(broker.bootstrap_servers))
    try:
        sink.open("me")
        with pytest.raises(TooManyDeadLettersError):
            sink.write(rows, batch(0, 1), too_many)
        assert sink.write(rows, batch(0, 1), lambda: None).rows == 1
    finally:
        sink.close()
    (record,) = committed(broker.bootstrap_servers, "json")
    assert record.key == b'{"id":1,"nothing":null}'
    assert record.value == '{"id":1,"na.me":"ü","at":"2026-01-02T03:04:05.000Z"}'.encode()


@pytest.mark.parametrize(
    ("spec", "sql", "problem"),
    [
        (TopicSinkSpec(name="s", view="v"), "select 1 as id, 't' as topic", "name a topic"),
        (TopicSinkSpec(name="s", view="v", topic="t", key=("no",)), "select 1 as id", "column no "),
        (
            TopicSinkSpec(name="s", view="v", topic="t", key=("id",)),
            "select 1 id, 'x' as value",
            "`key` is for views without a column `value`",
        ),
        (TopicSinkSpec(name="s", view="v", topic="t"), "select 1 as value", "value must be a"),
    ],
)
def test_views_that_cannot_be_written_are_refused(
    spark: "SparkSession", spec: TopicSinkSpec, sql: str, problem: str
) -> None:
    with pytest.raises(OptionError, match=problem):
        as_records(spark.sql(sql), spec)


def test_columns_that_are_not_written_are_not_collected(spark: "SparkSession") -> None:
    frame: DataFrame = spark.sql("select 'v' as value, 1 as more, 'k' as key, 't' as topic")
    assert as_records(frame, TopicSinkSpec(name="s", view="v")).columns == ["topic", "key", "value"]
