"""The columns that a source's records are decoded into, known without Spark."""

import difflib
from collections.abc import Sequence

from penstock.spark.decode.datatypes import (
    BINARY,
    STRING,
    ArrayOf,
    DataType,
    Field,
    MapOf,
    StructOf,
)
from penstock.spark.decode.ddl import parse_ddl
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec

ORIGIN = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", "_error")
"""Columns that every decoded view has, besides its fields; the last two not always."""

RAW = (Field("key", BINARY), Field("value", BINARY))


def fields_of(spec: SourceSpec) -> list[tuple[str, str]]:
    """Name and Spark's type of each field. `OptionError` says what is wrong with the schema."""
    return [(each.name, str(each.type)) for each in typed_fields(spec)]


def typed_fields(spec: SourceSpec) -> tuple[Field, ...]:
    """The same, with types taken apart; those that may not be null are marked as required."""
    found = _fields(spec)
    for field in found:
        if field.name.lower() in ORIGIN:
            raise OptionError(
                f"source {spec.name}: a field may not be named {field.name}: that column tells "
                "where a record came from"
            )
    names = [each.name for each in found]
    for name in spec.required:
        if name not in names:
            raise OptionError(
                f"source {spec.name}: the required field {name} is not in the schema"
                f"{nearest(name, names)}"
            )
    return tuple(
        Field(each.name, each.type, each.is_required or each.name in spec.required)
        for each in found
    )


def nearest(name: str, names: Sequence[str]) -> str:
    """A question to the reader: which of the names was meant."""
    close = difflib.get_close_matches(name, names, 1, 0.5)
    if close:
        return f": did you mean {close[0]}?"
    return f"; there are {', '.join(names[:20])}" if names else ""


def _fields(spec: SourceSpec) -> tuple[Field, ...]:
    if spec.format == "raw":
        if spec.schema is not None or spec.schema_file is not None:
            raise OptionError(
                f"source {spec.name}: the format raw has the fields key and value only: name "
                "another format, or leave the schema out"
            )
        return RAW
    if spec.format in ("json", "csv"):
        if not spec.schema:
            raise OptionError(
                f"source {spec.name}: the format {spec.format} needs a schema, for example "
                "`id bigint, at timestamp`"
            )
        return _from_ddl(spec, spec.schema)
    if spec.schema_file is None:
        what = "an Avro schema (.avsc)" if spec.format == "avro" else "a set of descriptors"
        raise OptionError(f"source {spec.name}: the format {spec.format} needs schema_file, {what}")
    # Only who uses these formats pays for their packages.
    if spec.format == "avro":
        from penstock.spark.decode.avro_schema import avro_fields, load_avro_schema

        return avro_fields(load_avro_schema(spec.schema_file))
    from penstock.spark.decode.protobuf_schema import load_message, protobuf_fields

    if spec.message is None:
        raise OptionError(
            f"source {spec.name}: the format protobuf needs message, the full name of the message"
        )
    return protobuf_fields(load_message(spec.schema_file, spec.message))


def _from_ddl(spec: SourceSpec, text: str) -> tuple[Field, ...]:
    try:
        found = parse_ddl(text)
    except OptionError as error:
        raise OptionError(f"source {spec.name}: {error}") from None
    for field in found:
        if spec.format == "json":
            _check_keys(spec, field.name, field.type)
        else:
            if str(field.type).startswith(("array<", "map<", "struct<")):
                raise OptionError(
                    f"source {spec.name}: field {field.name}: CSV has no {field.type}: read it as "
                    "a string, and take it apart in a step (from_json, split)"
                )
    return found


def _check_keys(spec: SourceSpec, name: str, kind: DataType) -> None:
    match kind:
        case ArrayOf(element):
            _check_keys(spec, name, element)
        case MapOf(key, value):
            if key != STRING:
                raise OptionError(
                    f"source {spec.name}: field {name}: the keys of a JSON object are text: write "
                    f"map<string,{value}> instead of {kind}"
                )
            _check_keys(spec, name, value)
        case StructOf(fields):
            for each in fields:
                _check_keys(spec, f"{name}.{each.name}", each.type)
