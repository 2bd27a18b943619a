"""Strict decoding of records that are one line of CSV, as Spark expressions that run in the JVM.

Spark's parser accepts a quote that is never closed and ends it with the text. One more field is
therefore appended to the text: inside such quotes it is lost, and the line has a field too few.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from penstock.spark.decode.datatypes import STRING, Field, to_ddl
from penstock.spark.decode.formats.csv_format import SPARK_OPTIONS, separator_of
from penstock.spark.decode.formats.record_format import ERROR, VALUE, RawRecords
from penstock.spark.decode.formats.text_values import (
    SHOWN_CHARACTERS,
    ValueConverter,
    field_problem,
    is_any_true,
)

_CORRUPT = "__penstock_corrupt"
_END = "__penstock_end"
_MAX_COLUMNS = 20_000
"""Spark's parser fails the whole job when a line has more than 20480."""


def add_csv_columns(records: RawRecords) -> DataFrame:
    """Adds the fields and `ERROR`, as `RecordFormat.add_columns` requires."""
    fields, options = records.fields, records.options
    text, parsed = "__penstock_text", "__penstock_parsed"
    converter = ValueConverter(all_text=True, epoch=options["epoch"])
    schema = tuple(Field(name, STRING) for name in (*(f.name for f in fields), _END, _CORRUPT))
    separator = separator_of(options["sep"])
    frame = records.frame.withColumn(
        text,
        fn.regexp_replace(fn.try_validate_utf8(fn.col(VALUE).cast("string")), r"(\r?\n)+\z", ""),
    )
    if options["header"] == "true":
        header = separator.join(field.name for field in fields)
        frame = frame.where(fn.col(text).isNull() | (fn.col(text) != header))
    with_end = fn.concat(fn.col(text), fn.lit(f"{separator}x"))
    line = fn.when(_is_too_wide(fn.col(text), separator), "").otherwise(with_end)
    frame = frame.withColumn(
        parsed,
        fn.from_csv(
            line,
            to_ddl(schema),
            {
                "mode": "PERMISSIVE",
                "columnNameOfCorruptRecord": _CORRUPT,
                # A line break is part of a field: a second line must not be lost.
                "lineSep": "\x00",
                "maxColumns": "20480",
                "escape": '"',
                **{name: options[name] for name in SPARK_OPTIONS if name in options},
            },
        ),
    )
    columns = fn.col(parsed)
    names = [(field, f"__penstock_{number}") for number, field in enumerate(fields)]
    frame = frame.withColumns(
        {name: converter.value(columns[field.name], field.type) for field, name in names}
    )
    problems = fn.concat_ws(
        "; ", *(field_problem(field, columns[field.name], fn.col(name)) for field, name in names)
    )
    wrong_count = f"the line does not have {len(fields)} fields: "
    return frame.withColumn(
        ERROR,
        fn.when(fn.col(VALUE).isNull(), None)
        .when(fn.col(text).isNull(), "the value is not UTF-8 text")
        .when(fn.trim(fn.col(text)) == "", "the value is empty")
        .when(
            is_any_true([columns[_CORRUPT].isNotNull(), _is_too_wide(fn.col(text), separator)]),
            fn.concat(fn.lit(wrong_count), fn.substring(fn.col(text), 1, SHOWN_CHARACTERS)),
        )
        .when(problems != "", problems),
    ).withColumnsRenamed({name: field.name for field, name in names})


def _is_too_wide(text: Column, separator: str) -> Column:
    without = fn.length(fn.replace(text, fn.lit(separator), fn.lit("")))
    separators = (fn.length(text) - without) / len(separator)
    return (fn.length(text) > _MAX_COLUMNS) & (separators > _MAX_COLUMNS)
