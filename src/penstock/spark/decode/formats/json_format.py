"""JSON: each value is one object, described by a `schema`."""

from typing import TYPE_CHECKING

from penstock.spark.decode.datatypes import STRING, ArrayOf, DataType, Field, MapOf, StructOf
from penstock.spark.decode.ddl import schema_fields
from penstock.spark.decode.formats.record_format import (
    EPOCH,
    TOMBSTONES,
    RawRecords,
    RecordFormat,
)
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _read_fields(spec: SourceSpec) -> tuple[Field, ...]:
    fields = schema_fields(spec)
    for field in fields:
        _check_map_keys(spec, field.name, field.type)
    return fields


def _check_map_keys(spec: SourceSpec, name: str, data_type: DataType) -> None:
    match data_type:
        case ArrayOf(element):
            _check_map_keys(spec, name, element)
        case MapOf(key, value):
            if key != STRING:
                raise OptionError(
                    f"source {spec.name}: field {name}: the keys of a JSON object are text",
                    remedy=f"write map<string,{value}> instead of {data_type}",
                )
            _check_map_keys(spec, name, value)
        case StructOf(fields):
            for field in fields:
                _check_map_keys(spec, f"{name}.{field.name}", field.type)


def _add_columns(records: RawRecords) -> "DataFrame":
    from penstock.spark.decode.formats.json_columns import add_json_columns

    return add_json_columns(records)


JSON = RecordFormat(
    name="json",
    keys=("schema",),
    options={"tombstones": TOMBSTONES, "epoch": EPOCH},
    read_fields=_read_fields,
    add_columns=_add_columns,
)
