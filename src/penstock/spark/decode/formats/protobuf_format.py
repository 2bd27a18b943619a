"""Protobuf: messages described by a set of descriptors, with or without Confluent's prefix."""

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.decode.datatypes import Field
from penstock.spark.decode.formats.protobuf_schema import load_message, protobuf_fields
from penstock.spark.decode.formats.record_format import (
    TOMBSTONES,
    WIRE,
    RawRecords,
    RecordFormat,
)
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _read_fields(spec: SourceSpec) -> tuple[Field, ...]:
    if spec.schema_file is None:
        raise OptionError(
            f"source {spec.name}: the format protobuf needs schema_file, a set of descriptors "
            "(protoc --descriptor_set_out)"
        )
    if spec.message is None:
        raise OptionError(
            f"source {spec.name}: the format protobuf needs message, the full name of the message"
        )
    return protobuf_fields(load_message(spec.schema_file, spec.message))


def _add_columns(records: RawRecords) -> "DataFrame":
    from penstock.spark.decode.formats.arrow_columns import add_python_columns
    from penstock.spark.decode.formats.protobuf_reader import protobuf_reader

    spec = records.spec
    assert spec.schema_file is not None
    assert spec.message is not None
    message = spec.message
    descriptors = Path(spec.schema_file).read_bytes()
    is_confluent = records.options["protobuf.wire"] == "confluent"
    return add_python_columns(
        records, lambda: protobuf_reader(descriptors, message, is_confluent), "Protobuf"
    )


PROTOBUF = RecordFormat(
    name="protobuf",
    keys=("schema_file", "message"),
    options={"tombstones": TOMBSTONES, "protobuf.wire": WIRE},
    read_fields=_read_fields,
    add_columns=_add_columns,
)
