"""Strict decoding of JSON objects, as Spark expressions that run in the JVM.

Spark's `from_json` reads one value and ignores the rest of the text. The text is therefore wrapped
as `{"r": <text>, "e": true}`: `e` is only found if the text ends where its object ends. A text such
as `{…}, "x": …` still passes, so texts with a comma after a closing brace are also parsed inside an
array, in which they are not valid JSON.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from penstock.spark.decode.datatypes import STRING, Decimal, Field, Scalar, StructOf, to_ddl
from penstock.spark.decode.formats.record_format import ERROR, VALUE, RawRecords
from penstock.spark.decode.formats.text_values import (
    SHOWN_CHARACTERS,
    ValueConverter,
    field_problem,
    is_any_true,
)

_CORRUPT = "__penstock_corrupt"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_LONE_SURROGATE = r"(?i)\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])|(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f]"
"""One of the two surrogates of a character without the other: Spark would turn it into a `?`."""
_OBJECT = r"^\s*\{"
_COMMA_AFTER_BRACE = r"\}\s*,"


def add_json_columns(records: RawRecords) -> DataFrame:
    """Adds the fields and `ERROR`, as `RecordFormat.add_columns` requires."""
    fields = records.fields
    text, parsed = "__penstock_text", "__penstock_parsed"
    converter = ValueConverter(all_text=False, epoch=records.options["epoch"])
    parsed_fields = tuple(Field(field.name, converter.parsed_type(field.type)) for field in fields)
    wrapper = (
        Field("r", StructOf(parsed_fields)),
        Field("e", Scalar("boolean")),
        Field(_CORRUPT, STRING),
    )
    wrapped = fn.concat(fn.lit('{"r":'), fn.col(text), fn.lit(',"e":true}'))
    frame = records.frame.withColumn(text, fn.try_validate_utf8(fn.col(VALUE).cast("string")))
    frame = frame.withColumn(parsed, fn.from_json(wrapped, to_ddl(wrapper), _OPTIONS))
    whole = fn.col(parsed)
    columns = [
        (field, whole["r"][field.name], f"__penstock_{number}")
        for number, field in enumerate(fields)
    ]
    problems = [converter.has_problem(column, field.type) for field, column, _ in columns]
    is_bad = is_any_true(
        [
            ~fn.col(text).rlike(_OBJECT),
            _has_lone_surrogate(fn.col(text)),
            whole[_CORRUPT].isNotNull(),
            ~fn.coalesce(whole["e"], fn.lit(False)),
            fn.col(text).rlike(_COMMA_AFTER_BRACE) & ~_is_whole_in_array(fn.col(text)),
            *(problem for problem in problems if problem is not None),
            *(
                converter.value(column, field.type).isNull()
                for field, column, _ in columns
                if field.is_required
            ),
        ]
    )
    frame = frame.withColumns(
        {
            "__penstock_bad": is_bad,
            **{name: converter.value(column, field.type) for field, column, name in columns},
        }
    )
    names = [(field, name) for field, _, name in columns]
    return frame.withColumn(
        ERROR,
        fn.when(fn.col(VALUE).isNull(), None)
        .when(fn.col(text).isNull(), "the value is not UTF-8 text")
        .when(fn.col("__penstock_bad"), _reason(fn.col(text), names)),
    ).withColumnsRenamed({name: field.name for field, name in names})


def _has_lone_surrogate(text: Column) -> Column:
    # Searching for the escape first is much faster, and it is rare.
    has_escape = text.contains("\\ud") | text.contains("\\uD")
    # An escaped backslash starts no escape: `C:\\udev` is a path.
    without_backslashes = fn.replace(text, fn.lit("\\\\"), fn.lit("__"))
    return has_escape & without_backslashes.rlike(_LONE_SURROGATE)


def _is_whole_in_array(text: Column) -> Column:
    wrapped = fn.concat(fn.lit('{"r":['), text, fn.lit('],"e":true}'))
    return fn.coalesce(fn.from_json(wrapped, "e boolean", _OPTIONS)["e"], fn.lit(False))


def _reason(text: Column, fields: list[tuple[Field, str]]) -> Column:
    """Returns why the text is bad. Computed for bad texts only, so it need not be fast."""
    schema = (*(Field(field.name, STRING) for field, _ in fields), Field(_CORRUPT, STRING))
    # An array of one element, so that the text is parsed once for all fields.
    as_texts = fn.array(fn.from_json(text, to_ddl(schema), _OPTIONS))
    return fn.element_at(fn.transform(as_texts, lambda parsed: _explain(text, parsed, fields)), 1)


def _explain(text: Column, parsed: Column, fields: list[tuple[Field, str]]) -> Column:
    shown = fn.substring(text, 1, SHOWN_CHARACTERS)
    nested_names = fn.concat_ws(
        ", ",
        *(
            fn.when(parsed[field.name].isNotNull(), field.name)
            for field, _ in fields
            if not isinstance(field.type, Scalar | Decimal)
        ),
    )
    problems = fn.concat_ws(
        "; ", *(field_problem(field, parsed[field.name], fn.col(name)) for field, name in fields)
    )
    wrapped = fn.concat(fn.lit('{"r":'), text, fn.lit(',"e":true}'))
    is_whole = fn.from_json(wrapped, "e boolean", _OPTIONS)["e"] & _is_whole_in_array(text)
    return (
        fn.when(text.rlike(r"^\s*$"), "the value is empty")
        .when(
            ~text.rlike(_OBJECT) | parsed[_CORRUPT].isNotNull(),
            fn.concat(fn.lit("not a JSON object: "), shown),
        )
        .when(
            ~fn.coalesce(is_whole, fn.lit(False)),
            fn.concat(fn.lit("more text after the JSON object: "), shown),
        )
        .when(problems != "", problems)
        .when(
            _has_lone_surrogate(text),
            fn.concat(fn.lit("half of a character (a lone surrogate): "), shown),
        )
        .otherwise(
            fn.concat(
                fn.lit("a value inside "), nested_names, fn.lit(" does not fit its type: "), shown
            )
        )
    )
