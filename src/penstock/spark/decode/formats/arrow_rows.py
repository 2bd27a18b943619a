"""Decoding in Python: a batch of values becomes an Arrow struct, with a reason for bad ones."""

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

ValueReader: TypeAlias = Callable[[bytes], Mapping[str, object]]
"""Returns the fields of a value, as Arrow accepts them. Raises any exception for a bad value."""

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
_MAX_REASON_LENGTH = 400
"""In characters: some libraries quote the whole value."""
FIRST_MICROS = -62_135_596_800_000_000
LAST_MICROS = 253_402_300_799_999_999
"""The years 1 to 9999: Python and most databases have no dates outside of them."""
_DAY_MICROS = 86_400_000_000
_MISFIT_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def arrow_type(data_type: DataType) -> pa.DataType:
    """Returns the type that Spark's own conversion uses, with the time zone UTC."""
    match data_type:
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Scalar(name):
            return _SCALARS[name]
        case ArrayOf(element):
            return pa.list_(pa.field("element", arrow_type(element)))
        case MapOf(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case StructOf(fields):
            return pa.struct([(field.name, arrow_type(field.type)) for field in fields])


def decode_batch(
    values: pa.Array,
    read: ValueReader,
    fields: tuple[Field, ...],
    reason_name: str,
    format_name: str,
) -> pa.StructArray:
    """Returns a struct for each value: its fields, then the reason if the value is bad."""
    types = [arrow_type(field.type) for field in fields]
    rows: list[Mapping[str, object]] = []
    reasons: list[str | None] = []
    required = [field.name for field in fields if field.is_required]
    for value in values.to_pylist():
        row: Mapping[str, object] = {}
        reason = None
        if value is not None:
            try:
                row = read(value)
                reason = _missing_fields(row, required)
            except Exception as error:  # noqa: BLE001  (a bad record must not end the job)
                reason = reason_for(error, format_name)
        rows.append({} if reason else row)
        reasons.append(reason)
    try:
        columns = _columns(rows, fields, types)
    except _MISFIT_ERRORS:
        _reject_misfits(rows, reasons, fields, types)
        columns = _columns(rows, fields, types)
    return pa.StructArray.from_arrays(
        [*columns, pa.array(reasons, pa.string())], [*(field.name for field in fields), reason_name]
    )


def reason_for(error: Exception, format_name: str) -> str:
    """Returns the reason of a dead letter; libraries often only report where they stopped."""
    if isinstance(error, EOFError | IndexError):
        return f"not this {format_name} message: the value ends too early"
    reason = f"not this {format_name} message: {str(error) or type(error).__name__}"
    return reason[:_MAX_REASON_LENGTH]


def check_micros(micros: int) -> int:
    """Returns the microseconds since 1970. Raises `ValueError` outside of the years 1 to 9999."""
    if not FIRST_MICROS <= micros <= LAST_MICROS:
        raise ValueError(f"a timestamp of {micros} µs is not between the years 1 and 9999")
    return micros


def check_days(days: int) -> int:
    """Returns the days since 1970. Raises `ValueError` outside of the years 1 to 9999."""
    check_micros(days * _DAY_MICROS)
    return days


def _missing_fields(row: Mapping[str, object], required: Sequence[str]) -> str | None:
    missing = [name for name in required if row.get(name) is None]
    return "; ".join(f"field {name} is missing or null" for name in missing) or None


def _columns(
    rows: Sequence[Mapping[str, object]], fields: tuple[Field, ...], types: list[pa.DataType]
) -> list[pa.Array]:
    return [
        pa.array([row.get(field.name) for row in rows], arrow)
        for field, arrow in zip(fields, types, strict=True)
    ]


def _reject_misfits(
    rows: list[Mapping[str, object]],
    reasons: list[str | None],
    fields: tuple[Field, ...],
    types: list[pa.DataType],
) -> None:
    """Empties the rows that have a value that does not fit, and sets their reasons."""
    for index, row in enumerate(rows):
        for field, arrow in zip(fields, types, strict=True):
            try:
                pa.array([row.get(field.name)], arrow)
            except _MISFIT_ERRORS as error:
                reasons[index] = f"field {field.name}: {error}"[:_MAX_REASON_LENGTH]
                rows[index] = {}
                break
