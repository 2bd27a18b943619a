"""From what Spark's parsers give to the values of fields, strictly, as expressions in the JVM.

Spark's own conversions are kind: 200 becomes -56 in a tinyint, 1.239 becomes 1.24 in a
decimal(3,2), 1e400 infinite, "10:00" a timestamp of today, a number a count of seconds. So these
types are parsed as text (or a wider number) and converted here: what does not fit is null, and
`problem` tells it from what was null before. Decimals of JSON are parsed as variants, which keep
all their digits; as text they would go through a double.
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
from penstock.spark.decode.options import EPOCHS

_DAY = r"(?!0000)\d{4}-\d{2}-\d{2}"
_CLOCK = r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
# Java's `$` would let a line break pass behind the value.
_DATE = rf"^{_DAY}\z"
_LOCAL = rf"^{_DAY}({_CLOCK})?\z"
_TIMESTAMP = rf"^{_DAY}({_CLOCK}(Z|[+-]\d{{2}}(:?\d{{2}})?)?)?\z"
_BASIC_ZONE = r"([+-]\d{2})(\d{2})$"
_NO_SECONDS = r"([T ]\d{2}:\d{2})(Z|[+-].*)$"
_ODD_ZONE = r"[+-]\d{4}$|[T ]\d{2}:\d{2}(Z|[+-])"
_EPOCH = r"^-?\d{1,18}(\.\d{1,18})?(E\d{1,2})?\z"
_INTEGER = r"^[+-]?\d{1,19}\z"
# A larger exponent would make Java write out as many digits, and its decimals take minutes for a
# million of them: numbers of JSON may have a thousand.
_NUMBER = r"^(?=.{1,1000}\z)[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\z"
_FIRST_MICROS = -62_135_596_800_000_000
_LAST_MICROS = 253_402_300_799_999_999
"""The years 1 to 9999: others have no date in Python and in most databases."""
_WITHIN = ("0001-01-03", "9999-12-30")
"""Days that are in these years in every time zone."""

_VARIANT = Scalar("variant")
SHOWN = 100
"""Characters of a bad value that its reason shows."""

_AS_TEXT = frozenset({"date", "timestamp", "timestamp_ntz"})
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_FLOATS = frozenset({"float", "double"})


@dataclass(frozen=True)
class Values:
    """How values are read: all of them from text (CSV), or only some (JSON)."""

    all_text: bool
    epoch: str

    def parsed_as(self, kind: DataType) -> DataType:
        """The type that the parser is told."""
        match kind:
            case Decimal():
                return STRING if self.all_text else _VARIANT
            case Scalar(name):
                if self.all_text or name in _AS_TEXT:
                    return STRING
                return Scalar("int") if name == "tinyint" else kind
            case ArrayOf(element):
                return ArrayOf(self.parsed_as(element))
            case MapOf(key, value):
                return MapOf(key, self.parsed_as(value))
            case StructOf(fields):
                return StructOf(tuple(Field(e.name, self.parsed_as(e.type)) for e in fields))

    def value(self, parsed: Column, kind: DataType) -> Column:
        """The value; null if it does not fit, or holds a null that does not."""
        match kind:
            case Decimal() as decimal:
                return _decimal(self._text(parsed), decimal)
            case Scalar(name):
                return self._scalar(parsed, name)
        if self.parsed_as(kind) == kind:
            return parsed
        match kind:
            case ArrayOf(element):
                return fn.transform(parsed, lambda each: self.value(each, element))
            case MapOf(_, inner):
                return fn.transform_values(parsed, lambda _, each: self.value(each, inner))
            case StructOf(fields):
                made = fn.struct(
                    *(self.value(parsed[e.name], e.type).alias(e.name) for e in fields)
                )
                return fn.when(parsed.isNotNull(), made)

    def problem(self, parsed: Column, kind: DataType) -> Column | None:
        """Whether there was a value that does not fit; None if that cannot be."""
        match kind:
            case ArrayOf(element):
                if self._cannot_fail(element):
                    return None
                return fn.exists(parsed, lambda each: self._is_bad(each, element))
            case MapOf(_, inner):
                keys = fn.map_keys(parsed)
                repeated = fn.size(keys) != fn.size(fn.array_distinct(keys))
                if self._cannot_fail(inner):
                    return repeated
                bad = fn.exists(fn.map_values(parsed), lambda each: self._is_bad(each, inner))
                return repeated | bad
            case StructOf(fields):
                found = [self.problem(parsed[each.name], each.type) for each in fields]
                found += [
                    self.value(parsed[each.name], each.type).isNull()
                    for each in fields
                    if each.is_required
                ]
                problems = [each for each in found if each is not None]
                if not problems:
                    return None
                return parsed.isNotNull() & any_of(problems)
        if self._cannot_fail(kind):
            return None
        given = self._text(parsed) if isinstance(kind, Decimal) else parsed
        return given.isNotNull() & self.value(parsed, kind).isNull()

    def _text(self, parsed: Column) -> Column:
        """Of a decimal. A null inside of a variant is null here."""
        return parsed if self.all_text else fn.try_variant_get(parsed, "$", "string")

    def _is_bad(self, parsed: Column, kind: DataType) -> Column:
        problem = self.problem(parsed, kind)
        return fn.lit(False) if problem is None else fn.coalesce(problem, fn.lit(False))

    def _cannot_fail(self, kind: DataType) -> bool:
        match kind:
            case ArrayOf(element):
                return self._cannot_fail(element)
            case StructOf(fields):
                return all(self._cannot_fail(e.type) and not e.is_required for e in fields)
            case Scalar(name):
                return self.parsed_as(kind) == kind and name not in _FLOATS
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


def misfit(field: Field, given: Column, value: Column) -> Column:
    """What is wrong with a field whose text and value are these; null if nothing is."""
    article = "an" if str(field.type)[0] in "ai" else "a"
    told = fn.concat(
        fn.lit(f"field {field.name}: "),
        fn.when(fn.trim(given) == "", "an empty text").otherwise(fn.substring(given, 1, SHOWN)),
        fn.lit(f" is not {article} {field.type}"),
    )
    problem = fn.when(given.isNotNull() & value.isNull(), told)
    if field.is_required:
        return problem.when(value.isNull(), f"field {field.name} is missing or null")
    return problem


def any_of(conditions: list[Column]) -> Column:
    """Whether one of them is true; null is not."""
    known = [fn.coalesce(each, fn.lit(False)) for each in conditions]
    return reduce(lambda a, b: a | b, known, fn.lit(False))


def _timestamp(text: Column, epoch: str) -> Column:
    micros = (text.try_cast("decimal(28,9)") * fn.lit(EPOCHS[epoch])).try_cast("bigint")
    # The zone as +0200, or behind the minutes: Spark reads neither.
    full = fn.regexp_replace(text, _NO_SECONDS, "$1:00$2")
    zoned = fn.when(text.rlike(_ODD_ZONE), fn.regexp_replace(full, _BASIC_ZONE, "$1:$2"))
    found = fn.coalesce(zoned, text).try_cast("timestamp")
    fits = text.between(*_WITHIN) | fn.unix_micros(found).between(_FIRST_MICROS, _LAST_MICROS)
    return fn.when(text.rlike(_TIMESTAMP) & fits, found).when(
        text.rlike(_EPOCH) & micros.between(_FIRST_MICROS, _LAST_MICROS),
        fn.timestamp_micros(micros),
    )


def _decimal(text: Column, kind: Decimal) -> Column:
    """Null also where digits behind the point would be lost."""
    number = text.try_cast(str(kind))
    more_digits = rf"^[+-]?\d*\.\d{{{kind.scale}}}\d*[1-9]\d*\z"
    exact = fn.when(text.rlike("[eE]"), number.cast("double") == text.try_cast("double")).otherwise(
        ~text.rlike(more_digits)
    )
    return fn.when(text.rlike(_NUMBER) & exact, number)
