"""A record that is one line of CSV: taken apart by Spark, its fields converted strictly.

Spark's parser takes a quote that is never closed to end where the text does. So one more field is
put behind the text: within such quotes it is lost, and the line has a field too few.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from penstock.spark.decode.datatypes import STRING, Field, to_ddl
from penstock.spark.decode.options import FormatOptions
from penstock.spark.decode.values import SHOWN, Values, any_of, misfit

_CORRUPT = "__penstock_corrupt"
_END = "__penstock_end"
_MAX_COLUMNS = 20_000
"""Spark's parser fails the whole job where a line has more than 20480."""


def csv_columns(
    frame: DataFrame, value: str, fields: tuple[Field, ...], options: FormatOptions, error: str
) -> DataFrame:
    """Adds the fields, and the reason why the value cannot be read; a null value has none."""
    text, parsed = "__penstock_text", "__penstock_parsed"
    values = Values(all_text=True, epoch=options.epoch)
    names_of = [*(each.name for each in fields), _END, _CORRUPT]
    schema = tuple(Field(each, STRING) for each in names_of)
    separator = options.separator
    frame = frame.withColumn(
        text,
        fn.regexp_replace(fn.try_validate_utf8(fn.col(value).cast("string")), r"(\r?\n)+\z", ""),
    )
    if options.header:
        header = separator.join(each.name for each in fields)
        frame = frame.where(fn.col(text).isNull() | (fn.col(text) != header))
    whole = fn.concat(fn.col(text), fn.lit(f"{separator}x"))
    line = fn.when(_is_wide(fn.col(text), separator), "").otherwise(whole)
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
                **options.csv,
            },
        ),
    )
    found = fn.col(parsed)
    names = [(each, f"__penstock_{number}") for number, each in enumerate(fields)]
    frame = frame.withColumns(
        {name: values.value(found[each.name], each.type) for each, name in names}
    )
    problems = fn.concat_ws(
        "; ", *(misfit(each, found[each.name], fn.col(name)) for each, name in names)
    )
    count = f"the line has not {len(fields)} fields: "
    return frame.withColumn(
        error,
        fn.when(fn.col(value).isNull(), None)
        .when(fn.col(text).isNull(), "the value is not UTF-8 text")
        .when(fn.trim(fn.col(text)) == "", "the value is empty")
        .when(
            any_of([found[_CORRUPT].isNotNull(), _is_wide(fn.col(text), separator)]),
            fn.concat(fn.lit(count), fn.substring(fn.col(text), 1, SHOWN)),
        )
        .when(problems != "", problems),
    ).withColumnsRenamed({name: each.name for each, name in names})


def _is_wide(text: Column, separator: str) -> Column:
    without = fn.length(fn.replace(text, fn.lit(separator), fn.lit("")))
    columns = (fn.length(text) - without) / len(separator)
    return (fn.length(text) > _MAX_COLUMNS) & (columns > _MAX_COLUMNS)
