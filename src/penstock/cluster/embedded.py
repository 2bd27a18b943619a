"""The metadata store of a single node: a SQLite file in its data folder.

It has one process and one writer. Durable means that the write-ahead log is synced with each commit
(`synchronous=FULL`), which costs one sync; a rollback journal costs twice the time. The file is
locked while it is open, and no file beside it is shared with other processes.
"""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.cluster.paths import parent_record, path_of
from penstock.cluster.store import StoreConflictError, expected_version, is_ephemeral
from penstock.cluster.znodes import decode, encode
from penstock.controller.metadata import Change, Delete, Key, Record, TopicKey
from penstock.core.errors import KafkaStorageError

SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = 0x50454E53
"""`PENS`, in the header of the file: tells it from other SQLite files."""

_TABLES: Final = (
    """CREATE TABLE node (
        path TEXT PRIMARY KEY,
        data BLOB NOT NULL,
        version INTEGER NOT NULL,
        created INTEGER NOT NULL,
        ephemeral INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TABLE last_transaction (id INTEGER NOT NULL)",
    "INSERT INTO last_transaction VALUES (0)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
# A hand that mends a node writes text; it is read like the bytes we write.
_LOAD: Final = "SELECT path, CAST(data AS BLOB), version, created FROM node ORDER BY path"
_EXISTS: Final = "SELECT 1 FROM node WHERE path = ?"
_HAS_CHILDREN: Final = "SELECT 1 FROM node WHERE path > ? AND path < ? LIMIT 1"
_MAKE: Final = "INSERT OR IGNORE INTO node VALUES (?, ?, 0, ?, ?)"
_CHANGE: Final = "UPDATE node SET data = ?, version = version + 1 WHERE path = ?"
_CHANGE_VERSION: Final = (
    "UPDATE node SET data = ?, version = version + 1 WHERE path = ? AND version = ?"
)
_DELETE: Final = "DELETE FROM node WHERE path = ?"


class EmbeddedStore:
    """A `MetadataStore` in the file `path`, which is made if it is not there.

    Opening it removes what was ephemeral in the session before. After a failed write nobody knows
    what is on disk: the store then refuses every commit until it is opened anew. A full disk is
    different, there nothing was written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._refusal: str | None = None
        try:
            _make_file(path)
            self._db = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise KafkaStorageError(
                f"metadata store {path} can not be opened: {error}. "
                "Check that its folder is there and may be written to"
            ) from error
        try:
            self._last_transaction = self._open()
        except sqlite3.Error as error:
            self._db.close()
            raise self._failure(error) from error
        except BaseException:
            self._db.close()
            raise

    def load(self) -> list[Record]:
        try:
            nodes = self._db.execute(_LOAD).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        records = (decode(*node) for node in nodes)
        return [record for record in records if record is not None]

    def commit(self, changes: Sequence[Change]) -> int:
        if self._refusal is not None:
            raise KafkaStorageError(self._refusal)
        transaction = self._last_transaction + 1
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for change in changes:
                if isinstance(change, Delete):
                    self._delete(change.key)
                else:
                    self._put(change.record, transaction)
            self._db.execute("UPDATE last_transaction SET id = ?", (transaction,))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            failure = self._failure(error)
            if _code(error) != sqlite3.SQLITE_FULL:
                self._refusal = f"{failure.message}. It takes no changes until it is opened anew"
            raise failure from error
        except BaseException:
            self._roll_back()
            raise
        self._last_transaction = transaction
        return transaction

    def close(self) -> None:
        self._refusal = f"metadata store {self._path} is closed"
        self._db.close()

    def _open(self) -> int:
        """Lock and check the file, make its tables if it is new; gives the last transaction."""
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        version = self._number("PRAGMA user_version")
        owner = self._number("PRAGMA application_id")
        tables = self._number("SELECT count(*) FROM sqlite_master")
        if owner != _APPLICATION_ID and (owner or version or tables):
            raise KafkaStorageError(
                f"{self._path} is a SQLite file of something else, not a metadata store: "
                "move it away or use another data folder"
            )
        if version > SCHEMA_VERSION:
            raise KafkaStorageError(
                f"metadata store {self._path} has schema version {version}, this Penstock knows "
                f"up to {SCHEMA_VERSION}: use the Penstock that wrote it, or a newer one"
            )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("BEGIN EXCLUSIVE")
        if version == 0:
            for statement in _TABLES:
                self._db.execute(statement)
        self._db.execute("DELETE FROM node WHERE ephemeral")
        self._db.execute("COMMIT")
        return self._number("SELECT id FROM last_transaction")

    def _number(self, query: str) -> int:
        row: tuple[int] = self._db.execute(query).fetchone()
        return row[0]

    def _put(self, record: Record, transaction: int) -> None:
        path = path_of(record.key)
        data = encode(record)
        expected = expected_version(record)
        if expected is None:
            if self._db.execute(_CHANGE, (data, path)).rowcount:
                return
        elif expected >= 0:
            if not self._db.execute(_CHANGE_VERSION, (data, path, expected)).rowcount:
                raise StoreConflictError(path, f"does not have version {expected}")
            return
        parent = parent_record(record.key)
        if parent is not None and not self._exists(path_of(parent)):
            raise StoreConflictError(path_of(parent), "is missing")
        made = self._db.execute(_MAKE, (path, data, transaction, is_ephemeral(record)))
        if not made.rowcount:
            raise StoreConflictError(path, "is there already")

    def _delete(self, key: Key) -> None:
        path = path_of(key)
        if isinstance(key, TopicKey) and self._has_children(path):
            raise StoreConflictError(path, "still has partitions")
        if not self._db.execute(_DELETE, (path,)).rowcount:
            raise StoreConflictError(path, "is missing")

    def _exists(self, path: str) -> bool:
        return self._db.execute(_EXISTS, (path,)).fetchone() is not None

    def _has_children(self, path: str) -> bool:
        below = self._db.execute(_HAS_CHILDREN, (path + "/", path + chr(ord("/") + 1)))
        return below.fetchone() is not None

    def _roll_back(self) -> None:
        """SQLite may have done so itself; if it can not, the next opening does."""
        if self._db.in_transaction:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")

    def _failure(self, error: sqlite3.Error) -> KafkaStorageError:
        match _code(error):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return KafkaStorageError(
                    f"metadata store {self._path} is in use by another process: "
                    "stop that one, or use another data folder"
                )
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return KafkaStorageError(
                    f"metadata store {self._path} is damaged ({error}): put it back from a backup. "
                    "The topics' data is not touched by this; without the store it is not known "
                    "which topics there are"
                )
            case sqlite3.SQLITE_FULL:
                return KafkaStorageError(
                    f"the disk of metadata store {self._path} is full: make room and try again"
                )
        return KafkaStorageError(f"metadata store {self._path} failed: {error}")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary error code; -1 for an error of Python's module itself."""
    code: int = getattr(error, "sqlite_errorcode", -1)
    return code & 0xFF if code >= 0 else code


def _make_file(path: Path) -> None:
    """Make an empty file that survives a crash, readable to its owner only: it has credentials.

    An empty file is an empty database to SQLite. It is never opened here once SQLite has it open:
    closing it would give up SQLite's lock.
    """
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
