"""Column types: those of new tables, and those that are allowed in existing tables."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from sqlalchemy import types as sql
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database.names import DatabaseKind
from penstock.spark.sinks.database.rows import is_bytes, is_nested, is_text, value_type

SqlType: TypeAlias = TypeEngine[Any]
"""The type of SQLAlchemy, without the Python type of its values."""

SQLITE_EXACT_DIGITS: Final = 15
"""Decimals with at most so many digits are numbers in SQLite; others are text."""

_MYSQL_KEY_BYTES: Final = 3072
_MYSQL_SCALE: Final = 30
_LONGEST_KEY: Final = 255


def type_for(field: pa.Field, kind: DatabaseKind, key_types: Sequence[pa.DataType] = ()) -> SqlType:
    """Returns the type of a column in a new table.

    `key_types` are the types of the whole key if the column is a part of it: MySQL limits the
    length of keys.
    """
    arrow_type = value_type(field.type)
    if is_nested(arrow_type):
        return (
            postgresql.JSONB() if kind is DatabaseKind.POSTGRESQL else _long_text(kind, json=True)
        )
    if is_text(arrow_type) or is_bytes(arrow_type):
        length = _key_length(key_types) if kind is DatabaseKind.MYSQL and key_types else 0
        if is_bytes(arrow_type):
            if length:
                return mysql.VARBINARY(length)
            return mysql.LONGBLOB() if kind is DatabaseKind.MYSQL else sql.LargeBinary()
        return sql.String(length) if length else _long_text(kind)
    if pa.types.is_decimal(arrow_type):
        return _decimal(field, kind)
    if pa.types.is_timestamp(arrow_type):
        if kind is DatabaseKind.MYSQL:
            return mysql.DATETIME(fsp=6)
        return sql.DateTime(timezone=arrow_type.tz is not None)
    if pa.types.is_time(arrow_type):
        return mysql.TIME(fsp=6) if kind is DatabaseKind.MYSQL else sql.Time()
    if pa.types.is_date(arrow_type):
        return sql.Date()
    if pa.types.is_boolean(arrow_type):
        return sql.Boolean()
    if pa.types.is_float32(arrow_type):
        return mysql.FLOAT() if kind is DatabaseKind.MYSQL else sql.REAL()
    if pa.types.is_float64(arrow_type):
        return sql.REAL() if kind is DatabaseKind.SQLITE else sql.Double()
    if pa.types.is_int8(arrow_type) and kind is DatabaseKind.MYSQL:
        return mysql.TINYINT()
    if pa.types.is_int8(arrow_type) or pa.types.is_int16(arrow_type):
        return sql.SmallInteger()
    if pa.types.is_int32(arrow_type):
        return sql.Integer()
    # Integers of 64 bits, and durations in microseconds.
    return sql.BigInteger()


def _long_text(kind: DatabaseKind, *, json: bool = False) -> SqlType:
    if kind is not DatabaseKind.MYSQL:
        return sql.Text()
    return mysql.JSON() if json else mysql.LONGTEXT()


def _key_length(key_types: Sequence[pa.DataType]) -> int:
    """Returns the maximum length of each text in a key, at four bytes per character."""
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
            f"{_MYSQL_SCALE} digits after the point",
            remedy="cast it in the query",
        )
    return sql.DECIMAL(precision, scale)


def type_mismatch(arrow_type: pa.DataType, sql_type: SqlType, kind: DatabaseKind) -> str | None:
    """Returns why values of this type do not fit an existing column; None if they do.

    Unknown column types are left to the database.
    """
    arrow_type = value_type(arrow_type)
    if isinstance(sql_type, sql.NullType) or not isinstance(sql_type, _KNOWN):
        return None
    if (
        kind is DatabaseKind.SQLITE
        and isinstance(sql_type, sql.String)
        and not is_bytes(arrow_type)
    ):
        # SQLite stores types that it lacks as text; numbers would be read as text.
        number = pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type)
        return (
            _cast_advice(arrow_type, sql_type)
            if number or pa.types.is_boolean(arrow_type)
            else None
        )
    if pa.types.is_decimal(arrow_type):
        return _decimal_mismatch(arrow_type, sql_type, kind)
    if pa.types.is_floating(arrow_type):
        return _float_mismatch(arrow_type, sql_type, kind)
    return (
        None
        if isinstance(sql_type, _allowed(arrow_type, kind))
        else _cast_advice(arrow_type, sql_type)
    )


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


def _allowed(arrow_type: pa.DataType, kind: DatabaseKind) -> tuple[type[SqlType], ...]:
    if is_nested(arrow_type):
        return (sql.JSON, sql.String)
    if is_text(arrow_type):
        return (sql.String, sql.JSON, sql.Uuid)
    if is_bytes(arrow_type):
        return (sql._Binary,)
    if pa.types.is_timestamp(arrow_type):
        return (sql.DateTime,)
    if pa.types.is_date(arrow_type):
        return (sql.Date, sql.DateTime)
    if pa.types.is_time(arrow_type):
        return (sql.Time,)
    if pa.types.is_boolean(arrow_type):
        return (sql.Boolean,) if kind is DatabaseKind.POSTGRESQL else (sql.Boolean, sql.Integer)
    return (sql.Integer, sql.Numeric)


def _decimal_mismatch(arrow_type: pa.DataType, sql_type: SqlType, kind: DatabaseKind) -> str | None:
    if not isinstance(sql_type, sql.Numeric) or isinstance(sql_type, sql.Float):
        return _cast_advice(arrow_type, sql_type)
    if kind is DatabaseKind.SQLITE and arrow_type.precision > SQLITE_EXACT_DIGITS:
        return (
            f"it has up to {arrow_type.precision} digits, of which SQLite stores "
            f"{SQLITE_EXACT_DIGITS} in a number: make the column TEXT, or cast it in the query"
        )
    if (
        sql_type.scale is not None
        and sql_type.precision is not None
        and sql_type.scale < arrow_type.scale
    ):
        return (
            f"it has {arrow_type.scale} digits after the point and the column {sql_type.scale}: "
            "the rest would be rounded. Cast it in the query: "
            f"CAST(… AS DECIMAL({arrow_type.precision}, {sql_type.scale}))"
        )
    return None


def _float_mismatch(arrow_type: pa.DataType, sql_type: SqlType, kind: DatabaseKind) -> str | None:
    if isinstance(sql_type, sql.Float):
        single = (sql.REAL, mysql.FLOAT) if kind is DatabaseKind.POSTGRESQL else (mysql.FLOAT,)
        short = kind is not DatabaseKind.SQLITE and isinstance(sql_type, single)
        return (
            _cast_advice(arrow_type, sql_type)
            if short and pa.types.is_float64(arrow_type)
            else None
        )
    exact = isinstance(sql_type, sql.Numeric) and (
        sql_type.scale is None or kind is DatabaseKind.SQLITE
    )
    return None if exact else _cast_advice(arrow_type, sql_type)


def _cast_advice(arrow_type: pa.DataType, sql_type: SqlType) -> str:
    return (
        f"its values are {arrow_type} and the column is {sql_type!r}: cast them in the query, or "
        "change the column"
    )
