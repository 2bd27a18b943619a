"""What a sink has stored of its query, looked up without taking the query over."""

from dataclasses import dataclass
from io import UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import KafkaError
from penstock.spark.errors import SparkPartError
from penstock.spark.pipeline.model import (
    DatabaseSinkSpec,
    ParquetSinkSpec,
    PipelineSpec,
    SinkSpec,
    TopicSinkSpec,
)
from penstock.spark.progress import Stored
from penstock.spark.run.source_options import client_of

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True)
class LastBatch:
    rows: int
    dead_letters: int | None = None
    """None: not known."""
    at: str = ""


@dataclass(frozen=True)
class Standing:
    stored: Stored | None
    """None: it has not begun, or was cleared."""
    owner: str
    epoch: int | None = None
    """None where the sink counts none."""
    since: str = ""
    """When the owner took the query over."""
    last: LastBatch | None = None


def standing_of(spec: PipelineSpec, sink: SinkSpec) -> tuple[Standing | None, tuple[str, ...]]:
    """None if the query has never run; and what went wrong while looking."""
    try:
        match sink:
            case DatabaseSinkSpec():
                return _in_database(sink, spec.query(sink)), ()
            case TopicSinkSpec():
                return _in_ledger(spec, spec.query(sink)), ()
            case ParquetSinkSpec():
                return _in_folder(sink, spec.query(sink)), ()
    except (SparkPartError, KafkaError, OSError, ValueError) as error:
        return None, (f"sink {sink.name}: {error}",)


def _in_database(sink: DatabaseSinkSpec, key: str) -> Standing | None:
    from sqlalchemy import inspect
    from sqlalchemy.exc import SQLAlchemyError

    from penstock.spark.errors import PipelineError
    from penstock.spark.sinks.database.engines import open_engine
    from penstock.spark.sinks.database.tables import OWN_TABLES

    engine = open_engine(sink.database, 10.0)
    file = engine.url.database
    is_file = engine.url.get_backend_name() == "sqlite" and file not in (None, "", ":memory:")
    if is_file and not Path(file or "").exists():
        # To connect would make it.
        return None
    try:
        with engine.connect() as connection:
            there = inspect(connection)
            if not all(there.has_table(table.name) for table in OWN_TABLES):
                return None
            return _read(connection, key)
    except SQLAlchemyError as error:
        shown = engine.url.render_as_string(hide_password=True)
        raise PipelineError(f"{shown} cannot be asked: {error}") from error
    finally:
        engine.dispose()


def _read(connection: "Connection", key: str) -> Standing | None:
    from sqlalchemy import select

    from penstock.spark.sinks.database.bookkeeping import Bookkeeping
    from penstock.spark.sinks.database.tables import BATCH

    books = Bookkeeping(key)
    owner = books.peek(connection)
    if owner is None:
        return None
    stored = books.read(connection)
    last = None
    if stored is not None:
        row = connection.execute(
            select(BATCH.c.rows, BATCH.c.dead_letters, BATCH.c.at)
            .where(BATCH.c.pipeline == key, BATCH.c.query_id == stored.query_id)
            .where(BATCH.c.batch_id == stored.batch_id)
        ).first()
        last = None if row is None else LastBatch(row[0], row[1], str(row[2]))
    return Standing(stored, owner.name, owner.epoch, owner.since, last)


def _in_ledger(spec: PipelineSpec, key: str) -> Standing | None:
    from penstock.spark.clients import new_admin
    from penstock.spark.sinks.topic.ledger import TOPIC, Ledger

    client = client_of(spec)
    with new_admin(client) as admin:
        if TOPIC not in admin.list_topics(include_internal=True):
            return None
    with Ledger(client) as ledger:
        entry = ledger.read(key)
    if entry is None:
        return None
    has_run = entry.stored is not None and entry.stored.batch_id >= 0
    return Standing(entry.stored, entry.owner, last=LastBatch(entry.rows) if has_run else None)


def _in_folder(sink: ParquetSinkSpec, key: str) -> Standing | None:
    from penstock.spark.sinks.parquet.commit_log import Commit, CommitLog

    last: Commit | None = CommitLog(_ReadOnly(sink.path), key).last()
    if last is None:
        return None
    has_run = last.stored is not None and last.stored.batch_id >= 0
    return Standing(last.stored, last.owner, last=LastBatch(last.rows) if has_run else None)


class _ReadOnly:
    """Files of a folder, through Arrow."""

    def __init__(self, root: str) -> None:
        from pyarrow import fs

        # Arrow knows Hadoop's name for S3 by another.
        place = root.replace("s3a://", "s3://", 1) if ":" in root else str(Path(root).absolute())
        self._fs, self._root = fs.FileSystem.from_uri(place)

    def names(self, folder: str) -> list[str]:
        from pyarrow import fs

        chosen = fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        return [each.base_name for each in self._fs.get_file_info(chosen)]

    def read(self, path: str) -> bytes:
        with self._fs.open_input_stream(f"{self._root}/{path}") as stream:
            return bytes(stream.read())

    def create(self, path: str, content: bytes) -> bool:
        raise UnsupportedOperation("status changes nothing")

    def rename(self, source: str, target: str) -> bool:
        raise UnsupportedOperation("status changes nothing")

    def delete(self, path: str) -> None:
        raise UnsupportedOperation("status changes nothing")
