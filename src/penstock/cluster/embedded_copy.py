"""Reads the embedded store of a broker that may be running, without a lock and without a write.

The broker has its file locked, so the file and its write-ahead log are copied. The two belong
together if the file has not changed in the meantime: SQLite moves pages from the log to the file
before it begins a new log.
"""

import tempfile
import time
from pathlib import Path
from typing import Final

from penstock.cluster.embedded import EmbeddedStore
from penstock.controller.metadata import Record
from penstock.core.errors import KafkaStorageError

_ATTEMPTS: Final = 20
_DELAY_S: Final = 0.05
_WAL_HEADER_BYTES: Final = 32


def load_copy(path: Path) -> list[Record]:
    """Returns the records of the store in the file `path`, as of its last commit.

    Raises KafkaStorageError if the file cannot be read, is damaged, or changes all the time.
    """
    for _ in range(_ATTEMPTS):
        files = _consistent_files(path)
        if files is not None:
            return _records_of(path, *files)
        time.sleep(_DELAY_S)
    raise KafkaStorageError(
        f"metadata store {path} changes all the time", remedy="try again, or stop the broker"
    )


def _consistent_files(path: Path) -> tuple[bytes, bytes] | None:
    """Returns the file and its log; None if the broker has moved pages between them."""
    log_path = path.with_name(f"{path.name}-wal")
    try:
        data = path.read_bytes()
        log = _read(log_path)
        is_same = (
            path.read_bytes() == data
            and _read(log_path)[:_WAL_HEADER_BYTES] == (log[:_WAL_HEADER_BYTES])
        )
    except OSError as error:
        raise KafkaStorageError(
            f"metadata store {path} cannot be read: {error.strerror}"
        ) from error
    return (data, log) if is_same else None


def _read(path: Path) -> bytes:
    """Returns the content of a log, which does not exist if the broker is stopped."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _records_of(path: Path, data: bytes, log: bytes) -> list[Record]:
    # The directory is readable by its owner only: the store has credentials.
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        copy = Path(directory, path.name)
        copy.write_bytes(data)
        copy.with_name(f"{path.name}-wal").write_bytes(log)
        try:
            store = EmbeddedStore(copy)
            try:
                return store.load().records
            finally:
                store.close()
        except KafkaStorageError as error:
            cause = error.cause.replace(str(copy), str(path))
            raise KafkaStorageError(cause, remedy=error.remedy) from error
