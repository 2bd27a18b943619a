"""CSV: each value is one line, described by a `schema`."""

import re
from typing import TYPE_CHECKING

from penstock.spark.decode.datatypes import ArrayOf, Field, MapOf, StructOf
from penstock.spark.decode.ddl import schema_fields
from penstock.spark.decode.formats.record_format import (
    EPOCH,
    TOMBSTONES,
    FormatOption,
    RawRecords,
    RecordFormat,
)
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ESCAPES = {"t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
"""The characters that may follow a backslash in Spark's `sep`."""


def separator_of(sep: str) -> str:
    """Returns the text that separates fields, for a `sep` in which tabs may be written as `\\t`."""
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), sep)


def _check_separator(sep: str) -> str | None:
    if not separator_of(sep) or re.search(r"\\[^trbf\"'\\]|[\r\n\0]", sep) or sep == "\\":
        return "it must be one character or more, such as `;` or `\\t`"
    return None


def _check_character(text: str) -> str | None:
    return "it must be one character" if len(text) > 1 else None


def _read_fields(spec: SourceSpec) -> tuple[Field, ...]:
    fields = schema_fields(spec)
    for field in fields:
        if isinstance(field.type, ArrayOf | MapOf | StructOf):
            raise OptionError(
                f"source {spec.name}: field {field.name}: CSV has no {field.type}",
                remedy="read it as a string, and take it apart in a step (from_json, split)",
            )
    return fields


def _add_columns(records: RawRecords) -> "DataFrame":
    from penstock.spark.decode.formats.csv_columns import add_csv_columns

    return add_csv_columns(records)


_FLAG = FormatOption(("true", "false"))
SPARK_OPTIONS = {
    "sep": FormatOption(default=",", check=_check_separator),
    "quote": FormatOption(check=_check_character),
    "escape": FormatOption(check=_check_character),
    "nullValue": FormatOption(),
    "ignoreLeadingWhiteSpace": _FLAG,
    "ignoreTrailingWhiteSpace": _FLAG,
}
"""Options that Spark's CSV parser interprets."""

CSV = RecordFormat(
    name="csv",
    keys=("schema",),
    options={
        "tombstones": TOMBSTONES,
        "epoch": EPOCH,
        "header": FormatOption(("true", "false"), "false"),
        **SPARK_OPTIONS,
    },
    read_fields=_read_fields,
    add_columns=_add_columns,
)
