"""From the raw columns of a source to its fields, with the reason where a record is bad."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from penstock.spark.decode.datatypes import Field
from penstock.spark.decode.fields import typed_fields
from penstock.spark.decode.options import FormatOptions, format_options
from penstock.spark.pipeline.model import SourceSpec

_RAW = "__penstock_raw_"
_ERROR = "__penstock_error"
_ORIGIN = ("key", "topic", "partition", "offset", "timestamp")
TOMBSTONE = "the value is null (a tombstone): set the option `tombstones` to keep or skip them"


def decode(frame: DataFrame, spec: SourceSpec, *, keep: Sequence[str] = ()) -> DataFrame:
    """The fields of `spec`, where each record came from, and `_error`: null if it is good.

    A bad record never fails the job: its fields are null, and `_error` says why. Raw columns named
    in `keep` stay, as `_raw_<name>`.
    """
    fields = typed_fields(spec)
    options = format_options(spec)
    raw = frame.select(*(fn.col(name).alias(_RAW + name) for name in frame.columns))
    value = fn.col(_RAW + "value")
    if options.tombstones == "skip" and spec.format != "raw":
        raw = raw.where(value.isNotNull())
    decoded = _decoded(raw, spec, fields, options)
    error = fn.col(_ERROR)
    if spec.format != "raw" and options.tombstones == "dead-letter":
        error = fn.when(value.isNull(), TOMBSTONE).otherwise(error)
    decoded = decoded.withColumn(_ERROR, error)
    origin = [fn.col(_RAW + name).alias(f"_{name}") for name in _ORIGIN]
    if spec.headers:
        origin.append(fn.col(_RAW + "headers").alias("_headers"))
    return decoded.select(
        *(fn.when(fn.col(_ERROR).isNull(), _column(each)).alias(each.name) for each in fields),
        *origin,
        fn.col(_ERROR).alias("_error"),
        *(fn.col(_RAW + name).alias(f"_raw_{name}") for name in keep),
    )


def _column(field: Field) -> Column:
    return fn.col("`" + field.name.replace("`", "``") + "`")


def _decoded(
    raw: DataFrame, spec: SourceSpec, fields: tuple[Field, ...], options: FormatOptions
) -> DataFrame:
    value = _RAW + "value"
    match spec.format:
        case "json":
            from penstock.spark.decode.json_text import json_columns

            return json_columns(raw, value, fields, options, _ERROR)
        case "csv":
            from penstock.spark.decode.csv_text import csv_columns

            return csv_columns(raw, value, fields, options, _ERROR)
        case "avro":
            from penstock.spark.decode.avro import avro_columns

            return avro_columns(raw, value, spec, fields, options, _ERROR)
        case "protobuf":
            from penstock.spark.decode.protobuf import protobuf_columns

            return protobuf_columns(raw, value, spec, fields, options, _ERROR)
        case "raw":
            return _raw_columns(raw, fields)


def _raw_columns(raw: DataFrame, fields: tuple[Field, ...]) -> DataFrame:
    missing = fn.concat_ws(
        "; ",
        *(
            fn.when(fn.col(_RAW + each.name).isNull(), f"the {each.name} is null")
            for each in fields
            if each.is_required
        ),
    )
    return raw.withColumns(
        {
            **{each.name: fn.col(_RAW + each.name) for each in fields},
            _ERROR: fn.when(missing != "", missing),
        }
    )
