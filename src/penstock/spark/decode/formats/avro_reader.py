"""Reading Avro values with fastavro, in the executors."""

import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import cast

from penstock.spark.decode.formats.arrow_rows import ValueReader, check_days, check_micros
from penstock.spark.decode.formats.avro_schema import (
    DECIMAL,
    expand_schema,
    parse_avro_schema,
    without_logical_types,
)
from penstock.spark.progress import Json

_PREFIX_BYTES = 5
_Converter = Callable[[object], object]
_MILLIS = ("timestamp-millis", "local-timestamp-millis")
_MICROS = ("timestamp-micros", "local-timestamp-micros")


@lru_cache(maxsize=16)
def avro_reader(
    schema: str, is_confluent: bool, writers: tuple[tuple[int, str], ...]
) -> ValueReader:
    """Returns a reader of values of `schema`.

    With the schemas of writers, values are resolved to `schema` by Avro's rules.
    """
    from fastavro import schemaless_reader
    from fastavro.read import LOGICAL_READERS

    for avro_type in ("bytes", "fixed"):
        LOGICAL_READERS[f"{avro_type}-{DECIMAL}"] = _read_decimal
    schema_json: Json = json.loads(schema)
    reader_schema = parse_avro_schema(without_logical_types(schema_json), "the Avro schema")
    writers_by_id = {
        schema_id: parse_avro_schema(without_logical_types(json.loads(text)), f"{schema_id}.avsc")
        for schema_id, text in writers
    }
    convert = _converter(expand_schema(schema_json))

    def read(value: bytes) -> Mapping[str, object]:
        stream = io.BytesIO(value)
        writer_schema = reader_schema
        if is_confluent:
            if len(value) < _PREFIX_BYTES or value[0] != 0:
                raise ValueError("it does not begin with a zero and the id of a schema")
            schema_id = int.from_bytes(value[1:_PREFIX_BYTES], "big")
            if writers_by_id:
                if schema_id not in writers_by_id:
                    raise ValueError(f"there is no {schema_id}.avsc for the schema that wrote it")
                writer_schema = writers_by_id[schema_id]
            stream.seek(_PREFIX_BYTES)
        resolved_schema = None if writer_schema is reader_schema else reader_schema
        row = schemaless_reader(stream, writer_schema, resolved_schema)
        if stream.tell() != len(value):
            raise ValueError(
                f"{len(value) - stream.tell()} bytes are left: was it written with this schema?"
            )
        return cast(Mapping[str, object], row if convert is None else convert(row))

    return read


def _read_decimal(data: bytes, writer: Mapping[str, object] | None, reader: object) -> Decimal:
    assert writer is not None
    number = int.from_bytes(data, "big", signed=True)
    precision, scale = cast(int, writer["precision"]), cast(int, writer.get("scale", 0))
    if abs(number) >= 10**precision:
        raise ValueError(f"a decimal of {len(data)} bytes has more than {precision} digits")
    return Decimal(f"{number}E-{scale}")


def _converter(schema: Json) -> _Converter | None:
    """Returns the conversion of a value to one that Arrow accepts; None if there is none to do."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        return _converter(branches[0]) if len(branches) == 1 else None
    if not isinstance(schema, dict):
        return None
    avro_type, logical = schema.get("type"), schema.get("logicalType")
    if avro_type == "long" and logical in _MILLIS:
        return _unless_none(lambda value: check_micros(cast(int, value) * 1000))
    if avro_type == "long" and logical in _MICROS:
        return _unless_none(lambda value: check_micros(cast(int, value)))
    if avro_type == "int" and logical == "date":
        return _unless_none(lambda value: check_days(cast(int, value)))
    if avro_type == "array":
        inner = _converter(schema.get("items"))
        return inner and _unless_none(
            lambda value: [inner(element) for element in cast(list[object], value)]
        )
    if avro_type == "map":
        # Arrow expects pairs.
        inner_value = _converter(schema.get("values"))
        return _unless_none(
            lambda value: [
                (key, inner_value(element) if inner_value else element)
                for key, element in cast(dict[str, object], value).items()
            ]
        )
    if avro_type == "record":
        return _record_converter(schema)
    return _converter(avro_type) if isinstance(avro_type, dict | list) else None


def _record_converter(schema: Mapping[str, Json]) -> _Converter | None:
    converters: list[tuple[str, _Converter]] = []
    fields = schema.get("fields")
    for field in fields if isinstance(fields, list) else []:
        assert isinstance(field, dict)
        converter = _converter(field["type"])
        if converter is not None:
            converters.append((str(field["name"]), converter))
    if not converters:
        return None

    def convert(value: object) -> object:
        row = cast(dict[str, object], value)
        for name, converter in converters:
            row[name] = converter(row[name])
        return row

    return _unless_none(convert)


def _unless_none(convert: _Converter) -> _Converter:
    return lambda value: None if value is None else convert(value)
