"""Durable copies of files, which only their owner may read: they have records or credentials."""

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.core.errors import KafkaStorageError
from penstock.storage.disk import OsDisk

_COPY_BYTES: Final = 1 << 30
_NO_COPY_RANGE: Final = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}
)


def copy_file(source: Path, target: Path) -> None:
    """Copies a file and its times. File systems that can share the blocks do.

    Raises KafkaStorageError if the target exists or cannot be written.
    """
    try:
        with source.open("rb") as reader, open(target, "xb", opener=_private) as writer:
            try:
                while os.copy_file_range(reader.fileno(), writer.fileno(), _COPY_BYTES):
                    pass
            except OSError as error:
                if error.errno not in _NO_COPY_RANGE:
                    raise
                shutil.copyfileobj(reader, writer)
                writer.flush()
            os.fsync(writer.fileno())
            if os.fstat(writer.fileno()).st_size != os.fstat(reader.fileno()).st_size:
                raise KafkaStorageError(f"{source} has changed while it was copied")
        shutil.copystat(source, target)
    except OSError as error:
        raise _write_error(target, error) from error


def link_file(source: Path, target: Path) -> None:
    """Makes a hard link. Raises KafkaStorageError if the file system cannot."""
    try:
        target.hardlink_to(source)
    except OSError as error:
        raise KafkaStorageError(
            f"{target} cannot be a hard link: {error.strerror}",
            remedy="name an output on the same file system, or export without --link",
        ) from error


def write_file(path: Path, parts: Iterable[bytes]) -> None:
    """Writes a new file. Raises KafkaStorageError if it exists or cannot be written."""
    try:
        with open(path, "xb", opener=_private) as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _write_error(path, error) from error


def sync_directory(path: Path) -> None:
    OsDisk().sync_directory(str(path))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_error(path: Path, error: OSError) -> KafkaStorageError:
    return KafkaStorageError(f"{path} cannot be written: {error.strerror}")
