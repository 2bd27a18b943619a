"""An Avro schema: which fields it has for Spark, and how its records are read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from penstock.spark.decode.datatypes import (
    BINARY,
    STRING,
    ArrayOf,
    DataType,
    Decimal,
    Field,
    MapOf,
    Scalar,
    StructOf,
)
from penstock.spark.decode.ddl import MAX_PRECISION
from penstock.spark.errors import OptionError
from penstock.spark.progress import Json

if TYPE_CHECKING:
    from fastavro.types import Schema

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
}
DECIMAL = "penstock-decimal"
"""A logical type of ours."""
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}


def load_avro_schema(path: str) -> Json:
    """The schema as it is written in the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the Avro schema {path} cannot be read: {error}") from None
    try:
        schema: Json = json.loads(text)
    except ValueError as error:
        raise OptionError(f"the Avro schema {path} is not JSON: {error}") from None
    parsed(schema, path)
    return schema


def parsed(schema: Json, name: str) -> "Schema":
    """As fastavro wants it, checked."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        # fastavro adds a mark to what it has parsed.
        return parse_schema(json.loads(json.dumps(schema)))
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise OptionError(f"{name} is not an Avro schema: {error!r}") from None


def avro_fields(schema: Json) -> tuple[Field, ...]:
    """The fields of the record; `OptionError` for what Spark has no type for."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise OptionError("the Avro schema must be that of a record: its fields become columns")
    expanded = expand(schema)
    assert isinstance(expanded, dict)
    return _record(expanded, "").fields


def expand(schema: Json) -> Json:
    """The schema with the names of types replaced by the types."""
    from fastavro.schema import expand_schema

    return cast(Json, expand_schema(json.loads(json.dumps(schema))))


def plain(schema: Json) -> Json:
    """The schema without its logical types but decimals: Arrow takes the numbers and texts.

    Decimals are read by `DECIMAL`, because fastavro takes minutes for one of a million digits.
    """
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if isinstance(schema, dict):
        found: dict[str, Json] = {
            name: plain(value) if name in ("type", "items", "values", "fields") else value
            for name, value in schema.items()
            if name != "logicalType"
        }
        if schema.get("logicalType") == "decimal":
            found["logicalType"] = DECIMAL
        return found
    return schema


def name_within_itself(schema: Json) -> str | None:
    """The name of a type that contains itself, in a schema that is expanded."""
    if isinstance(schema, str):
        return None if schema in _PRIMITIVES or schema == "null" else schema
    inner: list[Json] = schema if isinstance(schema, list) else []
    if isinstance(schema, dict):
        fields = schema.get("fields")
        inner = [*fields] if isinstance(fields, list) else []
        inner += [schema[each] for each in ("items", "values") if each in schema]
        if schema.get("type") not in ("record", "error", "enum", "fixed", "array", "map"):
            inner.append(schema.get("type"))
    return next((found for each in inner if (found := name_within_itself(each))), None)


def _type(schema: Json, where: str) -> DataType:
    if isinstance(schema, str):
        return _by_name(schema, where)
    if isinstance(schema, list):
        return _union(schema, where)
    if not isinstance(schema, dict):
        raise OptionError(f"Avro field {where}: {schema!r} is not a type")
    kind = schema.get("type")
    if kind in ("record", "error"):
        return _record(schema, where)
    if kind == "array":
        return ArrayOf(_type(schema.get("items"), f"{where}[]"))
    if kind == "map":
        return MapOf(STRING, _type(schema.get("values"), f"{where}[]"))
    if kind == "enum":
        return STRING
    if kind == "fixed":
        return _decimal(schema, where) or BINARY
    if not isinstance(kind, str) or kind not in _PRIMITIVES:
        return _type(kind, where)
    logical = (kind, str(schema.get("logicalType")))
    if logical in _LOGICAL:
        return Scalar(_LOGICAL[logical])
    return _decimal(schema, where) or Scalar(_PRIMITIVES[kind])


def _by_name(name: str, where: str) -> DataType:
    if name in _PRIMITIVES:
        return Scalar(_PRIMITIVES[name])
    if name == "null":
        raise OptionError(f"Avro field {where} can only be null: leave it out of the schema")
    # All other names were replaced by what they stand for, but for those inside of themselves.
    raise OptionError(
        f"Avro field {where}: the type {name} contains itself, which no column can: take the "
        "format raw, and decode it in a step"
    )


def _union(branches: list[Json], where: str) -> DataType:
    found = [each for each in branches if each != "null"]
    if len(found) == 1:
        return _type(found[0], where)
    if set(map(str, found)) == {"int", "long"}:
        return Scalar("bigint")
    if set(map(str, found)) == {"float", "double"}:
        return Scalar("double")
    raise OptionError(
        f"Avro field {where} is a union of {len(found)} types: only a type and null, int and "
        "long, or float and double make a column"
    )


def _record(schema: Mapping[str, Json], where: str) -> StructOf:
    fields: list[Field] = []
    listed = schema.get("fields")
    for each in listed if isinstance(listed, list) else []:
        assert isinstance(each, dict)
        name = str(each["name"])
        fields.append(Field(name, _type(each["type"], f"{where}.{name}" if where else name)))
    if not fields:
        raise OptionError(f"the Avro record {schema.get('name')} has no fields")
    return StructOf(tuple(fields))


def _decimal(schema: Mapping[str, Json], where: str) -> Decimal | None:
    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        raise OptionError(f"Avro field {where}: a decimal needs a precision")
    if precision > MAX_PRECISION:
        raise OptionError(
            f"Avro field {where}: Spark's decimals have {MAX_PRECISION} digits at most, "
            f"not {precision}"
        )
    return Decimal(precision, scale)
