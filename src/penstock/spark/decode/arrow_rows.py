"""Formats that Python decodes: a batch of values becomes one Arrow struct, bad records included."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from penstock.spark.decode.datatypes import (
    ArrayOf,
    DataType,
    Decimal,
    Field,
    MapOf,
    Scalar,
    StructOf,
)

Read: TypeAlias = Callable[[bytes], Mapping[str, object]]
"""The fields of a value, as Arrow takes them. Whatever it raises is the reason of a dead letter."""

_SCALARS = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_LONGEST_REASON = 400
"""Characters: libraries may quote the whole value."""
_FIRST_MICROS = -62_135_596_800_000_000
_LAST_MICROS = 253_402_300_799_999_999
_DAY = 86_400_000_000


def arrow_type(kind: DataType) -> pa.DataType:
    """As Spark's own conversion has it, time zone UTC."""
    match kind:
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Scalar(name):
            return _SCALARS[name]
        case ArrayOf(element):
            return pa.list_(pa.field("element", arrow_type(element)))
        case MapOf(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case StructOf(fields):
            return pa.struct([(each.name, arrow_type(each.type)) for each in fields])


def decoded_batch(
    values: pa.Array, read: Read, fields: tuple[Field, ...], reason_name: str, format_name: str
) -> pa.StructArray:
    """A struct for each value: the fields, then the reason if it is bad."""
    types = [arrow_type(each.type) for each in fields]
    rows: list[Mapping[str, object]] = []
    reasons: list[str | None] = []
    required = [each.name for each in fields if each.is_required]
    for value in values.to_pylist():
        row: Mapping[str, object] = {}
        reason = None
        if value is not None:
            try:
                row = read(value)
                reason = _missing(row, required)
            except Exception as problem:  # noqa: BLE001  (a bad record must not end the job)
                reason = reason_of(problem, format_name)
        rows.append({} if reason else row)
        reasons.append(reason)
    try:
        columns = _columns(rows, fields, types)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        _blame(rows, reasons, fields, types)
        columns = _columns(rows, fields, types)
    return pa.StructArray.from_arrays(
        [*columns, pa.array(reasons, pa.string())], [*(each.name for each in fields), reason_name]
    )


def reason_of(problem: Exception, format_name: str) -> str:
    """In words; libraries often raise what only says where they stopped."""
    if isinstance(problem, EOFError | IndexError):
        return f"not this {format_name} message: the value ends too early"
    told = f"not this {format_name} message: {str(problem) or type(problem).__name__}"
    return told[:_LONGEST_REASON]


def micros(value: int) -> int:
    """Microseconds since 1970; `ValueError` beyond the years 1 to 9999."""
    if not _FIRST_MICROS <= value <= _LAST_MICROS:
        raise ValueError(f"a timestamp of {value} µs is not between the years 1 and 9999")
    return value


def days(value: int) -> int:
    """Days since 1970; `ValueError` beyond the years 1 to 9999."""
    micros(value * _DAY)
    return value


def _missing(row: Mapping[str, object], required: Sequence[str]) -> str | None:
    missing = [name for name in required if row.get(name) is None]
    return "; ".join(f"field {name} is missing or null" for name in missing) or None


def _columns(
    rows: Sequence[Mapping[str, object]], fields: tuple[Field, ...], types: list[pa.DataType]
) -> list[pa.Array]:
    return [
        pa.array([row.get(each.name) for row in rows], kind)
        for each, kind in zip(fields, types, strict=True)
    ]


def _blame(
    rows: list[Mapping[str, object]],
    reasons: list[str | None],
    fields: tuple[Field, ...],
    types: list[pa.DataType],
) -> None:
    """Finds the rows with a value that does not fit; they are bad, the others are not."""
    for index, row in enumerate(rows):
        for each, kind in zip(fields, types, strict=True):
            try:
                pa.array([row.get(each.name)], kind)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as problem:
                reasons[index] = f"field {each.name}: {problem}"[:_LONGEST_REASON]
                rows[index] = {}
                break
