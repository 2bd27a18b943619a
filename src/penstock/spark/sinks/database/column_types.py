"""Which type a column gets in a table that we make, and which it may have in one that is there."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from sqlalchemy import types as sql
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database.engines import DatabaseKind
from penstock.spark.sinks.database.rows import is_bytes, is_nested, is_text, value_type

SqlType: TypeAlias = TypeEngine[Any]
"""What a column gives back is not said by these types."""

SQLITE_EXACT_DIGITS: Final = 15
"""Decimals with no more digits are numbers in SQLite, exact when rounded; others are text."""

_MYSQL_KEY_BYTES: Final = 3072
_MYSQL_SCALE: Final = 30
_LONGEST_KEY: Final = 255


def type_for(field: pa.Field, kind: DatabaseKind, key_types: Sequence[pa.DataType] = ()) -> SqlType:
    """The type in a table that is made for a frame.

    `key_types` are given for a column of the key: MySQL must know how long its text can be.
    """
    found = value_type(field.type)
    if is_nested(found):
        return (
            postgresql.JSONB() if kind is DatabaseKind.POSTGRESQL else _long_text(kind, json=True)
        )
    if is_text(found) or is_bytes(found):
        length = _key_length(key_types) if kind is DatabaseKind.MYSQL and key_types else 0
        if is_bytes(found):
            if length:
                return mysql.VARBINARY(length)
            return mysql.LONGBLOB() if kind is DatabaseKind.MYSQL else sql.LargeBinary()
        return sql.String(length) if length else _long_text(kind)
    if pa.types.is_decimal(found):
        return _decimal(field, kind)
    if pa.types.is_timestamp(found):
        if kind is DatabaseKind.MYSQL:
            return mysql.DATETIME(fsp=6)
        return sql.DateTime(timezone=found.tz is not None)
    if pa.types.is_time(found):
        return mysql.TIME(fsp=6) if kind is DatabaseKind.MYSQL else sql.Time()
    if pa.types.is_date(found):
        return sql.Date()
    if pa.types.is_boolean(found):
        return sql.Boolean()
    if pa.types.is_float32(found):
        return mysql.FLOAT() if kind is DatabaseKind.MYSQL else sql.REAL()
    if pa.types.is_float64(found):
        return sql.REAL() if kind is DatabaseKind.SQLITE else sql.Double()
    if pa.types.is_int8(found) and kind is DatabaseKind.MYSQL:
        return mysql.TINYINT()
    if pa.types.is_int8(found) or pa.types.is_int16(found):
        return sql.SmallInteger()
    if pa.types.is_int32(found):
        return sql.Integer()
    # Whole numbers of 64 bits, and durations in microseconds.
    return sql.BigInteger()


def _long_text(kind: DatabaseKind, *, json: bool = False) -> SqlType:
    if kind is not DatabaseKind.MYSQL:
        return sql.Text()
    return mysql.JSON() if json else mysql.LONGTEXT()


def _key_length(key_types: Sequence[pa.DataType]) -> int:
    """Characters of each text in a key, four bytes each."""
    texts = sum(is_text(key_type) or is_bytes(key_type) for key_type in key_types)
    rest = _MYSQL_KEY_BYTES - 32 * (len(key_types) - texts)
    return min(_LONGEST_KEY, rest // 4 // texts)


def _decimal(field: pa.Field, kind: DatabaseKind) -> SqlType:
    precision, scale = field.type.precision, field.type.scale
    if kind is DatabaseKind.SQLITE and precision > SQLITE_EXACT_DIGITS:
        return sql.Text()
    if kind is DatabaseKind.MYSQL and scale > _MYSQL_SCALE:
        raise PipelineError(
            f"the column {field.name} is DECIMAL({precision}, {scale}), and MySQL keeps "
            f"{_MYSQL_SCALE} digits after the point: cast it in the query"
        )
    return sql.DECIMAL(precision, scale)


def type_mismatch(found: pa.DataType, there: SqlType, kind: DatabaseKind) -> str | None:
    """Why values of this type cannot go into a column that is there; None if they can.

    Types that we do not know are left to the database.
    """
    found = value_type(found)
    if isinstance(there, sql.NullType) or not isinstance(there, _KNOWN):
        return None
    if kind is DatabaseKind.SQLITE and isinstance(there, sql.String) and not is_bytes(found):
        # What SQLite has no type for is kept as text; numbers would come back as text.
        number = pa.types.is_integer(found) or pa.types.is_floating(found)
        return _cast(found, there) if number or pa.types.is_boolean(found) else None
    if pa.types.is_decimal(found):
        return _decimal_mismatch(found, there, kind)
    if pa.types.is_floating(found):
        return _float_mismatch(found, there, kind)
    return None if isinstance(there, _allowed(found, kind)) else _cast(found, there)


_KNOWN: Final = (
    sql.String,
    sql.Integer,
    sql.Numeric,
    sql.Float,
    sql.Boolean,
    sql._Binary,
    sql.Date,
    sql.DateTime,
    sql.Time,
    sql.JSON,
    sql.Uuid,
)


def _allowed(found: pa.DataType, kind: DatabaseKind) -> tuple[type[SqlType], ...]:
    if is_nested(found):
        return (sql.JSON, sql.String)
    if is_text(found):
        return (sql.String, sql.JSON, sql.Uuid)
    if is_bytes(found):
        return (sql._Binary,)
    if pa.types.is_timestamp(found):
        return (sql.DateTime,)
    if pa.types.is_date(found):
        return (sql.Date, sql.DateTime)
    if pa.types.is_time(found):
        return (sql.Time,)
    if pa.types.is_boolean(found):
        return (sql.Boolean,) if kind is DatabaseKind.POSTGRESQL else (sql.Boolean, sql.Integer)
    return (sql.Integer, sql.Numeric)


def _decimal_mismatch(found: pa.DataType, there: SqlType, kind: DatabaseKind) -> str | None:
    if not isinstance(there, sql.Numeric) or isinstance(there, sql.Float):
        return _cast(found, there)
    if kind is DatabaseKind.SQLITE and found.precision > SQLITE_EXACT_DIGITS:
        return (
            f"it has up to {found.precision} digits, of which SQLite keeps {SQLITE_EXACT_DIGITS} "
            "in a number: make the column TEXT, or cast to fewer in the query"
        )
    if there.scale is not None and there.precision is not None and there.scale < found.scale:
        return (
            f"it has {found.scale} digits after the point and the column {there.scale}: the rest "
            f"would be rounded away. Say so in the query: "
            f"CAST(… AS DECIMAL({found.precision}, {there.scale}))"
        )
    return None


def _float_mismatch(found: pa.DataType, there: SqlType, kind: DatabaseKind) -> str | None:
    if isinstance(there, sql.Float):
        single = (sql.REAL, mysql.FLOAT) if kind is DatabaseKind.POSTGRESQL else (mysql.FLOAT,)
        short = kind is not DatabaseKind.SQLITE and isinstance(there, single)
        return _cast(found, there) if short and pa.types.is_float64(found) else None
    exact = isinstance(there, sql.Numeric) and (there.scale is None or kind is DatabaseKind.SQLITE)
    return None if exact else _cast(found, there)


def _cast(found: pa.DataType, there: SqlType) -> str:
    return (
        f"its values are {found} and the column is {there!r}: cast them in the query, or change "
        "the column"
    )
