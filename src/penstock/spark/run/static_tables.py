"""Static tables as Arrow batches: from a database through SQLAlchemy, or from files.

Tasks read them once in every batch, so each batch sees the table as it is at that time.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import MissingPartError, PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset
    from sqlalchemy import Engine, Table
    from sqlalchemy.types import TypeEngine

_CHUNK = 10_000
_LOCK_WAIT_SECONDS = 60.0
_MAX_DIGITS = 38
_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}


class StaticTable:
    """A table that is named by the options `database` and `table`, or `path`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._database = options.get("database")
        self._table = options.get("table", "")
        self._path = options.get("path", "")

    def schema(self) -> "pa.Schema":
        """Returns all columns; raises `PipelineError` if the table does not exist."""
        if self._database is None:
            return self._dataset().schema
        import pyarrow as pa

        with self._engine() as engine:
            columns = self._reflected(engine).columns
            return pa.schema([(column.name, _arrow_type(column.type)) for column in columns])

    def count(self) -> int:
        """Returns the current number of rows."""
        if self._database is None:
            return int(self._dataset().count_rows())
        from sqlalchemy import func, select

        with self._engine() as engine, engine.connect() as connection:
            return int(
                connection.scalar(select(func.count()).select_from(self._reflected(engine))) or 0
            )

    def batches(self, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
        """Yields the rows with these columns and types."""
        if self._database is None:
            for batch in self._dataset().to_batches(columns=schema.names):
                yield batch.cast(schema)
        else:
            yield from self._database_batches(schema)

    def _database_batches(self, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        from sqlalchemy import select

        with self._engine() as engine:
            table = self._reflected(engine)
            missing = [name for name in schema.names if name not in table.columns]
            if missing:
                raise PipelineError(
                    f"table {self._table} has no column {', '.join(missing)}: it was changed, or "
                    "the schema of the static table in the pipeline is wrong"
                )
            query = select(*(table.columns[name] for name in schema.names))
            # `with`, because Spark need not read to the end.
            with (
                engine.connect().execution_options(yield_per=_CHUNK) as connection,
                connection.execute(query) as result,
            ):
                for rows in result.partitions():
                    columns = zip(*rows, strict=True)
                    yield pa.RecordBatch.from_arrays(
                        [
                            self._array(field, values)
                            for field, values in zip(schema, columns, strict=True)
                        ],
                        schema=schema,
                    )

    def _array(self, field: "pa.Field", values: tuple[object, ...]) -> "pa.Array":
        import pyarrow as pa

        if pa.types.is_string(field.type):
            return pa.array([_text(value) for value in values], field.type)
        try:
            if pa.types.is_floating(field.type):
                # MySQL's driver returns decimals for doubles.
                values = tuple(None if value is None else float(value) for value in values)  # type: ignore[arg-type]
            return pa.array(values, field.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise PipelineError(
                f"a value in column {field.name} of table {self._table} is not of type "
                f"{field.type}: {error}",
                remedy="give the static table a schema that fits",
            ) from error

    @contextmanager
    def _engine(self) -> "Iterator[Engine]":
        try:
            from sqlalchemy import create_engine, make_url
            from sqlalchemy.exc import SQLAlchemyError
            from sqlalchemy.pool import NullPool
        except ModuleNotFoundError:
            raise MissingPartError(
                'static tables in databases need SQLAlchemy: pip install "penstock[sql]"'
            ) from None
        url = self._database or ""
        if url.startswith("sqlite:"):
            file = make_url(url).database
            if file and not file.startswith(("file:", ":memory:")) and not Path(file).exists():
                # Connecting would create it.
                raise PipelineError(f"static table {self._table}: there is no file {file}")
            # Not with `open_engine`: readers need not wait for each other.
            engine = create_engine(
                url, poolclass=NullPool, connect_args={"timeout": _LOCK_WAIT_SECONDS}
            )
        else:
            from penstock.spark.sinks.database.engines import open_engine

            engine = open_engine(url, _LOCK_WAIT_SECONDS)
        try:
            yield engine
        except SQLAlchemyError as error:
            from penstock.spark.sinks.database.engines import shown_url
            from penstock.spark.sinks.database.failures import reason_of

            raise PipelineError(
                f"static table {self._table} in {shown_url(engine.url)}: {reason_of(error)}"
            ) from error
        finally:
            engine.dispose()

    def _reflected(self, engine: "Engine") -> "Table":
        from sqlalchemy import MetaData, Table
        from sqlalchemy.exc import NoSuchTableError

        schema, _, name = self._table.rpartition(".")
        try:
            return Table(name, MetaData(), schema=schema or None, autoload_with=engine)
        except NoSuchTableError:
            from penstock.spark.sinks.database.engines import shown_url

            raise PipelineError(
                f"there is no table {self._table} in {shown_url(engine.url)}"
            ) from None

    def _dataset(self) -> "pyarrow.dataset.Dataset":
        import pyarrow as pa
        import pyarrow.dataset as ds

        try:
            return ds.dataset(
                # Hadoop's `s3a` is `s3` to Arrow.
                self._path.replace("s3a://", "s3://", 1)
                if "://" in self._path
                else str(Path(self._path).absolute()),
                format=_format(self._path),
                partitioning="hive",
            )
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(f"static table {self._path} cannot be read: {error}") from error


def _format(path: str) -> str:
    """Returns the format by the file's name, or by the names in a directory."""
    local_path = Path(path)
    names = [path]
    if "://" not in path and local_path.is_dir():
        names = sorted(str(path) for path in local_path.rglob("*") if path.suffix in _FORMATS)
    for name in names:
        if Path(name).suffix in _FORMATS:
            return _FORMATS[Path(name).suffix]
    return "parquet"


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, set):
        return ",".join(sorted(value))  # as MySQL shows its SET
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _arrow_type(kind: "TypeEngine[Any]") -> "pa.DataType":
    import pyarrow as pa
    from sqlalchemy import types as sql

    if isinstance(kind, sql.Boolean):
        return pa.bool_()
    if isinstance(kind, sql.Integer):
        return pa.int64()
    if isinstance(kind, sql.Float):
        return pa.float64()
    if isinstance(kind, sql.Numeric):
        # Spark's decimals have at most 38 digits.
        precision = min(kind.precision or _MAX_DIGITS, _MAX_DIGITS)
        return pa.decimal128(precision, kind.scale or (0 if kind.precision else 18))
    if isinstance(kind, sql.DateTime):
        return pa.timestamp("us", tz="UTC")
    if isinstance(kind, sql.Date):
        return pa.date32()
    if isinstance(kind, sql.LargeBinary):
        return pa.binary()
    return pa.string()
