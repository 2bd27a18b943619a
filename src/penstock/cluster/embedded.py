"""The embedded metadata store of a single node: an SQLite file in its data directory.

One process has it open at a time: the file is locked, and no file beside it is shared with other
processes. A commit is durable because the write-ahead log is synced with each of them
(`synchronous=FULL`). That costs one sync; a rollback journal would take twice the time.
"""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from penstock.cluster.paths import parent_record, path_of, sequence_prefix
from penstock.cluster.store import (
    CommittedChanges,
    ControllerMovedError,
    Listener,
    Scope,
    SessionListener,
    Snapshot,
    StoreConflictError,
    expected_version,
    is_ephemeral,
)
from penstock.cluster.znodes import decode, encode
from penstock.controller.metadata import (
    BrokerRecord,
    Change,
    ControllerEpochRecord,
    Delete,
    IsrChangeRecord,
    Key,
    LogDirEventRecord,
    Put,
    Record,
    TopicKey,
)
from penstock.core.errors import KafkaStorageError

SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = 0x50454E53
"""`PENS` in the file's header: distinguishes it from other SQLite files."""

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
# A node that was edited by hand contains text; it is read like the bytes that we write.
_LOAD: Final = "SELECT path, CAST(data AS BLOB), version, created FROM node ORDER BY path"
_FETCH: Final = "SELECT path, CAST(data AS BLOB), version, created FROM node WHERE path = ?"
_CREATED: Final = "SELECT created FROM node WHERE path = ?"
_EXISTS: Final = "SELECT 1 FROM node WHERE path = ?"
_HAS_CHILDREN: Final = "SELECT 1 FROM node WHERE path > ? AND path < ? LIMIT 1"
_CREATE: Final = "INSERT OR IGNORE INTO node VALUES (?, ?, 0, ?, ?)"
_UPDATE: Final = "UPDATE node SET data = ?, version = version + 1 WHERE path = ?"
_UPDATE_VERSION: Final = (
    "UPDATE node SET data = ?, version = version + 1 WHERE path = ? AND version = ?"
)
_DELETE: Final = "DELETE FROM node WHERE path = ?"


class EmbeddedStore:
    """A `MetadataStore` in the file `path`, which is created if it does not exist.

    Opening it removes the ephemeral nodes of the last session. After a failed write the state of
    the file is unknown, so the store rejects every commit until it is opened again. A full disk is
    the exception: nothing was written then, and later commits may succeed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._refusal: str | None = None
        self._listeners: list[Listener] = []
        self._changed: dict[Key, int] = {}
        """The version in which each node changed last, of those that changed in this session."""
        self._is_controller = False
        try:
            _create_file(path)
            self._db = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise KafkaStorageError(
                f"metadata store {path} can not be opened: {error}",
                remedy="check that its directory exists and is writable",
            ) from error
        try:
            self._version = self._open()
        except sqlite3.Error as error:
            self._db.close()
            raise self._failure(error) from error
        except BaseException:
            self._db.close()
            raise

    def load(self, scope: Scope = Scope.ALL) -> Snapshot:
        try:
            nodes = self._db.execute(_LOAD).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        records = (decode(*node) for node in nodes)
        in_scope = [
            record for record in records if record is not None and scope.contains(record.key)
        ]
        return Snapshot(self._version, in_scope)

    def fetch(self, keys: Sequence[Key]) -> list[Record]:
        try:
            rows = [self._db.execute(_FETCH, (path_of(key),)).fetchone() for key in keys]
        except sqlite3.Error as error:
            raise self._failure(error) from error
        records = (decode(*row) for row in rows if row is not None)
        return [record for record in records if record is not None]

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        if self._refusal is not None:
            raise KafkaStorageError(self._refusal)
        if fenced and not self._is_controller:
            raise ControllerMovedError("was not put by this session")
        keys = [
            change.key if isinstance(change, Delete) else change.record.key for change in changes
        ]
        if based_on is not None:
            self._check_unchanged(keys, based_on)
        version = self._version + 1
        applied: list[Change] = []
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for change in changes:
                if isinstance(change, Delete):
                    self._delete(change.key)
                    applied.append(change)
                else:
                    record = self._put(self._with_sequence(change.record, version), version)
                    applied.append(Put(record))
            self._db.execute("UPDATE last_transaction SET id = ?", (version,))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            failure = self._failure(error)
            if _code(error) != sqlite3.SQLITE_FULL:
                self._refusal = f"{failure.message}; it takes no changes until it is opened again"
            raise failure from error
        except BaseException:
            self._roll_back()
            raise
        self._version = version
        for change in applied:
            key = change.key if isinstance(change, Delete) else change.record.key
            self._changed[key] = version
            if isinstance(change, Put) and isinstance(change.record, ControllerEpochRecord):
                self._is_controller = True
        for listener in self._listeners:
            listener(CommittedChanges(version, applied))
        return version

    def subscribe(self, listener: Listener, scope: Scope = Scope.ALL) -> None:
        self._listeners.append(listener)

    def watch(self, scope: Scope) -> None:
        """Does nothing: listeners receive every change."""

    def subscribe_session(self, listener: SessionListener) -> None:
        """Does nothing: this session ends only with `close`."""

    def close(self) -> None:
        self._refusal = f"metadata store {self._path} is closed"
        self._db.close()

    def _open(self) -> int:
        """Locks and checks the file, creates its tables if it is new, and returns its version."""
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        version = self._number("PRAGMA user_version")
        owner = self._number("PRAGMA application_id")
        tables = self._number("SELECT count(*) FROM sqlite_master")
        if owner != _APPLICATION_ID and (owner or version or tables):
            raise KafkaStorageError(
                f"{self._path} is an SQLite file of another program, not a metadata store",
                remedy="move it away or use another data directory",
            )
        if version > SCHEMA_VERSION:
            raise KafkaStorageError(
                f"metadata store {self._path} has schema version {version}, this release knows "
                f"versions up to {SCHEMA_VERSION}",
                remedy="use the release that wrote it, or a newer one",
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

    def _check_unchanged(self, keys: Iterable[Key], based_on: int) -> None:
        for key in keys:
            if self._changed.get(key, 0) > based_on:
                raise StoreConflictError(path_of(key), f"has changed since version {based_on}")

    def _with_sequence(self, record: Record, version: int) -> Record:
        """Assigns the sequence of a notification: the version, or the next one that is free."""
        prefix = sequence_prefix(record.key)
        if prefix is not None and isinstance(record, IsrChangeRecord | LogDirEventRecord):
            while self._exists(f"{prefix}{version:010}"):
                version += 1
            return replace(record, sequence=version)
        return record

    def _put(self, record: Record, version: int) -> Record:
        """Writes the record's node; returns the record as it is stored."""
        path = path_of(record.key)
        self._write(path, record, version)
        if not isinstance(record, BrokerRecord):
            return record
        (created,) = self._db.execute(_CREATED, (path,)).fetchone()
        return replace(record, epoch=created)

    def _write(self, path: str, record: Record, version: int) -> None:
        data = encode(record)
        expected = expected_version(record)
        if expected is None:
            if self._db.execute(_UPDATE, (data, path)).rowcount:
                return
        elif expected >= 0:
            if not self._db.execute(_UPDATE_VERSION, (data, path, expected)).rowcount:
                raise StoreConflictError(path, f"does not have version {expected}")
            return
        parent = parent_record(record.key)
        if parent is not None and not self._exists(path_of(parent)):
            raise StoreConflictError(path_of(parent), "is missing")
        insert = self._db.execute(_CREATE, (path, data, version, is_ephemeral(record)))
        if not insert.rowcount:
            raise StoreConflictError(path, "exists already")

    def _delete(self, key: Key) -> None:
        path = path_of(key)
        if isinstance(key, TopicKey) and self._has_children(path):
            raise StoreConflictError(path, "still has partitions")
        if not self._db.execute(_DELETE, (path,)).rowcount:
            raise StoreConflictError(path, "is missing")

    def _exists(self, path: str) -> bool:
        return self._db.execute(_EXISTS, (path,)).fetchone() is not None

    def _has_children(self, path: str) -> bool:
        children = self._db.execute(_HAS_CHILDREN, (path + "/", path + chr(ord("/") + 1)))
        return children.fetchone() is not None

    def _roll_back(self) -> None:
        """Rolls back unless SQLite already has; if that fails, the next opening does it."""
        if self._db.in_transaction:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")

    def _failure(self, error: sqlite3.Error) -> KafkaStorageError:
        match _code(error):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return KafkaStorageError(
                    f"metadata store {self._path} is in use by another process",
                    remedy="stop that process, or use another data directory",
                )
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return KafkaStorageError(
                    f"metadata store {self._path} is damaged ({error})",
                    remedy="restore it from a backup. The topics' data is not "
                    "affected, but without the store the broker does not know "
                    "which topics exist",
                )
            case sqlite3.SQLITE_FULL:
                return KafkaStorageError(
                    f"the disk of metadata store {self._path} is full",
                    remedy="free some space and retry",
                )
        return KafkaStorageError(f"metadata store {self._path} failed: {error}")


def _code(error: sqlite3.Error) -> int:
    """Returns SQLite's primary error code; -1 for an error that Python's module raised itself."""
    code: int = getattr(error, "sqlite_errorcode", -1)
    return code & 0xFF if code >= 0 else code


def _create_file(path: Path) -> None:
    """Creates an empty file that survives a crash, readable by its owner only: it has credentials.

    SQLite treats an empty file as an empty database. This never opens the file while SQLite has it
    open, because closing it would release SQLite's lock.
    """
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
