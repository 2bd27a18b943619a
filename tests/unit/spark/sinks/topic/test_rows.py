"""Rows become the same records as in Spark's own Kafka sink (D1)."""

from collections.abc import Mapping, Sequence
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import Producer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.records._murmur2 import partition_of_key
from penstock.spark.errors import OptionError, PipelineError
from penstock.spark.sinks.topic.rows import RecordSender, check_columns, record_chunks, types_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PARTITIONS = 3

Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class FakeFuture:
    def __init__(self, error: KafkaError | None) -> None:
        self._error = error

    def exception(self) -> KafkaError | None:
        return self._error


class FakeProducer:
    """Returns the records by topic and partition, in the order of the log."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.logs: dict[tuple[str, int], list[Record]] = {}
        self.calls = 0
        self._error = error

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
    ) -> FakeFuture:
        self.calls += 1
        for key, value in zip(keys or [None] * len(values), values, strict=True):
            self._append(topic, partition, key, value, ())
        return FakeFuture(self._error)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        on_delivery: "object",
    ) -> None:
        self.calls += 1
        self._append(topic, partition, key, value, tuple(headers))
        if self._error is not None:
            assert callable(on_delivery)
            on_delivery(None, self._error)

    def flush(self) -> None:
        pass

    def _append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> None:
        if partition is None:
            partition = 0 if key is None else partition_of_key(key, PARTITIONS)
        self.logs.setdefault((topic, partition), []).append((key, value, headers))


def sent(table: pa.Table, topic: str | None) -> FakeProducer:
    producer = FakeProducer()
    RecordSender(cast("Producer", producer)).send(record_chunks(table, topic))
    return producer


texts = st.none() | st.text(max_size=3)
headers = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.none() | st.binary(max_size=2)}),
    max_size=2,
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": texts,
            "value": texts,
            "topic": st.sampled_from("ab"),
            "partition": st.none() | st.integers(0, PARTITIONS - 1),
            "headers": st.none() | headers,
        }
    ),
    max_size=30,
)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
    ]
)


@given(rows, st.sets(st.sampled_from(["key", "partition", "headers"])), st.booleans())
def test_every_row_arrives_in_the_order_of_its_partition(
    given_rows: list[dict[str, object]], left_out: set[str], has_topic: bool
) -> None:
    """M1: the same as if rows were sent one by one, whatever the columns."""
    expected = FakeProducer()
    for given_row in given_rows:
        row = {name: None if name in left_out else value for name, value in given_row.items()}
        pairs = cast("list[Mapping[str, object]]", row["headers"] or [])
        expected._append(
            "t" if has_topic else str(row["topic"]),
            cast("int | None", row["partition"]),
            _encoded(row["key"]),
            _encoded(row["value"]),
            tuple((str(pair["key"]), cast("bytes | None", pair["value"])) for pair in pairs),
        )
    table = pa.Table.from_pylist(given_rows, schema=SCHEMA).drop_columns(list(left_out))
    assert sent(table, "t" if has_topic else None).logs == expected.logs


def _encoded(text: object) -> bytes | None:
    return text.encode() if isinstance(text, str) else None


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_strings_and_bytes_are_written_alike(kind: pa.DataType) -> None:
    values = pa.chunked_array([pa.array([b"1", None], pa.binary()), pa.array(["\u00fc".encode()])])
    table = pa.table({"value": values.cast(kind)})
    assert sent(table, "t").logs == {
        ("t", 0): [(None, b"1", ()), (None, None, ()), (None, b"\xc3\xbc", ())]
    }


def test_many_rows_go_in_few_calls() -> None:
    table = pa.table(
        {
            "value": pa.array(["x"] * 60_000),
            "topic": pa.array(["a", "b"] * 30_000),
            "partition": pa.array([0, 1, 2] * 20_000, pa.int32()),
        }
    )
    assert sent(table, None).calls == 12  # six partitions, twice: 50 000 rows at a time


def test_the_option_counts_more_than_the_column() -> None:
    table = pa.table({"value": ["1", "2"], "topic": ["a", None]})
    assert [len(log) for log in sent(table, "t").logs.values()] == [2]
    with pytest.raises(PipelineError, match="null topic"):
        sent(table, None)


@pytest.mark.parametrize(
    ("types", "topic", "problem"),
    [
        ({"value": "string"}, None, "topic option required when no 'topic' attribute is present"),
        ({"key": "string", "id": "int"}, "t", "Required attribute 'value' not found among key, id"),
        ({"value": "int"}, "t", r"value attribute unsupported type int\. value must be a\(n\) str"),
        ({"value": "string", "key": "bigint"}, "t", "key attribute unsupported type bigint"),
        ({"value": "string", "topic": "binary"}, None, "topic attribute unsupported type binary"),
        ({"value": "string", "partition": "bigint"}, "t", r"partition must be a\(n\) int"),
        ({"value": "string", "headers": "array<string>"}, "t", "headers attribute unsupported"),
    ],
)
def test_columns_that_cannot_be_written_are_named(
    types: dict[str, str], topic: str | None, problem: str
) -> None:
    with pytest.raises(OptionError, match=problem):
        check_columns(types, topic)


def test_other_columns_and_a_topic_that_is_not_used_do_not_matter() -> None:
    check_columns({"value": "binary", "topic": "int", "more": "map<int,int>"}, "t")


def test_arrow_types_have_sparks_names() -> None:
    schema = pa.schema([*SCHEMA, ("other", pa.int64()), ("lists", pa.large_list(pa.binary()))])
    assert types_of(schema) == {
        "key": "string",
        "value": "string",
        "topic": "string",
        "partition": "int",
        "headers": "array<struct<key:string,value:binary>>",
        "other": "int64",
        "lists": "array<binary>",
    }


def test_rows_that_cannot_be_records_are_refused() -> None:
    table = pa.table({"value": ["1"], "partition": pa.array([-1], pa.int32())})
    with pytest.raises(PipelineError, match="partition -1 in the data"):
        sent(table, "t")
    nameless = pa.array([[{"key": None, "value": b"1"}]], HEADERS)
    with pytest.raises(PipelineError, match="header without a key"):
        sent(pa.table({"value": ["1"], "headers": nameless}), "t")


@pytest.mark.parametrize("has_headers", [False, True])
def test_the_first_error_is_raised_once_all_is_settled(has_headers: bool) -> None:
    """E2, E3: a refused record is an error."""
    error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    columns = {"value": pa.array(["1"])}
    if has_headers:
        columns["headers"] = pa.array([[{"key": "h", "value": None}]], HEADERS)
    sending = RecordSender(cast("Producer", FakeProducer(error)))
    sending.send(record_chunks(pa.table(columns), "t"))
    with pytest.raises(KafkaError, match="too large"):
        sending.wait()
    assert sending.rows == 1


@pytest.mark.parametrize("topic", [None, "_penstock_pipelines"])
def test_rows_cannot_replace_the_progress_of_pipelines(topic: str | None) -> None:
    table = pa.table({"topic": ["_penstock_pipelines"], "key": ["shop.totals"], "value": ["{}"]})
    with pytest.raises(PipelineError, match="contains the progress of pipelines"):
        list(record_chunks(table, topic))
