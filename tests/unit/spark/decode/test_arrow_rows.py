"""Avro and Protobuf values become Arrow structs; each bad value has a reason (D5)."""

import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.decode.datatypes import STRING, Field, StructOf
from penstock.spark.decode.formats.arrow_rows import (
    ValueReader,
    arrow_type,
    decode_batch,
    reason_for,
)
from penstock.spark.decode.formats.avro_format import load_writer_schemas
from penstock.spark.decode.formats.avro_reader import avro_reader
from penstock.spark.decode.formats.avro_schema import avro_fields
from penstock.spark.decode.formats.protobuf_reader import protobuf_reader
from penstock.spark.decode.formats.protobuf_schema import find_message, protobuf_fields
from penstock.spark.errors import OptionError
from penstock.spark.progress import Json
from tests.support.spark.protobuf_messages import descriptors, order_class

POINT: Json = {
    "type": "record",
    "name": "Point",
    "fields": [
        {"name": "x", "type": "int"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ],
}
CLICK: Json = {
    "type": "record",
    "name": "Click",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        },
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "points", "type": {"type": "array", "items": POINT}},
        {"name": "last", "type": ["null", "Point"]},
        {
            "name": "times",
            "type": {"type": "map", "values": {"type": "long", "logicalType": "timestamp-micros"}},
        },
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
GOOD: dict[str, object] = {
    "id": 7,
    "day": date(2026, 2, 3),
    "price": Decimal("12.34"),
    "uuid": "00000000-0000-0000-0000-000000000005",
    "points": [{"x": 1, "at": NEW_YEAR}, {"x": 2, "at": None}],
    "last": {"x": 3, "at": NEW_YEAR},
    "times": {"a": NEW_YEAR},
    "counts": {"b": 2},
}


def encode(value: Mapping[str, object], schema: Json = CLICK) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def rows(
    values: list[bytes | None], read: ValueReader, fields: tuple[Field, ...], name: str = "Avro"
) -> list[dict[str, object]]:
    structs = decode_batch(pa.array(values, pa.binary()), read, fields, "reason", name)
    structs.validate(full=True)
    assert structs.type == arrow_type(StructOf((*fields, Field("reason", STRING))))
    decoded: list[dict[str, object]] = structs.to_pylist()
    return decoded


def avro_rows(
    values: list[bytes | None], *, confluent: bool = False, required: tuple[str, ...] = ()
) -> list[dict[str, object]]:
    fields = tuple(
        Field(field.name, field.type, field.name in required) for field in avro_fields(CLICK)
    )
    return rows(values, avro_reader(json.dumps(CLICK), confluent, ()), fields)


def reasons(decoded: list[dict[str, object]]) -> list[str]:
    for row in decoded:
        if row["reason"] is not None:
            assert all(value is None for name, value in row.items() if name != "reason")
    return [str(row["reason"]) for row in decoded]


def test_avro_values_have_their_types() -> None:
    [row] = avro_rows([encode(GOOD)])
    assert row == {
        **GOOD,
        "times": [("a", NEW_YEAR)],
        "counts": [("b", 2)],
        "reason": None,
    }


def test_bad_avro_values_have_a_reason_and_good_ones_are_kept() -> None:
    good = encode(GOOD)
    far = encode({**GOOD, "times": {"a": 10**18}})
    other = encode({**GOOD, "points": [{"x": 1, "at": 10**17}]})
    values = [good, good[:-4], good, good + b"!", b"", None, b"\xff" * 40, far, other, good]
    decoded = avro_rows(values)
    assert [row["id"] for row in decoded if row["reason"] is None] == [7, 7, None, 7]
    messages = reasons(decoded)
    assert messages[1] == "not this Avro message: the value ends too early"
    assert "1 bytes are left: was it written with this schema?" in messages[3]
    assert messages[4] == "not this Avro message: the value ends too early"
    assert messages[5] == "None"
    assert "is not between the years 1 and 9999" in messages[7]
    assert "is not between the years 1 and 9999" in messages[8]


def test_a_value_that_arrow_refuses_is_one_bad_record() -> None:
    """Its int has more than 32 bits; Avro's encoding can hold them."""
    wide = json.loads(json.dumps(CLICK).replace('"values": "int"', '"values": "long"'))
    large = encode({**GOOD, "counts": {"b": 2**40}}, wide)
    decoded = avro_rows([encode(GOOD), large, encode(GOOD)])
    assert [row["id"] for row in decoded] == [7, None, 7]
    assert reasons(decoded)[1].startswith("field counts: ")


def record_of(**types: Json) -> Json:
    fields: list[Json] = [{"name": name, "type": avro_type} for name, avro_type in types.items()]
    return {"type": "record", "name": "R", "fields": fields}


def rows_of(schema: Json, *values: bytes) -> list[dict[str, object]]:
    return rows([*values], avro_reader(json.dumps(schema), False, ()), avro_fields(schema))


def test_avro_decimals_have_the_digits_of_their_precision() -> None:
    """A decimal of a million digits is refused fast, with a short reason."""
    number: dict[str, Json] = {"logicalType": "decimal", "precision": 38, "scale": 3}
    fixed: Json = {**number, "type": "fixed", "name": "F", "size": 20}
    digits = Decimal("-12345678901234567890123456789012345.678")
    both = record_of(a={**number, "type": "bytes"}, b=fixed)
    huge = b"\x80\x89\x7a" + b"\x7f" * 1_000_000 + bytes(20)
    decoded = rows_of(both, encode({"a": digits, "b": -digits}, both), huge)
    assert (decoded[0]["a"], decoded[0]["b"]) == (digits, -digits)
    assert reasons(decoded)[1] == (
        "not this Avro message: a decimal of 1000000 bytes has more than 38 digits"
    )


def test_avro_dates_are_of_the_years_1_to_9999() -> None:
    schema = record_of(day={"type": "int", "logicalType": "date"})
    ends = [encode({"day": day}, schema) for day in (date.min, date.max)]
    decoded = rows_of(schema, *ends, b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f")
    assert [row["day"] for row in decoded] == [date.min, date.max, None, None]
    assert all("not between the years 1 and 9999" in reason for reason in reasons(decoded)[2:])


def test_the_length_of_a_reason_is_limited() -> None:
    assert len(reason_for(ValueError("x" * 10_000), "Avro")) == 400


def test_a_writers_type_that_contains_itself_is_refused(tmp_path: Path) -> None:
    """fastavro would recurse into a deep value until the process dies."""
    tree: Json = {"type": "record", "name": "T", "fields": [{"name": "n", "type": ["null", "T"]}]}
    (tmp_path / "1.avsc").write_text(json.dumps(record_of(id="long", tree=tree)))
    with pytest.raises(OptionError, match=r"the type T in 1\.avsc contains itself"):
        load_writer_schemas(str(tmp_path))
    (tmp_path / "1.avsc").write_text(json.dumps(record_of(a=POINT, b=["null", "Point"])))
    assert [number for number, _ in load_writer_schemas(str(tmp_path))] == [1]


def test_required_fields_of_avro() -> None:
    decoded = avro_rows([encode({**GOOD, "day": None}), encode(GOOD)], required=("day", "id"))
    assert reasons(decoded) == ["field day is missing or null", "None"]


def test_confluents_prefix() -> None:
    good = encode(GOOD)
    decoded = avro_rows([b"\0\0\0\0\7" + good, good, b"\0\0", None], confluent=True)
    assert decoded[0]["id"] == 7
    assert all("does not begin with a zero" in message for message in reasons(decoded)[1:3])
    assert decoded[3]["reason"] is None


def test_values_of_older_writers_are_resolved(tmp_path: Path) -> None:
    def schema(*fields: dict[str, Json]) -> Json:
        return {"type": "record", "name": "Click", "fields": [*fields]}

    first: dict[str, Json] = {"name": "id", "type": "int"}
    old = schema(first)
    new = schema(
        {"name": "by", "type": "string", "default": "nobody"}, {"name": "id", "type": "long"}
    )
    (tmp_path / "1.avsc").write_text(json.dumps(old))
    (tmp_path / "2.avsc").write_text(json.dumps(new))
    read = avro_reader(json.dumps(new), True, load_writer_schemas(str(tmp_path)))
    values: list[bytes | None] = [
        b"\0\0\0\0\1" + encode({"id": 5}, old),
        b"\0\0\0\0\2" + encode({"by": "me", "id": 6}, new),
        b"\0\0\0\0\3" + encode({"id": 5}, old),
    ]
    decoded = rows(values, read, avro_fields(new))
    assert [(row["by"], row["id"]) for row in decoded] == [("nobody", 5), ("me", 6), (None, None)]
    assert "there is no 3.avsc for the schema that wrote it" in reasons(decoded)[2]
    (tmp_path / "x.avsc").write_text("{}")
    with pytest.raises(OptionError, match=r"named <id>\.avsc, not x\.avsc"):
        load_writer_schemas(str(tmp_path))


@cache
def proto_read(confluent: bool) -> ValueReader:
    return protobuf_reader(descriptors(), "shop.Order", confluent)


def proto_rows(values: list[bytes | None], *, confluent: bool = False) -> list[dict[str, object]]:
    fields = protobuf_fields(find_message(descriptors(), "shop.Order"))
    return rows(values, proto_read(confluent), fields, "Protobuf")


def order(**values: object) -> bytes:
    return ParseDict(values, order_class()()).SerializeToString()


def test_protobuf_values_have_their_types() -> None:
    full = order(
        id=5,
        at="2026-01-01T00:00:00.5Z",
        color="BLUE",
        tags=["x", "y"],
        note="",
        big=2**64 - 1,
        rating=3,
        lines=[{"sku": "a", "count": 2**32 - 1}],
        attributes={"k": "BLUE"},
        gift={},
    )
    decoded = proto_rows([full, b""])
    assert decoded[0] == {
        "id": 5,
        "at": NEW_YEAR.replace(microsecond=500_000),
        "color": "BLUE",
        "tags": ["x", "y"],
        "note": "",
        "big": Decimal(2**64 - 1),
        "rating": 3,
        "lines": [{"sku": "a", "count": 2**32 - 1}],
        "attributes": [("k", "BLUE")],
        "gift": {"sku": "", "count": 0},
        "reason": None,
    }
    # An absent field is null only if Protobuf distinguishes it from a zero.
    assert decoded[1] == {
        "id": 0,
        "at": None,
        "color": "RED",
        "tags": [],
        "note": None,
        "big": Decimal(0),
        "rating": None,
        "lines": [],
        "attributes": [],
        "gift": None,
        "reason": None,
    }


def test_bad_protobuf_values_have_a_reason() -> None:
    good = order(id=5, note="hi")
    unknown = good + b"\x18\x09"
    decoded = proto_rows([good, good[:-1], unknown, b'{"id": 1}', b"*\x01\xff", None, good])
    messages = reasons(decoded)
    assert [row["id"] for row in decoded] == [5, None, None, None, None, None, 5]
    assert messages[2] == "not this Protobuf message: field color: 9 is no value of shop.Color"
    assert all(messages[index].startswith("not this Protobuf message") for index in (1, 3, 4))
    assert messages[5] == "None"


def test_confluents_prefix_of_protobuf() -> None:
    good = order(id=5)
    prefix = b"\0\0\0\0\7"
    values = [prefix + b"\0" + good, prefix + b"\x04\x02\0" + good, good, prefix + b"\x80"]
    decoded = proto_rows([*values, prefix + b"\x01" + good], confluent=True)
    assert [row["id"] for row in decoded] == [5, 5, None, None, None]
    assert "-1 messages" in reasons(decoded)[4]
    assert "does not begin with a zero" in reasons(decoded)[2]
    assert "the value ends too early" in reasons(decoded)[3]


@given(st.lists(st.none() | st.binary(max_size=60), max_size=20))
def test_arbitrary_bytes_do_not_end_the_job(values: list[bytes | None]) -> None:
    """There is one row for each value, and a reason for each bad one (D5)."""
    for decoded in (avro_rows(values), proto_rows(values)):
        assert len(decoded) == len(values)
        reasons(decoded)


times = st.integers(-(10**10), 10**10).map(lambda second: datetime.fromtimestamp(second, UTC))


@given(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "day": st.none() | st.dates(),
            "price": st.decimals(-999, 999, places=2),
            "uuid": st.uuids().map(str),
            "points": st.lists(
                st.fixed_dictionaries(
                    {
                        "x": st.integers(-(2**31), 2**31 - 1),
                        "at": st.none() | times,
                    }
                ),
                max_size=3,
            ),
            "last": st.none(),
            "times": st.dictionaries(st.text(max_size=3), st.just(NEW_YEAR), max_size=3),
            "counts": st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=3),
        }
    )
)
def test_avro_values_are_read_as_they_were_written(value: dict[str, object]) -> None:
    [row] = avro_rows([encode(value)])
    maps = {name: list(as_map(value[name]).items()) for name in ("times", "counts")}
    assert row == {**value, **maps, "reason": None}


def as_map(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value
