"""Avro values, in plain binary form or with Confluent's five bytes in front."""

import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from penstock.spark.decode.arrow_rows import Read, days, micros
from penstock.spark.decode.avro_schema import (
    DECIMAL,
    expand,
    load_avro_schema,
    name_within_itself,
    parsed,
    plain,
)
from penstock.spark.decode.datatypes import Field
from penstock.spark.decode.options import FormatOptions
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec
from penstock.spark.progress import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PREFIX = 5
_Change = Callable[[object], object]
_MILLIS = ("timestamp-millis", "local-timestamp-millis")
_MICROS = ("timestamp-micros", "local-timestamp-micros")


def avro_columns(
    frame: "DataFrame",
    value: str,
    spec: SourceSpec,
    fields: tuple[Field, ...],
    options: FormatOptions,
    error: str,
) -> "DataFrame":
    """Adds the fields, and the reason why the value cannot be read; a null value has none."""
    assert spec.schema_file is not None
    schema = json.dumps(load_avro_schema(spec.schema_file))
    writers = _writers(options.schemas) if options.schemas else ()
    is_confluent = options.wire == "confluent"
    if writers and not is_confluent:
        raise OptionError(
            f"source {spec.name}: avro.schemas names schemas by their id, which only values with "
            "avro.wire=confluent have"
        )
    from penstock.spark.decode.python_columns import python_columns

    return python_columns(
        frame,
        value,
        fields,
        error,
        lambda: avro_reader(schema, is_confluent, writers),
        "Avro",
    )


def _writers(folder: str) -> tuple[tuple[int, str], ...]:
    found = sorted(Path(folder).glob("*.avsc"))
    wrong = [each.name for each in found if not each.stem.isdecimal()]
    if not found or wrong:
        raise OptionError(
            f"avro.schemas: the folder {folder} must hold schemas named <id>.avsc"
            + (f", not {wrong[0]}" if wrong else "")
        )
    return tuple((int(each.stem), json.dumps(_writer(each))) for each in found)


def _writer(path: Path) -> Json:
    schema = load_avro_schema(str(path))
    name = name_within_itself(expand(schema))
    if name is not None:
        # However deep values are, fastavro follows them until the process dies.
        raise OptionError(
            f"avro.schemas: the type {name} in {path.name} contains itself: take the format raw, "
            "and decode it in a step"
        )
    return schema


@lru_cache(maxsize=16)
def avro_reader(schema: str, is_confluent: bool, writers: tuple[tuple[int, str], ...]) -> Read:
    """Reads a value. With writers' schemas, values are resolved to `schema` as Avro says."""
    from fastavro import schemaless_reader
    from fastavro.read import LOGICAL_READERS

    for kind in ("bytes", "fixed"):
        LOGICAL_READERS[f"{kind}-{DECIMAL}"] = _decimal
    wanted: Json = json.loads(schema)
    reader = parsed(plain(wanted), "the Avro schema")
    by_id = {number: parsed(plain(json.loads(text)), f"{number}.avsc") for number, text in writers}
    change = _change_of(expand(wanted))

    def read(value: bytes) -> Mapping[str, object]:
        stream = io.BytesIO(value)
        writer = reader
        if is_confluent:
            if len(value) < _PREFIX or value[0] != 0:
                raise ValueError("it does not begin with a zero and the id of a schema")
            number = int.from_bytes(value[1:_PREFIX], "big")
            if by_id:
                if number not in by_id:
                    raise ValueError(f"there is no {number}.avsc for the schema that wrote it")
                writer = by_id[number]
            stream.seek(_PREFIX)
        found = schemaless_reader(stream, writer, None if writer is reader else reader)
        if stream.tell() != len(value):
            raise ValueError(
                f"{len(value) - stream.tell()} bytes are left: was it written with this schema?"
            )
        return cast(Mapping[str, object], found if change is None else change(found))

    return read


def _decimal(data: bytes, writer: Mapping[str, object] | None, reader: object) -> Decimal:
    assert writer is not None
    number = int.from_bytes(data, "big", signed=True)
    precision, scale = cast(int, writer["precision"]), cast(int, writer.get("scale", 0))
    if abs(number) >= 10**precision:
        raise ValueError(f"a decimal of {len(data)} bytes has more than {precision} digits")
    return Decimal(f"{number}E-{scale}")


def _change_of(schema: Json) -> _Change | None:
    """What makes a value of this schema one for Arrow; None if nothing needs to be done."""
    if isinstance(schema, list):
        found = [each for each in schema if each != "null"]
        return _change_of(found[0]) if len(found) == 1 else None
    if not isinstance(schema, dict):
        return None
    kind, logical = schema.get("type"), schema.get("logicalType")
    if kind == "long" and logical in _MILLIS:
        return _unless_none(lambda value: micros(cast(int, value) * 1000))
    if kind == "long" and logical in _MICROS:
        return _unless_none(lambda value: micros(cast(int, value)))
    if kind == "int" and logical == "date":
        return _unless_none(lambda value: days(cast(int, value)))
    if kind == "array":
        inner = _change_of(schema.get("items"))
        return inner and _unless_none(lambda value: [inner(e) for e in cast(list[object], value)])
    if kind == "map":
        # Arrow wants pairs.
        each = _change_of(schema.get("values"))
        return _unless_none(
            lambda value: [
                (key, each(one) if each else one)
                for key, one in cast(dict[str, object], value).items()
            ]
        )
    if kind == "record":
        return _record_change(schema)
    return _change_of(kind) if isinstance(kind, dict | list) else None


def _record_change(schema: Mapping[str, Json]) -> _Change | None:
    changes: list[tuple[str, _Change]] = []
    listed = schema.get("fields")
    for field in listed if isinstance(listed, list) else []:
        assert isinstance(field, dict)
        change = _change_of(field["type"])
        if change is not None:
            changes.append((str(field["name"]), change))
    if not changes:
        return None

    def changed(value: object) -> object:
        row = cast(dict[str, object], value)
        for name, change in changes:
            row[name] = change(row[name])
        return row

    return _unless_none(changed)


def _unless_none(change: _Change) -> _Change:
    return lambda value: None if value is None else change(value)
