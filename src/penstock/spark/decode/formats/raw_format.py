"""Raw: key and value as they are, for a step to decode."""

from typing import TYPE_CHECKING

from penstock.spark.decode.datatypes import BINARY, Field
from penstock.spark.decode.formats.record_format import (
    ERROR,
    RawRecords,
    RecordFormat,
    raw_column,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIELDS = (Field("key", BINARY), Field("value", BINARY))


def _add_columns(records: RawRecords) -> "DataFrame":
    from pyspark.sql import functions as fn

    missing = fn.concat_ws(
        "; ",
        *(
            fn.when(fn.col(raw_column(field.name)).isNull(), f"the {field.name} is null")
            for field in records.fields
            if field.is_required
        ),
    )
    return records.frame.withColumns(
        {
            **{field.name: fn.col(raw_column(field.name)) for field in records.fields},
            ERROR: fn.when(missing != "", missing),
        }
    )


RAW = RecordFormat(
    name="raw",
    keys=(),
    options={},
    read_fields=lambda spec: _FIELDS,
    add_columns=_add_columns,
)
