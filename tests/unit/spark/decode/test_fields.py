"""The fields of a source, read without Spark (D1, D5)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.decode.datatypes import ArrayOf, Field, Scalar, StructOf, to_ddl
from penstock.spark.decode.ddl import parse_ddl
from penstock.spark.decode.fields import typed_fields
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec
from tests.support.spark.protobuf_messages import descriptors


def spec(
    schema: str | None = None,
    format_name: str = "json",
    file: Path | None = None,
    message: str | None = None,
    required: tuple[str, ...] = (),
) -> SourceSpec:
    return SourceSpec(
        name="clicks",
        topics=("clicks",),
        format=format_name,
        schema=schema,
        schema_file=None if file is None else str(file),
        message=message,
        required=required,
    )


def fields_of(source: SourceSpec) -> list[tuple[str, str]]:
    """Returns the name and Spark's type of each field."""
    return [(field.name, str(field.type)) for field in typed_fields(source)]


def avro(tmp_path: Path, schema: object) -> SourceSpec:
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps(schema))
    return spec(format_name="avro", file=file)


def record(*fields: tuple[str, object]) -> object:
    records = [{"name": name, "type": avro_type} for name, avro_type in fields]
    return {"type": "record", "name": "Click", "namespace": "shop", "fields": records}


def proto(tmp_path: Path, message: str) -> SourceSpec:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptors())
    return spec(format_name="protobuf", file=file, message=message)


def test_types_have_sparks_short_names() -> None:
    text = """
        a LONG, b Integer, c REAL, -- numbers
        d Numeric(10, 2), e dec, f STRUCT<x: int, `y z` Array<Map<String, byte>> COMMENT 'deep'>,
        g timestamp_ltz NOT NULL COMMENT "it's", `order by` date
    """
    assert fields_of(spec(text)) == [
        ("a", "bigint"),
        ("b", "int"),
        ("c", "float"),
        ("d", "decimal(10,2)"),
        ("e", "decimal(10,0)"),
        ("f", "struct<x:int,`y z`:array<map<string,tinyint>>>"),
        ("g", "timestamp"),
        ("order by", "date"),
    ]


def test_ddl_survives_a_round_trip() -> None:
    inner = StructOf((Field("from", Scalar("int")), Field("a`b", ArrayOf(Scalar("string")))))
    fields = (Field("select", Scalar("bigint")), Field("x", inner))
    assert parse_ddl(to_ddl(fields)) == fields


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id bigint,", "line 1, column 11: expected the name of a field, not the end"),
        ("id", "line 1, column 3: expected a type, not the end"),
        ("id bigint\nat timestamp", "line 2, column 1: expected ',' or the end, not 'at'"),
        ("id text", "column 4: unknown type text: write string"),
        ("id bigit", "column 4: unknown type bigit: did you mean bigint?"),
        ("id foo", "unknown type foo; the types are boolean, tinyint"),
        ("a array<int", "column 12: expected '>', not the end"),
        ("a array int", "column 9: expected '<', not 'int'"),
        ("a int, A int", "column 8: field A appears twice"),
        ("a struct<x:int,x:int>", "field x appears twice"),
        ("a decimal(39)", "decimal(39,0): the precision is 1 to 38"),
        ("a decimal(x)", "expected a number, not 'x'"),
        ("a int not", "expected NULL after NOT, not the end"),
        ("a int comment b", "expected a text in quotes after COMMENT"),
        ("a int; b int", "column 6: ';' is not expected here"),
        (", a int", "column 1: expected the name of a field, not ','"),
        ("a map<int,string>", "the keys of a JSON object are text; write map<string,string>"),
        ("_offset int", "a field may not be named _offset"),
        (None, "the format json needs a schema, for example"),
    ],
)
def test_a_wrong_schema_has_its_position(schema: str | None, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        fields_of(spec(schema))
    assert "source clicks" in str(caught.value)
    assert message in str(caught.value)


def test_required_fields_are_in_the_schema() -> None:
    fields = typed_fields(spec("id bigint, at timestamp NOT NULL, x int", required=("id",)))
    assert [field.is_required for field in fields] == [True, True, False]
    with pytest.raises(OptionError, match="required field idd is not in the schema: did you mean"):
        fields_of(spec("id bigint", required=("idd",)))


def test_csv_has_no_nested_fields_and_raw_no_schema() -> None:
    assert fields_of(spec(format_name="raw")) == [("key", "binary"), ("value", "binary")]
    with pytest.raises(OptionError, match="field a: CSV has no array<int>"):
        fields_of(spec("a array<int>", format_name="csv"))
    with pytest.raises(OptionError, match="schema does not go with the format raw"):
        fields_of(spec("a int", format_name="raw"))


def test_the_fields_of_an_avro_record(tmp_path: Path) -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "float"}]}
    source = avro(
        tmp_path,
        record(
            ("id", "long"),
            ("at", {"type": "long", "logicalType": "timestamp-millis"}),
            ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
            ("time", {"type": "int", "logicalType": "time-millis"}),
            ("day", ["null", {"type": "int", "logicalType": "date"}]),
            ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
            ("kind", {"type": "enum", "name": "Kind", "symbols": ["A"]}),
            ("other_kind", ["Kind", "null"]),
            ("hash", {"type": "fixed", "name": "Hash", "size": 16}),
            ("points", {"type": "array", "items": point}),
            ("last", ["null", "shop.Point"]),
            ("counts", {"type": "map", "values": ["int", "long"]}),
            ("java", {"type": "string", "avro.java.string": "String"}),
        ),
    )
    assert dict(fields_of(source)) == {
        "id": "bigint",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "time": "int",
        "day": "date",
        "price": "decimal(9,2)",
        "kind": "string",
        "other_kind": "string",
        "hash": "binary",
        "points": "array<struct<x:float>>",
        "last": "struct<x:float>",
        "counts": "map<string,bigint>",
        "java": "string",
    }


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(("a", ["int", "string"])), "Avro field a is a union of 2 types"),
        (record(("a", "null")), "Avro field a can only be null"),
        (record(("a", ["null", "shop.Click"])), "the type shop.Click contains itself"),
        (record(), "the Avro record shop.Click has no fields"),
        (record(("a", "shop.Unknown")), "is not an Avro schema"),
        (
            record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 50})),
            "Spark's decimals have 38 digits at most, not 50",
        ),
        ("string", "must be that of a record"),
    ],
)
def test_avro_types_that_spark_does_not_have(tmp_path: Path, schema: object, message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("(", r"\(")):
        fields_of(avro(tmp_path, schema))


def test_a_schema_file_must_exist_and_be_valid(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="the format avro needs schema_file"):
        fields_of(spec(format_name="avro"))
    with pytest.raises(OptionError, match="cannot be read"):
        fields_of(spec(format_name="avro", file=tmp_path / "none.avsc"))
    broken = tmp_path / "broken.avsc"
    broken.write_text("{")
    with pytest.raises(OptionError, match=r"broken\.avsc is not JSON"):
        fields_of(spec(format_name="avro", file=broken))
    with pytest.raises(OptionError, match="is not a set of Protobuf descriptors: make it with"):
        fields_of(spec(format_name="protobuf", file=broken, message="a.B"))
    with pytest.raises(OptionError, match="needs message, the full name"):
        fields_of(spec(format_name="protobuf", file=broken))


def test_the_fields_of_a_protobuf_message(tmp_path: Path) -> None:
    assert dict(fields_of(proto(tmp_path, "shop.Order"))) == {
        "id": "bigint",
        "at": "timestamp",
        "color": "string",
        "tags": "array<string>",
        "note": "string",
        "big": "decimal(20,0)",
        "rating": "int",
        "lines": "array<struct<sku:string,count:bigint>>",
        "attributes": "map<string,string>",
        "gift": "struct<sku:string,count:bigint>",
    }
    assert fields_of(proto(tmp_path, "shop.Order.Line")) == [("sku", "string"), ("count", "bigint")]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("shop.Ordr", "there is no message shop.Ordr in .*: did you mean shop.Order?"),
        ("Order.Line", "did you mean shop.Order.Line"),
        ("shop.Tree", "field shop.Tree.children: the message shop.Tree contains itself"),
        ("shop.Nothing", "the message shop.Nothing has no fields"),
    ],
)
def test_unsupported_messages_are_refused(tmp_path: Path, message: str, expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        fields_of(proto(tmp_path, message))


def test_fields_are_known_without_spark() -> None:
    """`validate` reads them, and must not wait for an import of pyspark."""
    script = (
        "import sys; from penstock.spark.decode.fields import typed_fields; "
        "from penstock.spark.pipeline.model import SourceSpec; "
        "typed_fields(SourceSpec(name='a', schema='id int')); "
        "sys.exit(any(name in sys.modules for name in ('pyspark', 'pyarrow', 'fastavro')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
