"""Prepares rows for a table: converts them to types that databases have, and resolves keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import PipelineError

DELETE_COLUMN: Final = "__penstock_delete"
"""A boolean column: the row deletes the row with its key."""

_ORDER: Final = "__penstock_order"


@dataclass(frozen=True)
class TableChanges:
    """The changes of a batch to a table. Each key occurs once, in one of the two."""

    puts: pa.Table
    deletes: pa.Table | None = None
    """The keys of the rows to delete."""

    @property
    def rows(self) -> int:
        deleted = self.deletes.num_rows if self.deletes is not None else 0
        return int(self.puts.num_rows + deleted)


def simple_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the schema of the result of `to_simple_types`."""
    return pa.schema(
        [pa.field(column.name, simple_type(column), column.nullable) for column in schema]
    )


def simple_type(field: pa.Field) -> pa.DataType:
    """Returns the type to which a column is converted; nested types become JSON, which is text.

    Raises `PipelineError` for a type that no database has.
    """
    kind = value_type(field.type)
    if is_nested(kind):
        if (field.metadata or {}).get(b"variant") or _is_variant(kind):
            raise PipelineError(
                f"the column {field.name} is a VARIANT, which no database can store",
                remedy=f"convert it to text in the query: to_json({field.name})",
            )
        _check_map_keys(field.name, kind)
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_duration(kind):
        return pa.int64()
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_decimal128(kind)
        or is_text(kind)
        or is_bytes(kind)
    ):
        return kind
    hint = "it is NULL in every row" if pa.types.is_null(kind) else f"its type is {kind}"
    raise PipelineError(
        f"the column {field.name} cannot be stored: {hint}",
        remedy=f"cast it in the query: CAST({field.name} AS STRING)",
    )


def value_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of the values, also of a dictionary-encoded column."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def _is_variant(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_struct(kind)
        and any((field.metadata or {}).get(b"variant") == b"true" for field in kind)
    )


def _check_map_keys(name: str, kind: pa.DataType) -> None:
    """Raises `PipelineError` if the type contains a map whose keys cannot be names in JSON."""
    if pa.types.is_map(kind):
        key = kind.key_type
        if is_nested(key) or pa.types.is_boolean(key) or pa.types.is_decimal(key):
            raise PipelineError(
                f"the column {name} has a map whose keys are {key}, and JSON has names only",
                remedy="cast them to STRING in the query (transform_keys)",
            )
    for number in range(kind.num_fields):
        _check_map_keys(name, kind.field(number).type)


def to_simple_types(rows: pa.Table) -> pa.Table:
    """Returns the rows in simple types: nested values as JSON, times in UTC and microseconds."""
    repeated = {name for name in rows.column_names if rows.column_names.count(name) > 1}
    if repeated:
        raise PipelineError(
            f"there are several columns {', '.join(sorted(repeated))}",
            remedy="rename them in the query",
        )
    schema = simple_schema(rows.schema)
    columns = [
        _simple_column(column, old, new)
        for column, old, new in zip(rows.columns, rows.schema, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _simple_column(column: pa.ChunkedArray, old: pa.Field, new: pa.Field) -> pa.ChunkedArray:
    if old.type == new.type:
        return column
    if is_nested(old.type):
        return _as_json(column, old)
    if pa.types.is_duration(old.type):
        column = column.cast(pa.duration("us"))
    try:
        return column.cast(new.type)
    except pa.ArrowInvalid as error:
        raise PipelineError(
            f"the column {old.name} is finer than microseconds, which databases are not: {error}. "
            "Round it in the query"
        ) from error


def _as_json(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Returns JSON: maps as objects, decimals as numbers, bytes in base64, NaN as null."""
    encoder = msgspec.json.Encoder(decimal_format="number")
    chunks = []
    for chunk in column.chunks:
        try:
            values = chunk.to_pylist(maps_as_pydicts="strict")
        except (KeyError, ValueError, OverflowError) as error:
            # Two map entries or fields with the same name, or years that Python lacks.
            raise PipelineError(
                f"the column {field.name} cannot be written as JSON: {error}. Nothing of the "
                "batch was stored",
                remedy="change it in the query",
            ) from error
        texts = [None if value is None else encoder.encode(value).decode() for value in values]
        chunks.append(pa.array(texts, pa.string()))
    return pa.chunked_array(chunks, pa.string())


def resolve_changes(
    rows: pa.Table, key: Sequence[str], order_by: Sequence[str], *, append: bool = False
) -> TableChanges:
    """Returns the changes of a batch; of rows with the same key the last by `order_by` counts.

    The rows have simple types. Raises `PipelineError` for a NULL key, and for rows with the same
    key if there is no `order_by`.
    """
    if append:
        return TableChanges(rows)
    check_keys(rows, key)
    rows = _last_of_each_key(rows, key, order_by)
    if DELETE_COLUMN not in rows.column_names:
        return TableChanges(rows)
    deleted = pc.fill_null(rows[DELETE_COLUMN], False)
    puts = rows.filter(pc.invert(deleted)).drop_columns([DELETE_COLUMN])
    return TableChanges(puts, rows.filter(deleted).select(list(key)))


def check_keys(rows: pa.Table, key: Sequence[str]) -> None:
    """Raises `PipelineError` if a key column is NULL."""
    for name in key:
        count = rows[name].null_count
        if count:
            raise PipelineError(
                f"the key column {name} is NULL in {count} of {rows.num_rows} rows, and a row "
                "without a key cannot be found again. Nothing of the batch was stored",
                remedy=f"leave such rows out in the query (WHERE {name} IS NOT NULL), or fill "
                "them with coalesce",
            )


def _last_of_each_key(rows: pa.Table, key: Sequence[str], order_by: Sequence[str]) -> pa.Table:
    numbered = pa.table(
        [*(rows[name] for name in key), pa.array(range(rows.num_rows), pa.int64())],
        names=[*(f"k{number}" for number in range(len(key))), _ORDER],
    )
    keys = numbered.column_names[:-1]
    if not order_by:
        counted = numbered.group_by(keys).aggregate([(_ORDER, "count")])
        if counted.num_rows != rows.num_rows:
            raise duplicate_key_error(_example_of_duplicate(counted, key))
        return rows
    # Newest first; Arrow sorts NULL last. Of equal rows, the last one in the batch is first.
    sort_columns = [*_sort_columns(rows, order_by), numbered[_ORDER]]
    names = [str(number) for number in range(len(sort_columns))]
    newest = pa.table(sort_columns, names=names)
    order = pc.sort_indices(newest, [(name, "descending") for name in newest.column_names])
    numbered = numbered.select(keys).take(order).append_column(_ORDER, numbered[_ORDER])
    first = numbered.group_by(keys).aggregate([(_ORDER, "min")])
    if first.num_rows == rows.num_rows:
        return rows
    return rows.take(order.take(first[f"{_ORDER}_min"]))


def _sort_columns(rows: pa.Table, order_by: Sequence[str]) -> Iterator[pa.ChunkedArray]:
    """Yields columns by which Arrow sorts rows as Spark does: NaN is the largest number."""
    for name in order_by:
        if pa.types.is_floating(rows.schema.field(name).type):
            yield pc.is_nan(rows[name])
        yield rows[name]


def _example_of_duplicate(counted: pa.Table, key: Sequence[str]) -> str:
    repeated = counted.filter(pc.greater(counted[f"{_ORDER}_count"], 1)).slice(0, 1)
    values = [repeated[f"k{number}"][0].as_py() for number in range(len(key))]
    return ", ".join(f"{name} = {value!r}" for name, value in zip(key, values, strict=True))


def duplicate_key_error(example: str) -> PipelineError:
    """Returns the error for rows with the same key and no `order_by`."""
    return PipelineError(
        f"several rows of the batch have the same key ({example}), and nothing says which of them "
        "counts. Nothing of the batch was stored",
        remedy="set `order_by` of the sink to the columns that say which is the newest (an "
        "`updated_at`, or `_offset` where all rows of a key come from one partition), or "
        "aggregate by the key in the query",
    )
