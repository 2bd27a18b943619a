"""Strict conversion of parsed JSON and CSV values to the types of fields, as Spark expressions.

Spark's own conversions are lenient: 200 becomes -56 in a tinyint, 1.239 becomes 1.24 in a
decimal(3,2), 1e400 infinity, "10:00" a timestamp of today, a number a count of seconds. These types
are therefore parsed as text (or a wider number) and converted here. A value that does not fit
becomes null, and `has_problem` distinguishes it from one that was null before. Decimals of JSON are
parsed as variants, which keep all their digits; as text they would go through a double.
"""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as fn

from penstock.spark.decode.datatypes import (
    STRING,
    ArrayOf,
    DataType,
    Decimal,
    Field,
    MapOf,
    Scalar,
    StructOf,
)
from penstock.spark.decode.formats.arrow_rows import FIRST_MICROS, LAST_MICROS
from penstock.spark.decode.formats.record_format import EPOCHS

_DAY = r"(?!0000)\d{4}-\d{2}-\d{2}"
_CLOCK = r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
# Java's `$` would allow a line break after the value.
_DATE = rf"^{_DAY}\z"
_LOCAL = rf"^{_DAY}({_CLOCK})?\z"
_TIMESTAMP = rf"^{_DAY}({_CLOCK}(Z|[+-]\d{{2}}(:?\d{{2}})?)?)?\z"
_BASIC_ZONE = r"([+-]\d{2})(\d{2})$"
_NO_SECONDS = r"([T ]\d{2}:\d{2})(Z|[+-].*)$"
_ODD_ZONE = r"[+-]\d{4}$|[T ]\d{2}:\d{2}(Z|[+-])"
_EPOCH = r"^-?\d{1,18}(\.\d{1,18})?(E\d{1,2})?\z"
_INTEGER = r"^[+-]?\d{1,19}\z"
# Java writes out as many digits as the exponent says, and its decimals take minutes for a million.
# So exponents have at most three digits, and numbers a thousand characters.
_NUMBER = r"^(?=.{1,1000}\z)[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\z"
_SAFE_DAYS = ("0001-01-03", "9999-12-30")
"""Days that are in the years 1 to 9999 in every time zone."""

_VARIANT = Scalar("variant")
SHOWN_CHARACTERS = 100
"""The length of the part of a bad value that its reason quotes."""

_AS_TEXT = frozenset({"date", "timestamp", "timestamp_ntz"})
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_FLOATS = frozenset({"float", "double"})


@dataclass(frozen=True)
class ValueConverter:
    """Converts parsed values: all of them from text (CSV), or only some types (JSON)."""

    all_text: bool
    epoch: str

    def parsed_type(self, data_type: DataType) -> DataType:
        """Returns the type that Spark's parser is given for a field of `data_type`."""
        match data_type:
            case Decimal():
                return STRING if self.all_text else _VARIANT
            case Scalar(name):
                if self.all_text or name in _AS_TEXT:
                    return STRING
                return Scalar("int") if name == "tinyint" else data_type
            case ArrayOf(element):
                return ArrayOf(self.parsed_type(element))
            case MapOf(key, value):
                return MapOf(key, self.parsed_type(value))
            case StructOf(fields):
                return StructOf(tuple(Field(f.name, self.parsed_type(f.type)) for f in fields))

    def value(self, parsed: Column, data_type: DataType) -> Column:
        """Returns the value; null if it does not fit, or contains a null that does not."""
        match data_type:
            case Decimal() as decimal:
                return _decimal(self._decimal_text(parsed), decimal)
            case Scalar(name):
                return self._scalar(parsed, name)
        if self.parsed_type(data_type) == data_type:
            return parsed
        match data_type:
            case ArrayOf(element):
                return fn.transform(parsed, lambda item: self.value(item, element))
            case MapOf(_, inner):
                return fn.transform_values(parsed, lambda _, item: self.value(item, inner))
            case StructOf(fields):
                struct = fn.struct(
                    *(self.value(parsed[f.name], f.type).alias(f.name) for f in fields)
                )
                return fn.when(parsed.isNotNull(), struct)

    def has_problem(self, parsed: Column, data_type: DataType) -> Column | None:
        """Returns whether there was a value that does not fit; None if every value does."""
        match data_type:
            case ArrayOf(element):
                if self._always_fits(element):
                    return None
                return fn.exists(parsed, lambda item: self._is_bad(item, element))
            case MapOf(_, inner):
                keys = fn.map_keys(parsed)
                has_repeated_key = fn.size(keys) != fn.size(fn.array_distinct(keys))
                if self._always_fits(inner):
                    return has_repeated_key
                items = fn.map_values(parsed)
                return has_repeated_key | fn.exists(items, lambda item: self._is_bad(item, inner))
            case StructOf(fields):
                problems = [self.has_problem(parsed[field.name], field.type) for field in fields]
                problems += [
                    self.value(parsed[field.name], field.type).isNull()
                    for field in fields
                    if field.is_required
                ]
                possible = [problem for problem in problems if problem is not None]
                return parsed.isNotNull() & is_any_true(possible) if possible else None
        if self._always_fits(data_type):
            return None
        text = self._decimal_text(parsed) if isinstance(data_type, Decimal) else parsed
        return text.isNotNull() & self.value(parsed, data_type).isNull()

    def _decimal_text(self, parsed: Column) -> Column:
        """Returns the text of a decimal; null also for a null inside a variant."""
        return parsed if self.all_text else fn.try_variant_get(parsed, "$", "string")

    def _is_bad(self, parsed: Column, data_type: DataType) -> Column:
        problem = self.has_problem(parsed, data_type)
        return fn.lit(False) if problem is None else fn.coalesce(problem, fn.lit(False))

    def _always_fits(self, data_type: DataType) -> bool:
        match data_type:
            case ArrayOf(element):
                return self._always_fits(element)
            case StructOf(fields):
                return all(self._always_fits(f.type) and not f.is_required for f in fields)
            case Scalar(name):
                return self.parsed_type(data_type) == data_type and name not in _FLOATS
        return False

    def _scalar(self, parsed: Column, name: str) -> Column:
        match name:
            case "timestamp":
                return _timestamp(parsed, self.epoch)
            case "timestamp_ntz":
                return fn.when(parsed.rlike(_LOCAL), parsed.try_cast("timestamp_ntz"))
            case "date":
                return fn.when(parsed.rlike(_DATE), parsed.try_cast("date"))
            case "tinyint" if not self.all_text:
                return parsed.try_cast("tinyint")
        if name in _FLOATS:
            number = parsed
            if self.all_text:
                number = fn.when(parsed.rlike(_NUMBER), parsed.try_cast(name))
            return fn.when(fn.abs(number) < float("inf"), number)
        if not self.all_text:
            return parsed
        if name in _INTEGERS:
            return fn.when(parsed.rlike(_INTEGER), parsed.try_cast(name))
        if name == "boolean":
            lower = fn.lower(parsed)
            return fn.when(lower == "true", True).when(lower == "false", False)
        return fn.try_to_binary(parsed, fn.lit("base64")) if name == "binary" else parsed


def field_problem(field: Field, text: Column, value: Column) -> Column:
    """Returns what is wrong with a field of this text and converted value; null if nothing is."""
    article = "an" if str(field.type)[0] in "ai" else "a"
    message = fn.concat(
        fn.lit(f"field {field.name}: "),
        fn.when(fn.trim(text) == "", "an empty text").otherwise(
            fn.substring(text, 1, SHOWN_CHARACTERS)
        ),
        fn.lit(f" is not {article} {field.type}"),
    )
    problem = fn.when(text.isNotNull() & value.isNull(), message)
    if field.is_required:
        return problem.when(value.isNull(), f"field {field.name} is missing or null")
    return problem


def is_any_true(conditions: list[Column]) -> Column:
    """Returns whether one of the conditions is true; null counts as false."""
    never_null = [fn.coalesce(condition, fn.lit(False)) for condition in conditions]
    return reduce(lambda a, b: a | b, never_null, fn.lit(False))


def _timestamp(text: Column, epoch: str) -> Column:
    micros = (text.try_cast("decimal(28,9)") * fn.lit(EPOCHS[epoch])).try_cast("bigint")
    # A zone written as +0200, or directly after the minutes: Spark reads neither.
    full = fn.regexp_replace(text, _NO_SECONDS, "$1:00$2")
    zoned = fn.when(text.rlike(_ODD_ZONE), fn.regexp_replace(full, _BASIC_ZONE, "$1:$2"))
    time = fn.coalesce(zoned, text).try_cast("timestamp")
    fits = text.between(*_SAFE_DAYS) | fn.unix_micros(time).between(FIRST_MICROS, LAST_MICROS)
    return fn.when(text.rlike(_TIMESTAMP) & fits, time).when(
        text.rlike(_EPOCH) & micros.between(FIRST_MICROS, LAST_MICROS),
        fn.timestamp_micros(micros),
    )


def _decimal(text: Column, decimal: Decimal) -> Column:
    """Returns the number; null also if digits after the point would be lost."""
    number = text.try_cast(str(decimal))
    more_digits = rf"^[+-]?\d*\.\d{{{decimal.scale}}}\d*[1-9]\d*\z"
    exact = fn.when(text.rlike("[eE]"), number.cast("double") == text.try_cast("double")).otherwise(
        ~text.rlike(more_digits)
    )
    return fn.when(text.rlike(_NUMBER) & exact, number)
