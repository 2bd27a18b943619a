"""Formats that Python decodes, as columns of a data frame: an Arrow UDF, a batch at a time."""

from collections.abc import Callable
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.functions import arrow_udf

from penstock.spark.decode.arrow_rows import Read, decoded_batch
from penstock.spark.decode.datatypes import STRING, Field, StructOf

# Told by the hints of the function which kind it is; the types of pyspark know only the old way.
_arrow_udf = cast(
    Callable[[Callable[[pa.Array], pa.Array], str], Callable[[Column], Column]], arrow_udf
)
_DECODED = "__penstock_decoded"
_REASON = "__penstock_reason"


def python_columns(
    frame: DataFrame,
    value: str,
    fields: tuple[Field, ...],
    error: str,
    make_read: Callable[[], Read],
    format_name: str,
) -> DataFrame:
    """Adds the fields, and the reason why the value cannot be read; a null value has none.

    `make_read` is called for each batch, in the executors: it keeps what is dear to make.
    """

    def decoded(values: pa.Array) -> pa.Array:
        return decoded_batch(values, make_read(), fields, _REASON, format_name)

    # The hints must be classes, not text, wherever this was pickled.
    decoded.__annotations__ = {"values": pa.Array, "return": pa.Array}
    made = StructOf((*fields, Field(_REASON, STRING)))
    udf = _arrow_udf(decoded, str(made))
    column = fn.col(_DECODED)
    return frame.withColumn(_DECODED, udf(fn.col(value))).withColumns(
        {**{each.name: column[each.name] for each in fields}, error: column[_REASON]}
    )
