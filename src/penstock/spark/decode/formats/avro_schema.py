"""Avro schemas: loading and checking them, and the fields that they have for Spark."""

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
"""Our own logical type, whose reader `avro_reader` registers with fastavro."""
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}


def load_avro_schema(path: str) -> Json:
    """Returns the schema as the file contains it. Raises `OptionError` when it is not one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the Avro schema {path} cannot be read: {error}") from None
    try:
        schema: Json = json.loads(text)
    except ValueError as error:
        raise OptionError(f"the Avro schema {path} is not JSON: {error}") from None
    parse_avro_schema(schema, path)
    return schema


def parse_avro_schema(schema: Json, name: str) -> "Schema":
    """Returns the schema as fastavro needs it. Raises `OptionError` when it is not a schema."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        # A copy, because fastavro adds a mark to a schema that it has parsed.
        return parse_schema(json.loads(json.dumps(schema)))
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise OptionError(f"{name} is not an Avro schema: {error!r}") from None


def avro_fields(schema: Json) -> tuple[Field, ...]:
    """Returns the fields of a record. Raises `OptionError` for types that Spark does not have."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise OptionError("the Avro schema must be that of a record: its fields become columns")
    expanded = expand_schema(schema)
    assert isinstance(expanded, dict)
    return _record(expanded, "").fields


def expand_schema(schema: Json) -> Json:
    """Returns the schema with the names of types replaced by the types."""
    from fastavro import schema as fastavro_schema

    return cast(Json, fastavro_schema.expand_schema(json.loads(json.dumps(schema))))


def without_logical_types(schema: Json) -> Json:
    """Returns the schema without logical types except decimals: Arrow takes the plain values.

    Decimals are read by `DECIMAL`, because fastavro takes minutes for one of a million digits.
    """
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        plain: dict[str, Json] = {
            name: without_logical_types(value)
            if name in ("type", "items", "values", "fields")
            else value
            for name, value in schema.items()
            if name != "logicalType"
        }
        if schema.get("logicalType") == "decimal":
            plain["logicalType"] = DECIMAL
        return plain
    return schema


def self_containing_type(schema: Json) -> str | None:
    """Returns the name of a type that contains itself, in an expanded schema; None if none does."""
    if isinstance(schema, str):
        return None if schema in _PRIMITIVES or schema == "null" else schema
    parts: list[Json] = schema if isinstance(schema, list) else []
    if isinstance(schema, dict):
        fields = schema.get("fields")
        parts = [*fields] if isinstance(fields, list) else []
        parts += [schema[key] for key in ("items", "values") if key in schema]
        if schema.get("type") not in ("record", "error", "enum", "fixed", "array", "map"):
            parts.append(schema.get("type"))
    return next((name for part in parts if (name := self_containing_type(part))), None)


def _type(schema: Json, where: str) -> DataType:
    if isinstance(schema, str):
        return _by_name(schema, where)
    if isinstance(schema, list):
        return _union(schema, where)
    if not isinstance(schema, dict):
        raise OptionError(f"Avro field {where}: {schema!r} is not a type")
    avro_type = schema.get("type")
    if avro_type in ("record", "error"):
        return _record(schema, where)
    if avro_type == "array":
        return ArrayOf(_type(schema.get("items"), f"{where}[]"))
    if avro_type == "map":
        return MapOf(STRING, _type(schema.get("values"), f"{where}[]"))
    if avro_type == "enum":
        return STRING
    if avro_type == "fixed":
        return _decimal(schema, where) or BINARY
    if not isinstance(avro_type, str) or avro_type not in _PRIMITIVES:
        return _type(avro_type, where)
    logical = (avro_type, str(schema.get("logicalType")))
    if logical in _LOGICAL:
        return Scalar(_LOGICAL[logical])
    return _decimal(schema, where) or Scalar(_PRIMITIVES[avro_type])


def _by_name(name: str, where: str) -> DataType:
    if name in _PRIMITIVES:
        return Scalar(_PRIMITIVES[name])
    if name == "null":
        raise OptionError(
            f"Avro field {where} can only be null", remedy="leave it out of the schema"
        )
    # Expanding the schema replaced all other names by their types.
    raise OptionError(
        f"Avro field {where}: the type {name} contains itself, which no column can",
        remedy="use the format raw, and decode the value in a step",
    )


def _union(branches: list[Json], where: str) -> DataType:
    types = [branch for branch in branches if branch != "null"]
    if len(types) == 1:
        return _type(types[0], where)
    if set(map(str, types)) == {"int", "long"}:
        return Scalar("bigint")
    if set(map(str, types)) == {"float", "double"}:
        return Scalar("double")
    raise OptionError(
        f"Avro field {where} is a union of {len(types)} types: only a type and null, int and "
        "long, or float and double make a column"
    )


def _record(schema: Mapping[str, Json], where: str) -> StructOf:
    fields: list[Field] = []
    field_schemas = schema.get("fields")
    for field in field_schemas if isinstance(field_schemas, list) else []:
        assert isinstance(field, dict)
        name = str(field["name"])
        fields.append(Field(name, _type(field["type"], f"{where}.{name}" if where else name)))
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
