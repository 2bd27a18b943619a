"""The result table: created for the first rows, or checked if it exists."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import Column, Connection, Engine, MetaData, Table, inspect, text
from sqlalchemy.engine.interfaces import ReflectedColumn, ReflectedIndex
from sqlalchemy.sql.elements import quoted_name

from penstock.spark.errors import PipelineError
from penstock.spark.sinks.database.column_types import SqlType, type_for, type_mismatch
from penstock.spark.sinks.database.engines import database_kind, needs_merge
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.database.names import (
    DatabaseKind,
    check_column_name,
    checked_table_name,
    fold_name,
)
from penstock.spark.sinks.database.rows import DELETE_COLUMN, is_nested, simple_type
from penstock.spark.sinks.database.statements import Target, full_name
from penstock.spark.sinks.database.tables import create


@dataclass(frozen=True)
class PreparedTable:
    """The result table, checked for frames of one schema."""

    schema: pa.Schema
    target: Target
    columns: tuple[str, ...]
    """The frame's columns that are stored, in the order of `target.columns`."""
    types: Mapping[str, SqlType]
    """The database types of the frame's columns, including those that are not stored."""


class ResultTable:
    """The table of a database sink."""

    def __init__(self, engine: Engine, spec: DatabaseSinkSpec) -> None:
        self._engine = engine
        self._kind = database_kind(engine)
        self._spec = spec
        self._schema, self._table = checked_table_name(self._kind, spec.table)

    @property
    def sql(self) -> str:
        """The quoted name for statements."""
        return full_name(self._kind, self._schema, self._table)

    def exists(self) -> bool:
        return inspect(self._engine).has_table(self._table, schema=self._schema)

    def check(self) -> None:
        """Checks an existing table as far as possible without the rows; raises `PipelineError`."""
        if self._kind is DatabaseKind.MYSQL:
            with self._engine.connect() as connection:
                check_transactional(connection, self._schema, self._table)
        if self._spec.mode == "upsert":
            self._check_unique(self._columns())

    def prepare(self, schema: pa.Schema) -> PreparedTable:
        """Creates the table if it is missing, and checks that such rows can be stored in it."""
        self._check_frame(schema)
        if not self.exists():
            self._create(schema)
        self.check()
        columns = self._columns()
        stored: dict[str, str] = {}
        types: dict[str, SqlType] = {}
        problems: list[str] = []
        for field in schema:
            if field.name == DELETE_COLUMN:
                continue
            column = self._find(columns, field.name)
            if column is not None:
                if column["name"] in stored.values():
                    problems.append(
                        f"column {field.name}: another column of the query is stored in the "
                        f"table's column {column['name']}: rename one of them (AS)"
                    )
                stored[field.name] = column["name"]
                types[field.name] = column["type"]
                problem = type_mismatch(field.type, column["type"], self._kind)
                if problem:
                    problems.append(f"column {field.name}: {problem}")
            elif self._spec.only_decides(field.name):
                types[field.name] = type_for(field, self._kind)
            else:
                problems.append(
                    f"column {field.name}: the table has no such column: add it "
                    f"(ALTER TABLE … ADD COLUMN), or leave it out of the query"
                )
        problems += self._unfilled_columns(columns, stored.values())
        if problems:
            raise PipelineError(
                f"the rows do not fit the table {self._spec.table}: {'; '.join(problems)}"
            )
        key = self._spec.key if self._spec.mode == "upsert" else ()
        target = Target(
            self._kind,
            self._schema,
            self._table,
            tuple(stored.values()),
            tuple(stored[name] for name in key),
            merge=needs_merge(self._engine),
        )
        return PreparedTable(schema, target, tuple(stored), types)

    def _check_frame(self, schema: pa.Schema) -> None:
        for field in schema:
            simple_type(field)
            if field.name != DELETE_COLUMN:
                check_column_name(self._kind, field.name)
        for what, names in (("key", self._spec.key), ("order_by", self._spec.order_by)):
            for name in names:
                if name not in schema.names:
                    raise PipelineError(
                        f"`{what}` names the column {name}, and the view {self._spec.view} has "
                        f"only {', '.join(name for name in schema.names if name != DELETE_COLUMN)}"
                    )
                if is_nested(schema.field(name).type):
                    raise PipelineError(
                        f"`{what}` names the column {name}, whose type is "
                        f"{schema.field(name).type}",
                        remedy="name columns with single values",
                    )

    def _create(self, schema: pa.Schema) -> None:
        if not self._spec.create_table:
            raise PipelineError(
                f"the table {self._spec.table} is missing, and `create_table` is off",
                remedy="create it",
            )
        key = self._spec.key if self._spec.mode == "upsert" else ()
        key_types = [schema.field(name).type for name in key]
        columns: list[Column[object]] = [
            Column(
                quoted_name(field.name, quote=True),
                type_for(field, self._kind, key_types if field.name in key else ()),
                nullable=field.name not in key,
                primary_key=field.name in key,
                autoincrement=False,
            )
            # The columns of the primary key come first, in the order of the key.
            for field in [
                *(schema.field(name) for name in key),
                *(column for column in schema if column.name not in key),
            ]
            if field.name != DELETE_COLUMN
        ]
        create(
            self._engine,
            Table(
                quoted_name(self._table, quote=True),
                MetaData(),
                *columns,
                schema=self._schema,
                **table_options(self._engine),
            ),
        )

    def _columns(self) -> list[ReflectedColumn]:
        return inspect(self._engine).get_columns(self._table, schema=self._schema)

    def _find(self, columns: Sequence[ReflectedColumn], name: str) -> ReflectedColumn | None:
        """Returns the table's column of this name, preferably in exactly this spelling."""
        folded = fold_name(self._kind, name)
        matches = [
            candidate for candidate in columns if fold_name(self._kind, candidate["name"]) == folded
        ]
        exact_matches = [column for column in matches if column["name"] == name]
        return next(iter(exact_matches or matches), None)

    def _unfilled_columns(
        self, columns: Sequence[ReflectedColumn], filled: Collection[str]
    ) -> list[str]:
        return [
            f"the table's column {column['name']} is NOT NULL, has no default, and is not in the "
            "query: add it there, or give it a default"
            for column in columns
            if column["name"] not in filled
            and not column["nullable"]
            and column.get("default") is None
            and column.get("autoincrement") is not True
            and not column.get("identity")
            and not column.get("computed")
            and not self._is_row_id(column)
        ]

    def _is_row_id(self, column: ReflectedColumn) -> bool:
        """SQLite fills an INTEGER PRIMARY KEY automatically, without reporting a default."""
        return self._kind is DatabaseKind.SQLITE and bool(column.get("primary_key"))

    def _check_unique(self, columns: Sequence[ReflectedColumn]) -> None:
        matches = {name: self._find(columns, name) for name in self._spec.key}
        key = {column["name"] for column in matches.values() if column is not None}
        missing = [name for name, column in matches.items() if column is None]
        if missing:
            raise PipelineError(
                f"the table {self._spec.table} has no column {', '.join(missing)}, which `key` "
                "names",
                remedy="add it, or name other columns",
            )
        unique = self._unique_sets()
        shown = ", ".join(self._spec.key)
        if key not in unique:
            raise PipelineError(
                f"the table {self._spec.table} has no primary key or unique index on exactly "
                f"({shown}), which `mode: upsert` needs",
                remedy=f"CREATE UNIQUE INDEX … ON {self._spec.table} ({shown})",
            )
        other_keys = [unique_key for unique_key in unique if unique_key != key]
        if self._kind is DatabaseKind.MYSQL and other_keys and not self._are_generated(other_keys):
            raise PipelineError(
                f"the table {self._spec.table} has, besides the key ({shown}), a unique index on "
                f"({', '.join(sorted(other_keys[0]))}): MySQL would replace rows by that one too, "
                "whatever their key",
                remedy="drop it, or make it an index that is not unique",
            )

    def _are_generated(self, sets: Collection[set[str]]) -> bool:
        """Whether the database generates the values of these columns."""
        counted = {
            column["name"] for column in self._columns() if column.get("autoincrement") is True
        }
        return all(columns <= counted for columns in sets)

    def _unique_sets(self) -> list[set[str]]:
        inspector = inspect(self._engine)
        result = [inspector.get_pk_constraint(self._table, self._schema)["constrained_columns"]]
        result += [
            constraint["column_names"]
            for constraint in inspector.get_unique_constraints(self._table, self._schema)
        ]
        indexes = inspector.get_indexes(self._table, self._schema)
        result += [_whole_index(index) for index in indexes]
        sets: list[set[str]] = []
        for names in result:
            unique = set(names)
            if unique and unique not in sets:
                sets.append(unique)
        return sets


def _whole_index(index: ReflectedIndex) -> list[str]:
    """Returns the columns of a unique index; none if it is partial or has expressions."""
    options = index.get("dialect_options", {})
    names = [name for name in index["column_names"] if name is not None]
    partial = any(name.endswith("_where") for name in options) or "expressions" in index
    return names if index["unique"] and not partial else []


def table_options(engine: Engine) -> dict[str, Any]:
    """Returns options of CREATE TABLE for MySQL: transactions, and exact comparison of text."""
    if database_kind(engine) is not DatabaseKind.MYSQL:
        return {}
    name = engine.dialect.name
    return {
        f"{name}_engine": "InnoDB",
        f"{name}_charset": "utf8mb4",
        f"{name}_collate": _exact_collation(engine),
    }


def _exact_collation(engine: Engine) -> str:
    """Returns the collation that distinguishes 'a' and 'a ', if the server has one."""
    query = text(
        "SELECT collation_name FROM information_schema.collations WHERE collation_name IN "
        "('utf8mb4_nopad_bin', 'utf8mb4_0900_bin') ORDER BY collation_name"
    )
    with engine.connect() as connection:
        collation = connection.execute(query).scalar()
    return str(collation) if collation else "utf8mb4_bin"


def check_transactional(connection: Connection, schema: str | None, table: str) -> None:
    """Raises `PipelineError` for a MySQL table whose storage engine has no transactions."""
    query = text(
        "SELECT t.engine FROM information_schema.tables t JOIN information_schema.engines e "
        "ON e.engine = t.engine WHERE t.table_schema = coalesce(:schema, database()) "
        "AND t.table_name = :table AND e.transactions <> 'YES'"
    )
    engine = connection.execute(query, {"schema": schema, "table": table}).scalar()
    if engine is not None:
        raise PipelineError(
            f"the storage engine {engine} of the table {table} has no transactions: "
            f"ALTER TABLE {table} ENGINE = InnoDB"
        )
