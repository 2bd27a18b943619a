"""Decoding in Spark: good records have values, bad ones a reason, and no job fails (D5)."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf.json_format import ParseDict

from penstock.client import Producer
from penstock.core.ids import TopicPartition
from penstock.spark.decode.datatypes import STRING, Field, StructOf, to_ddl
from penstock.spark.decode.dead_letters import SCHEMA, dead_letters_of
from penstock.spark.decode.decode import decode
from penstock.spark.decode.fields import typed_fields
from penstock.spark.decode.formats.record_format import (
    ERROR,
    TOMBSTONES,
    VALUE,
    RawRecords,
    RecordFormat,
)
from penstock.spark.decode.formats.registry import FORMATS
from penstock.spark.pipeline.model import SourceSpec
from penstock.spark.run.record_counts import RecordCounts, count_records, read_counts
from penstock.testing import Broker
from tests.support.spark import json_oracle
from tests.support.spark.protobuf_messages import descriptors, order_class

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RAW = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)
TIME = datetime(2026, 1, 2, 3, 4, 5, 678_000)
NOON = datetime(2026, 1, 2, 12, 0)


def raw(spark: "SparkSession", values: Sequence[bytes | None]) -> "DataFrame":
    rows = [
        (b"k%d" % at, value, "t", 1, at, TIME, 0, [("h", b"1")]) for at, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RAW)


def source(kind: str, schema: str | None = None, **options: str) -> SourceSpec:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    return SourceSpec(name="in", topics=("t",), format=kind, schema=schema, options=dotted)


def add_upper_case(records: RawRecords) -> "DataFrame":
    from pyspark.sql import functions as fn

    text = fn.col(VALUE).cast("string")
    error = fn.when(text == "bad", "the word is bad")
    return records.frame.withColumns({"word": fn.upper(text), ERROR: error})


UPPER_CASE = RecordFormat(
    name="upper",
    keys=(),
    options={"tombstones": TOMBSTONES},
    read_fields=lambda spec: (Field("word", STRING),),
    add_columns=add_upper_case,
)


def decoded(spark: "SparkSession", spec: SourceSpec, values: Sequence[bytes | None]) -> "list[Row]":
    return decode(raw(spark, values), spec).collect()


def check(
    spark: "SparkSession", spec: SourceSpec, cases: "list[tuple[bytes | None, object]]"
) -> None:
    """Checks cases: a value, and the fields that are not null or a part of the reason."""
    names = [field.name for field in typed_fields(spec)]
    rows = decoded(spark, spec, [value for value, _ in cases])
    wrong = []
    for (value, expected), row in zip(cases, rows, strict=True):
        fields = {name: row[name] for name in names if row[name] is not None}
        fields = {
            name: value.asDict() if hasattr(value, "asDict") else value
            for name, value in fields.items()
        }
        if isinstance(expected, str):
            is_right = row["_error"] is not None and expected in row["_error"] and not fields
        else:
            is_right = row["_error"] is None and fields == expected
        if not is_right:
            wrong.append((value, expected, fields, row["_error"]))
    assert wrong == []


def test_a_format_is_one_registry_entry(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "upper", UPPER_CASE)
    good, bad, tombstone = decoded(spark, source("upper"), [b"word", b"bad", None])
    assert (good["word"], good["_error"], good["_offset"]) == ("WORD", None, 0)
    assert (bad["word"], bad["_error"]) == (None, "the word is bad")
    assert "tombstone" in tombstone["_error"]
    (row,) = decoded(spark, source("upper", tombstones="skip"), [b"word", None])
    assert row["word"] == "WORD"


def test_json_is_read_strictly(spark: "SparkSession") -> None:
    spec = SourceSpec(
        name="in",
        topics=("t",),
        required=("id",),
        schema=(
            "id bigint, small tinyint, d double, f float, s string, at timestamp, "
            "local timestamp_ntz, day date, b boolean, money decimal(5,2), big decimal(38,9), "
            "wide decimal(38,2), "
            "bytes binary, list array<int>, map map<string,decimal(3,1)>, "
            "sub struct<x:int,at:timestamp NOT NULL>, subs array<struct<at:timestamp>>"
        ),
    )
    cases: list[tuple[bytes | None, object]] = [
        (b'{"id":1}', {"id": 1}),
        (b'\n {"id":1}\r\n\t', {"id": 1}),
        (b'{"id":1,"other":{"a":[1]},"x":2}', {"id": 1}),
        (b'{"id":1,"id":2}', {"id": 2}),
        (b'{"id":1,"s":null,"sub":null,"list":[1,null]}', {"id": 1, "list": [1, None]}),
        # Not an object
        (None, "the value is null (a tombstone)"),
        (b"", "the value is empty"),
        (b" \n", "the value is empty"),
        (b"null", "not a JSON object: null"),
        (b'[{"id":1}]', "not a JSON object"),
        (b'"x"', "not a JSON object"),
        (b'{"id":1', 'not a JSON object: {"id":1'),
        (b"{'id':1}", "not a JSON object"),
        (b'{"id":NaN}', "not a JSON object"),
        (b'{"id":01}', "not a JSON object"),
        (b'\xef\xbb\xbf{"id":1}', "not a JSON object"),
        (b'{"id":1,"s":"\xff"}', "the value is not UTF-8 text"),
        (b'{"id":1,"s":"\\ud800"}', "half of a character"),
        (b'{"id":1,"s":"\\ud83d\\ude00"}', {"id": 1, "s": "😀"}),
        (b'{"id":1,"s":"C:\\\\udev \\\\ud800"}', {"id": 1, "s": "C:\\udev \\ud800"}),
        (b'{"id":1,"s":"\\\\ud83d\\ude00"}', "half of a character"),
        # More than an object
        (b'{"id":1} x', "more text after the JSON object"),
        (b'{"id":1}{"id":2}', "more text after the JSON object"),
        (b'{"id":1},"x":2', "more text after the JSON object"),
        (b'{"id":1},"r":{"id":2}', "more text after the JSON object"),
        (b'{"id":1}],"x":[2', "more text after the JSON object"),
        (b'{"id":1}}', "more text after the JSON object"),
        (b'{"id":1,"s":"}, {"}', {"id": 1, "s": "}, {"}),
        # Missing
        (b"{}", "field id is missing or null"),
        (b'{"id":null}', "field id is missing or null"),
        (b'{"ID":1}', "field id is missing or null"),
        (b'{"id":1,"sub":{"x":1}}', "a value inside sub does not fit"),
        # Numbers
        (b'{"id":"1"}', "field id: 1 is not a bigint"),
        (b'{"id":1.0}', "field id: 1.0 is not a bigint"),
        (b'{"id":9223372036854775808}', "9223372036854775808 is not a bigint"),
        (b'{"id":1,"small":200}', "field small: 200 is not a tinyint"),
        (b'{"id":1,"small":-128}', {"id": 1, "small": -128}),
        (b'{"id":1,"d":1e400}', "field d: "),
        (b'{"id":1,"d":"NaN"}', "field d: NaN is not a double"),
        (b'{"id":1,"d":1}', {"id": 1, "d": 1.0}),
        (b'{"id":1,"f":1e39}', "is not a float"),
        (b'{"id":1,"money":1.23}', {"id": 1, "money": Decimal("1.23")}),
        (b'{"id":1,"money":"1.230"}', {"id": 1, "money": Decimal("1.23")}),
        (b'{"id":1,"money":1E2}', {"id": 1, "money": Decimal("100.00")}),
        (b'{"id":1,"money":1.239}', "field money: 1.239 is not a decimal(5,2)"),
        (b'{"id":1,"money":1000}', "field money: 1000 is not a decimal(5,2)"),
        (b'{"id":1,"money":"1,5"}', "field money: 1,5 is not a decimal(5,2)"),
        (b'{"id":1,"money":1e999999999}', "is not a decimal(5,2)"),
        (b'{"id":1,"money":{}}', "field money: {} is not a decimal(5,2)"),
        (b'{"id":1,"money":null}', {"id": 1}),
        (
            b'{"id":1,"big":12345678901234567890123.123456789}',
            {"id": 1, "big": Decimal("12345678901234567890123.123456789")},
        ),
        (b'{"id":1,"wide":1.239}', "field wide: 1.239 is not a decimal(38,2)"),
        (b'{"id":1,"wide":"1.2300"}', {"id": 1, "wide": Decimal("1.23")}),
        (b'{"id":1,"wide":1.239E0}', "is not a decimal(38,2)"),
        (b'{"id":1,"wide":1.5E30}', {"id": 1, "wide": Decimal("1.5E30")}),
        (b'{"id":1,"money":"1.5\\n"}', "is not a decimal(5,2)"),
        # Java would need minutes for it.
        (b'{"id":1,"money":"%s"}' % (b"1" * 1_000_000), "is not a decimal(5,2)"),
        (b'{"id":1,"money":"%sx"}' % (b"1" * 100_000), "is not a decimal(5,2)"),
        # Times
        (b'{"id":1,"at":"2026-01-02T12:00:00Z"}', {"id": 1, "at": NOON}),
        (b'{"id":1,"at":"2026-01-02T14:00:00.000+0200"}', {"id": 1, "at": NOON}),
        (b'{"id":1,"at":"2026-01-02 07:00-05:00"}', {"id": 1, "at": NOON}),
        (b'{"id":1,"at":"2026-01-02T12:00Z"}', {"id": 1, "at": NOON}),
        (b'{"id":1,"at":"2026-01-02T14:00:00+02"}', {"id": 1, "at": NOON}),
        (b'{"id":1,"at":"2026-01-02T17:30+0530"}', {"id": 1, "at": NOON}),
        (b'{"id":1,"at":1767355200000}', {"id": 1, "at": NOON}),
        (b'{"id":1,"at":"10:00"}', "field at: 10:00 is not a timestamp"),
        (b'{"id":1,"at":"9999-12-31T23:59:59-18:00"}', "is not a timestamp"),
        (b'{"id":1,"at":"0001-01-01T00:00:00+18:00"}', "is not a timestamp"),
        (
            b'{"id":1,"at":"9999-12-31T23:59:59Z"}',
            {"id": 1, "at": datetime(9999, 12, 31, 23, 59, 59)},
        ),
        (b'{"id":1,"at":"2026-02-30T00:00:00Z"}', "is not a timestamp"),
        (b'{"id":1,"at":999999999999999999}', "is not a timestamp"),
        (b'{"id":1,"at":""}', "field at: an empty text is not a timestamp"),
        (b'{"id":1,"at":true}', "field at: true is not a timestamp"),
        (b'{"id":1,"local":"2026-01-02T12:00:00"}', {"id": 1, "local": NOON}),
        (b'{"id":1,"local":"2026-01-02T12:00:00Z"}', "is not a timestamp_ntz"),
        (b'{"id":1,"day":"2024-02-29"}', {"id": 1, "day": date(2024, 2, 29)}),
        (b'{"id":1,"day":"2026-02-29"}', "field day: 2026-02-29 is not a date"),
        (b'{"id":1,"day":20000}', "field day: 20000 is not a date"),
        (b'{"id":1,"day":"2024-02-29\\n"}', "is not a date"),
        # Others
        (b'{"id":1,"b":"true"}', "field b: true is not a boolean"),
        (b'{"id":1,"s":{"a":[1]}}', {"id": 1, "s": '{"a":[1]}'}),
        (b'{"id":1,"bytes":"AAEC"}', {"id": 1, "bytes": b"\0\1\2"}),
        (b'{"id":1,"bytes":"*"}', "field bytes: * is not a binary"),
        (b'{"id":1,"list":[1,"x"]}', 'field list: [1,"x"] is not an array<int>'),
        (b'{"id":1,"list":{}}', "field list: {} is not an array<int>"),
        (b'{"id":1,"map":{"a":1.5}}', {"id": 1, "map": {"a": Decimal("1.5")}}),
        (b'{"id":1,"map":{"a":1.55}}', "a value inside map does not fit its type"),
        (b'{"id":1,"map":{"a":1,"a":2}}', "a value inside map does not fit its type"),
        (b'{"id":1,"sub":{"x":1,"at":0}}', {"id": 1, "sub": {"x": 1, "at": datetime(1970, 1, 1)}}),
        (b'{"id":1,"sub":{"x":"x","at":0}}', "a value inside sub does not fit its type"),
        (b'{"id":1,"subs":[{"at":"x"}]}', "a value inside subs does not fit its type"),
        (b'{"id":1,"x":"a" "id":2}', "not a JSON object"),
    ]
    check(spark, spec, cases)


def test_json_agrees_with_the_json_of_python(spark: "SparkSession") -> None:
    """The same texts are good, with the same values, as for a strict parser."""
    spec = SourceSpec(
        name="in", topics=("t",), schema=json_oracle.SCHEMA, required=json_oracle.REQUIRED
    )
    texts = json_oracle.texts(4000)
    rows = decoded(spark, spec, [text.encode() for text in texts])
    wrong: list[tuple[str, object, Row]] = []
    good = 0
    for text, row in zip(texts, rows, strict=True):
        try:
            expected = json_oracle.read(text)
        except json_oracle.BadError:
            if row["_error"] is None:
                wrong.append((text, "bad", row))
            continue
        good += 1
        actual = {name: row[name] for name in expected}
        if actual["sub"] is not None:
            actual["sub"] = actual["sub"].asDict()
        if row["_error"] is not None or not _same(expected, actual):
            wrong.append((text, expected, row))
    assert wrong == []
    assert 1000 < good < 3000


def _same(expected: object, actual: object) -> bool:
    if isinstance(expected, json_oracle.AnyText):
        return isinstance(actual, str)
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and expected.keys() == actual.keys()
            and all(_same(value, actual[name]) for name, value in expected.items())
        )
    return expected == actual


def test_csv_is_read_strictly(spark: "SparkSession") -> None:
    spec = source(
        "csv",
        "id bigint, name string, d double, at timestamp, b boolean, money decimal(5,2), raw binary",
        sep=";",
    )
    width = "the line does not have 7 fields"
    cases: list[tuple[bytes | None, object]] = [
        (
            b"1;a;1.5;2026-01-02T12:00:00Z;TRUE;1.50;AAE=\r\n",
            {
                "id": 1,
                "name": "a",
                "d": 1.5,
                "at": NOON,
                "b": True,
                "money": Decimal("1.50"),
                "raw": b"\0\1",
            },
        ),
        (b'1;"a;""b""";;;;;', {"id": 1, "name": 'a;"b"'}),
        (b'1;"a\nb";;;;;', {"id": 1, "name": "a\nb"}),
        (b"1;;;1767355200000;;;", {"id": 1, "at": NOON}),
        (b"1;;;;;;", {"id": 1}),
        (b"1;a", width),
        (b"1;a;;;;;;9", width),
        (b"1;a;;;;;\n2;b;;;;;", width),
        (b'1;"a;;;;;', width),
        (b'1;;;;;;"AAE=', width),
        (b'1;;;;;;"AAE="\n\n', {"id": 1, "raw": b"\0\1"}),
        (b"1;;%sx;;;;" % (b"1" * 100_000), "is not a double"),
        (b";" * 30_000, width),
        (b"", "the value is empty"),
        (None, "the value is null (a tombstone)"),
        (b"\xff;;;;;;", "the value is not UTF-8 text"),
        (b"x;;;;;;", "field id: x is not a bigint"),
        (b" 1;;;;;;", "field id:  1 is not a bigint"),
        (b"1.0;;;;;;", "field id: 1.0 is not a bigint"),
        (b"9223372036854775808;;;;;;", "is not a bigint"),
        (b"1;;NaN;;;;", "field d: NaN is not a double"),
        (b"1;;1.5d;;yes;;", "field d: 1.5d is not a double; field b: yes is not a boolean"),
        (b"1;;1e400;;;;", "is not a double"),
        (b"1;;;;;1.555;", "is not a decimal(5,2)"),
        (b"1;;;;;;*", "field raw: * is not a binary"),
    ]
    check(spark, spec, cases)


def test_options_of_tombstones_headers_and_epochs(spark: "SparkSession") -> None:
    values = [b'{"at":1767355200.5}', None, b'{"at":1767355200}']
    rows = decoded(
        spark, source("json", "at timestamp", tombstones="keep", epoch="seconds"), values
    )
    half = NOON.replace(microsecond=500_000)
    assert [(row["at"], row["_error"], row["_key"]) for row in rows] == [
        (half, None, b"k0"),
        (None, None, b"k1"),
        (NOON, None, b"k2"),
    ]
    skipped = decoded(spark, source("json", "at timestamp", tombstones="skip"), values)
    assert [row["_offset"] for row in skipped] == [0, 2]
    for sep, between in ((",", b","), ("\\t", b"\t"), ("||", b"||")):
        named = source("csv", "a int, b int", header="true", sep=sep)
        with_names = decoded(spark, named, [b"a%bb" % between, b"1%b2" % between])
        assert [(row["a"], row["b"]) for row in with_names] == [(1, 2)]
    spec = SourceSpec(name="in", format="raw", required=("value",), headers=True)
    frame = decode(raw(spark, [b"x", None]), spec, keep=["timestampType"])
    assert frame.columns == [
        *("key", "value", "_key", "_topic", "_partition", "_offset", "_timestamp"),
        *("_headers", "_error", "_raw_timestampType"),
    ]
    first, second = frame.collect()
    assert first[:7] == (b"k0", b"x", b"k0", "t", 1, 0, TIME)
    assert (first["_headers"], first["_error"]) == ([("h", b"1")], None)
    assert (second["key"], second["_error"]) == (None, "the value is null")


CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {
            "name": "money",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        },
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {
            "name": "sub",
            "type": {
                "type": "record",
                "name": "Sub",
                "fields": [{"name": "x", "type": ["null", "float"]}],
            },
        },
    ],
}


def test_avro_and_protobuf_in_arrow(spark: "SparkSession", tmp_path: Path) -> None:
    stream = io.BytesIO()
    value = {
        "id": 1,
        "at": NOON.replace(tzinfo=UTC),
        "local": NOON,
        "day": date(2026, 1, 2),
        "money": Decimal("1.50"),
        "tags": {"a": ["b"]},
        "sub": {"x": 1.5},
    }
    schemaless_writer(stream, parse_schema(json.loads(json.dumps(CLICK))), value)
    good = stream.getvalue()
    (tmp_path / "click.avsc").write_text(json.dumps(CLICK))
    spec = SourceSpec(
        name="in",
        format="avro",
        schema_file=str(tmp_path / "click.avsc"),
        options={"avro.wire": "confluent"},
    )
    cases: list[tuple[bytes | None, object]] = [
        (b"\0\0\0\0\1" + good, {**value, "at": NOON}),
        (b"\0\0\0\0\1" + good[:-3], "not this Avro message: the value ends too early"),
        (good, "it does not begin with a zero and the id of a schema"),
        (None, "the value is null (a tombstone)"),
    ]
    check(spark, spec, cases)

    (tmp_path / "shop.desc").write_bytes(descriptors())
    order = ParseDict(
        {"id": 5, "color": "BLUE", "big": 2**64 - 1, "gift": {"sku": "a"}, "attributes": {"k": 1}},
        order_class()(),
    ).SerializeToString()
    spec = SourceSpec(
        name="in",
        format="protobuf",
        schema_file=str(tmp_path / "shop.desc"),
        message="shop.Order",
        required=("gift",),
    )
    fields: dict[str, object] = {
        "id": 5,
        "color": "BLUE",
        "big": Decimal(2**64 - 1),
        "tags": [],
        "lines": [],
        "attributes": {"k": "BLUE"},
        "gift": {"sku": "a", "count": 0},
    }
    cases = [
        (order, fields),
        (order[:-1], "not this Protobuf message"),
        (b"", "field gift is missing or null"),
    ]
    check(spark, spec, cases)


@pytest.mark.parametrize(
    "schema",
    [
        "a LONG, b Integer, c REAL, d Numeric(10, 2), e dec, g timestamp_ltz, h timestamp_ntz",
        "`order by` date, f STRUCT<x: int, `y z` Array<Map<String, byte>>, from:short>",
    ],
)
def test_types_are_named_as_spark_does(spark: "SparkSession", schema: str) -> None:
    from pyspark.sql.types import StructType

    fields = typed_fields(source("json", schema))
    ours, sparks = StructType.fromDDL(to_ddl(fields)), StructType.fromDDL(schema)
    assert ours == sparks
    assert str(StructOf(fields)).replace("`", "") == sparks.simpleString()


def test_dead_letters_of_a_range_are_read_again(spark: "SparkSession", broker: Broker) -> None:
    """They have their origin, and all bytes of the record."""
    broker.create_topic("letters", partitions=2)
    values = [b'{"id":1}', b"\xff", b'{"id":"x"}', None, b'{"id":2}']
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition in (0, 1):
            for at, value in enumerate(values):
                key = b"k%d" % at
                producer.send(
                    "letters", value, key, {"h": b"1"}, partition=partition, timestamp=1000 + at
                )
    spec = SourceSpec(name="in", topics=("letters",), schema="id bigint", required=("id",))
    frame = (
        spark.read.format("penstock")
        .options(
            **{
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "subscribe": "letters",
                "includeHeaders": "true",
                "startingOffsets": '{"letters":{"0":0,"1":2}}',
                "endingOffsets": '{"letters":{"0":3,"1":5}}',
            }
        )
        .load()
    )
    letters = dead_letters_of(frame, spec, {"letters": "the-id"})
    assert letters.schema == SCHEMA
    rows = letters.to_pylist()
    positions = [TopicPartition(row["topic"], row["partition"]) for row in rows]
    assert [
        (record.partition, row["offset"]) for record, row in zip(positions, rows, strict=True)
    ] == [
        *((0, 1), (0, 2)),
        *((1, 2), (1, 3)),
    ]
    assert [row["value"] for row in rows] == [b"\xff", b'{"id":"x"}', b'{"id":"x"}', None]
    assert rows[1] == {
        "source": "in",
        "topic": "letters",
        "topic_id": "the-id",
        "partition": 0,
        "offset": 2,
        "timestamp": datetime.fromtimestamp(1.002, UTC),
        "key": b"k2",
        "value": b'{"id":"x"}',
        "headers": [{"key": "h", "value": b"1"}],
        "reason": "field id: x is not a bigint",
    }


def test_the_number_of_dead_letters_is_limited(spark: "SparkSession") -> None:
    frame = raw(spark, [b"", b"x", b'{"id":1}', b"y"]).drop("headers")
    letters = dead_letters_of(frame, source("json", "id bigint"), {}, at_most=2)
    assert (letters.num_rows, letters["headers"].null_count) == (2, 2)


def test_bad_records_are_counted_in_a_batch(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """They are counted once, after the action, however rows are read, with and without state."""
    broker.create_topic("counted", partitions=2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for at in range(30):
            value = b"bad" if at % 10 == 0 else b'{"id":%d}' % (at % 4)
            producer.send("counted", value, partition=at % 2)
    spec = SourceSpec(name="in", topics=("counted",), schema="id bigint")
    stream = (
        spark.readStream.format("penstock")
        .options(
            **{
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "subscribe": "counted",
                "startingOffsets": "earliest",
            }
        )
        .load()
    )
    rows = count_records(decode(stream, spec), "in").where("_error IS NULL").select("id")
    assert _counted(rows, str(tmp_path / "a"), lambda frame: frame.toArrow().num_rows) == (30, 3)

    def written(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        yield from batches

    def by_executors(frame: "DataFrame") -> int:
        return len(frame.mapInArrow(written, frame.schema).collect())

    once = rows.dropDuplicates(["id"])
    assert _counted(once, str(tmp_path / "b"), by_executors) == (30, 3)


def _counted(
    rows: "DataFrame", checkpoint: str, take: "Callable[[DataFrame], int]"
) -> tuple[int, int]:
    counts: list[RecordCounts | None] = []
    taken: list[int] = []
    started = Event()
    running: list[StreamingQuery] = []

    def batch(frame: "DataFrame", number: int) -> None:
        started.wait(60)
        taken.append(take(frame))
        counts.append(read_counts(running[0], "in"))

    writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    running.append(writer.trigger(availableNow=True).start())
    started.set()
    assert running[0].awaitTermination(120)
    assert sum(taken) in (27, 4)
    [counted] = [c for c in counts if c is not None and c.records]
    return counted.records, counted.bad
