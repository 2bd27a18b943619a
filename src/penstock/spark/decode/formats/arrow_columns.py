"""Columns for formats that Python decodes, a batch of values at a time, in an Arrow UDF."""

from collections.abc import Callable
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.functions import arrow_udf

from penstock.spark.decode.datatypes import STRING, Field, StructOf
from penstock.spark.decode.formats.arrow_rows import ValueReader, decode_batch
from penstock.spark.decode.formats.record_format import ERROR, VALUE, RawRecords

# Spark derives the kind of UDF from type hints, which the type stubs of pyspark do not cover.
_arrow_udf = cast(
    Callable[[Callable[[pa.Array], pa.Array], str], Callable[[Column], Column]], arrow_udf
)
_DECODED = "__penstock_decoded"
_REASON = "__penstock_reason"


def add_python_columns(
    records: RawRecords, new_reader: Callable[[], ValueReader], format_name: str
) -> DataFrame:
    """Adds the fields and `ERROR`, as `RecordFormat.add_columns` requires.

    `new_reader` is called for each batch, in the executors; it should cache what takes long.
    """
    fields = records.fields

    def decode(values: pa.Array) -> pa.Array:
        return decode_batch(values, new_reader(), fields, _REASON, format_name)

    # The hints must be classes and not text, also after the function was pickled.
    decode.__annotations__ = {"values": pa.Array, "return": pa.Array}
    udf = _arrow_udf(decode, str(StructOf((*fields, Field(_REASON, STRING)))))
    column = fn.col(_DECODED)
    return records.frame.withColumn(_DECODED, udf(fn.col(VALUE))).withColumns(
        {**{field.name: column[field.name] for field in fields}, ERROR: column[_REASON]}
    )
