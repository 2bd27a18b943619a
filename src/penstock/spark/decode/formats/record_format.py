"""The interface of a record format, such as JSON or Avro.

A format is one `RecordFormat` in a file of its own, listed in `registry.py`. `validate` uses its
keys, options and fields without Spark; `decode` calls `add_columns` when a query is built.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.decode.datatypes import Field
from penstock.spark.pipeline.model import SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class FormatOption:
    """An option of a source that its format interprets, such as CSV's `sep`."""

    values: tuple[str, ...] = ()
    """The allowed values, in lower case; without any, every text is allowed."""
    default: str | None = None
    check: Callable[[str], str | None] = lambda value: None
    """Returns the rule that a value breaks ("it must be one character"), or None."""
    is_path: bool = False
    """Whether the value is a path, relative to the pipeline's file."""


TOMBSTONES = FormatOption(("dead-letter", "keep", "skip"), "dead-letter")
"""What becomes of a record without a value: a dead letter, a row of nulls, or nothing."""

EPOCHS = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
"""The units of a number in place of a timestamp, in microseconds."""

EPOCH = FormatOption(tuple(EPOCHS), "millis")

WIRE = FormatOption(("plain", "confluent"), "plain")
"""With `confluent`, a zero byte and the four bytes of a schema id precede each value."""


def raw_column(name: str) -> str:
    """Returns the name, while records are decoded, of a column that the source delivers."""
    return f"__penstock_raw_{name}"


VALUE = raw_column("value")
ERROR = "__penstock_error"


@dataclass(frozen=True)
class RawRecords:
    """The records of a source, to be decoded by its format."""

    frame: "DataFrame"
    """The source's columns, named as `raw_column` says; `VALUE` holds the bytes to decode."""
    spec: SourceSpec
    fields: tuple[Field, ...]
    options: Mapping[str, str]
    """The format's options, checked, with their defaults."""


@dataclass(frozen=True)
class RecordFormat:
    """A kind of record values that a source can have."""

    name: str
    """The source's `format` in a pipeline file."""
    keys: tuple[str, ...]
    """The keys of the source that describe the fields: of `schema`, `schema_file` and `message`."""
    options: Mapping[str, FormatOption]
    """Include `tombstones` unless the format accepts null values as they are."""
    read_fields: Callable[[SourceSpec], tuple[Field, ...]]
    """Returns the fields that the source describes. Works without Spark, and raises `OptionError`
    when the description is missing or wrong."""
    add_columns: "Callable[[RawRecords], DataFrame]"
    """Adds a column for each field, and `ERROR`: why a value cannot be decoded, or null. A bad
    value must not fail the job, and a null value has no error. Imports Spark when it is called."""
