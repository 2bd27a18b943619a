"""The record formats by name. A new format is a file with its `RecordFormat`, and a line here."""

from penstock.spark.decode.formats.avro_format import AVRO
from penstock.spark.decode.formats.csv_format import CSV
from penstock.spark.decode.formats.json_format import JSON
from penstock.spark.decode.formats.protobuf_format import PROTOBUF
from penstock.spark.decode.formats.raw_format import RAW
from penstock.spark.decode.formats.record_format import RecordFormat
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec

FORMATS: dict[str, RecordFormat] = {
    record_format.name: record_format for record_format in (JSON, AVRO, PROTOBUF, CSV, RAW)
}


def format_of(spec: SourceSpec) -> RecordFormat:
    """Returns the format of a source. Raises `OptionError` when there is none of that name."""
    if spec.format not in FORMATS:
        raise OptionError(
            f"source {spec.name}: the format {spec.format!r} is not one of {', '.join(FORMATS)}"
        )
    return FORMATS[spec.format]
