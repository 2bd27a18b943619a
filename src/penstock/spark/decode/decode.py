"""Decoding the records of a source into its fields, or into the reason why a record is bad."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from penstock.spark.decode.datatypes import quote_name
from penstock.spark.decode.fields import typed_fields
from penstock.spark.decode.formats.record_format import ERROR, VALUE, RawRecords, raw_column
from penstock.spark.decode.formats.registry import format_of
from penstock.spark.decode.options import format_options
from penstock.spark.pipeline.model import SourceSpec

_ORIGIN = ("key", "topic", "partition", "offset", "timestamp")
_TOMBSTONE = "the value is null (a tombstone): set the option `tombstones` to keep or skip them"


def decode(frame: DataFrame, spec: SourceSpec, *, keep: Sequence[str] = ()) -> DataFrame:
    """Returns the fields of `spec`, the origin of each record, and `_error`, null if it is good.

    A bad record never fails the job: its fields are null, and `_error` is the reason. The raw
    columns named in `keep` stay, as `_raw_<name>`.
    """
    fields = typed_fields(spec)
    options = format_options(spec)
    raw = frame.select(*(fn.col(name).alias(raw_column(name)) for name in frame.columns))
    is_tombstone = fn.col(VALUE).isNull()
    if options.get("tombstones") == "skip":
        raw = raw.where(~is_tombstone)
    decoded = format_of(spec).add_columns(RawRecords(raw, spec, fields, options))
    if options.get("tombstones") == "dead-letter":
        decoded = decoded.withColumn(
            ERROR, fn.when(is_tombstone, _TOMBSTONE).otherwise(fn.col(ERROR))
        )
    origin = [*_ORIGIN, "headers"] if spec.headers else _ORIGIN
    return decoded.select(
        *(
            fn.when(fn.col(ERROR).isNull(), fn.col(quote_name(field.name))).alias(field.name)
            for field in fields
        ),
        *(fn.col(raw_column(name)).alias(f"_{name}") for name in origin),
        fn.col(ERROR).alias("_error"),
        *(fn.col(raw_column(name)).alias(f"_raw_{name}") for name in keep),
    )
