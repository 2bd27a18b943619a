"""Avro: values in binary form, described by a `schema_file`, with or without Confluent's prefix."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.decode.datatypes import Field
from penstock.spark.decode.formats.avro_schema import (
    avro_fields,
    expand_schema,
    load_avro_schema,
    self_containing_type,
)
from penstock.spark.decode.formats.record_format import (
    TOMBSTONES,
    WIRE,
    FormatOption,
    RawRecords,
    RecordFormat,
)
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec
from penstock.spark.progress import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def load_writer_schemas(directory: str) -> tuple[tuple[int, str], ...]:
    """Returns the id and the JSON of every schema `<id>.avsc` in the directory.

    Raises `OptionError` when there is none, or a file that is not such a schema.
    """
    files = sorted(Path(directory).glob("*.avsc"))
    misnamed = [file.name for file in files if not file.stem.isdecimal()]
    if not files or misnamed:
        raise OptionError(
            f"avro.schemas: the directory {directory} must hold schemas named <id>.avsc"
            + (f", not {misnamed[0]}" if misnamed else "")
        )
    return tuple((int(file.stem), json.dumps(_load_writer_schema(file))) for file in files)


def _load_writer_schema(path: Path) -> Json:
    schema = load_avro_schema(str(path))
    name = self_containing_type(expand_schema(schema))
    if name is not None:
        # fastavro follows nested values to any depth, until the process dies.
        raise OptionError(
            f"avro.schemas: the type {name} in {path.name} contains itself",
            remedy="use the format raw, and decode the value in a step",
        )
    return schema


def _read_fields(spec: SourceSpec) -> tuple[Field, ...]:
    if spec.schema_file is None:
        raise OptionError(
            f"source {spec.name}: the format avro needs schema_file, an Avro schema (.avsc)"
        )
    return avro_fields(load_avro_schema(spec.schema_file))


def _add_columns(records: RawRecords) -> "DataFrame":
    from penstock.spark.decode.formats.arrow_columns import add_python_columns
    from penstock.spark.decode.formats.avro_reader import avro_reader

    spec, options = records.spec, records.options
    assert spec.schema_file is not None
    schema = json.dumps(load_avro_schema(spec.schema_file))
    is_confluent = options["avro.wire"] == "confluent"
    directory = options.get("avro.schemas")
    writers = load_writer_schemas(directory) if directory else ()
    if writers and not is_confluent:
        raise OptionError(
            f"source {spec.name}: avro.schemas names schemas by their id, which only values with "
            "avro.wire=confluent have",
            remedy="set that option, or leave avro.schemas out",
        )
    return add_python_columns(records, lambda: avro_reader(schema, is_confluent, writers), "Avro")


AVRO = RecordFormat(
    name="avro",
    keys=("schema_file",),
    options={
        "tombstones": TOMBSTONES,
        "avro.wire": WIRE,
        "avro.schemas": FormatOption(is_path=True),
    },
    read_fields=_read_fields,
    add_columns=_add_columns,
)
