"""JSON objects, parsed by Spark in the JVM, and strictly.

Spark's `from_json` reads one value and does not look at what comes behind it. So the text is put
into an object of ours, `{"r": <text>, "e": true}`: `e` is only seen if the text ends where the
object does. What passes that could still be `{…}, "x": …`, and is put into an array as well, where
it is not JSON; that second look is only taken at texts with a comma behind a brace.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from penstock.spark.decode.datatypes import STRING, Decimal, Field, Scalar, StructOf, to_ddl
from penstock.spark.decode.options import FormatOptions
from penstock.spark.decode.values import SHOWN, Values, any_of, misfit

_CORRUPT = "__penstock_corrupt"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_HALF_A_CHARACTER = r"(?i)\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])|(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f]"
"""One of the two surrogates of a character without the other: Spark would make it a `?`."""
_OBJECT = r"^\s*\{"
_MAY_HIDE = r"\}\s*,"


def json_columns(
    frame: DataFrame, value: str, fields: tuple[Field, ...], options: FormatOptions, error: str
) -> DataFrame:
    """Adds the fields, and the reason why the value cannot be read; a null value has none."""
    text, parsed = "__penstock_text", "__penstock_parsed"
    values = Values(all_text=False, epoch=options.epoch)
    inner = tuple(Field(each.name, values.parsed_as(each.type)) for each in fields)
    outer = (
        Field("r", StructOf(inner)),
        Field("e", Scalar("boolean")),
        Field(_CORRUPT, STRING),
    )
    wrapped = fn.concat(fn.lit('{"r":'), fn.col(text), fn.lit(',"e":true}'))
    frame = frame.withColumn(text, fn.try_validate_utf8(fn.col(value).cast("string")))
    frame = frame.withColumn(parsed, fn.from_json(wrapped, to_ddl(outer), _OPTIONS))
    whole = fn.col(parsed)
    found = [
        (each, whole["r"][each.name], f"__penstock_{number}") for number, each in enumerate(fields)
    ]
    bad = any_of(
        [
            ~fn.col(text).rlike(_OBJECT),
            _has_half_a_character(fn.col(text)),
            whole[_CORRUPT].isNotNull(),
            ~fn.coalesce(whole["e"], fn.lit(False)),
            fn.col(text).rlike(_MAY_HIDE) & ~_ends_in_array(fn.col(text)),
            *(
                each
                for each in (values.problem(c, f.type) for f, c, _ in found)
                if each is not None
            ),
            *(values.value(c, f.type).isNull() for f, c, _ in found if f.is_required),
        ]
    )
    frame = frame.withColumns(
        {
            "__penstock_bad": bad,
            **{name: values.value(column, field.type) for field, column, name in found},
        }
    )
    names = [(field, name) for field, _, name in found]
    return frame.withColumn(
        error,
        fn.when(fn.col(value).isNull(), None)
        .when(fn.col(text).isNull(), "the value is not UTF-8 text")
        .when(fn.col("__penstock_bad"), _reason(fn.col(text), names)),
    ).withColumnsRenamed({name: field.name for field, name in names})


def _has_half_a_character(text: Column) -> Column:
    # To look for the escape first is much cheaper, and it is rare.
    escaped = text.contains("\\ud") | text.contains("\\uD")
    # A backslash that is escaped itself begins no escape: `C:\\udev` is a path.
    without = fn.replace(text, fn.lit("\\\\"), fn.lit("__"))
    return escaped & without.rlike(_HALF_A_CHARACTER)


def _ends_in_array(text: Column) -> Column:
    wrapped = fn.concat(fn.lit('{"r":['), text, fn.lit('],"e":true}'))
    return fn.coalesce(fn.from_json(wrapped, "e boolean", _OPTIONS)["e"], fn.lit(False))


def _reason(text: Column, fields: list[tuple[Field, str]]) -> Column:
    """Why the text is bad. Only worked out for bad ones, so it may take its time."""
    schema = (*(Field(each.name, STRING) for each, _ in fields), Field(_CORRUPT, STRING))
    # An array of one, so that the text is parsed once for all the fields.
    as_texts = fn.array(fn.from_json(text, to_ddl(schema), _OPTIONS))
    return fn.element_at(fn.transform(as_texts, lambda found: _told(text, found, fields)), 1)


def _told(text: Column, found: Column, fields: list[tuple[Field, str]]) -> Column:
    shown = fn.substring(text, 1, SHOWN)
    inside = fn.concat_ws(
        ", ",
        *(
            fn.when(found[each.name].isNotNull(), each.name)
            for each, _ in fields
            if not isinstance(each.type, Scalar | Decimal)
        ),
    )
    problems = fn.concat_ws("; ", *(misfit(f, found[f.name], fn.col(name)) for f, name in fields))
    wrapped = fn.concat(fn.lit('{"r":'), text, fn.lit(',"e":true}'))
    ends = fn.from_json(wrapped, "e boolean", _OPTIONS)["e"] & _ends_in_array(text)
    return (
        fn.when(text.rlike(r"^\s*$"), "the value is empty")
        .when(
            ~text.rlike(_OBJECT) | found[_CORRUPT].isNotNull(),
            fn.concat(fn.lit("not a JSON object: "), shown),
        )
        .when(
            ~fn.coalesce(ends, fn.lit(False)),
            fn.concat(fn.lit("more text behind the JSON object: "), shown),
        )
        .when(problems != "", problems)
        .when(
            _has_half_a_character(text),
            fn.concat(fn.lit("half of a character (a lone surrogate): "), shown),
        )
        .otherwise(
            fn.concat(
                fn.lit("a value inside of "), inside, fn.lit(" does not fit its type: "), shown
            )
        )
    )
