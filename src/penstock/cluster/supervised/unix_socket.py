"""Unix sockets in a data directory: for their owner only, and at a path of any length."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.core.errors import KafkaStorageError

_MAX_PATH_BYTES: Final = 103
"""What all systems allow: 107 on Linux, 103 on macOS."""
_DESCRIPTORS: Final = Path("/proc/self/fd")
_BACKLOG: Final = 128


def listen_unix(path: Path) -> socket.socket:
    """Returns a listening socket at `path`, which other users cannot connect to.

    A socket that a dead process has left there is replaced: the caller must have made sure that no
    other process serves it. Raises KafkaStorageError if the socket cannot be created.
    """
    with suppress(FileNotFoundError):
        path.unlink()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux creates the file with the mode of the descriptor: nobody can connect before chmod.
        os.fchmod(server.fileno(), 0o600)
        with _address(path) as address:
            server.bind(address)
        path.chmod(0o600)
        server.listen(_BACKLOG)
    except BaseException as error:
        server.close()
        if isinstance(error, OSError):
            raise KafkaStorageError(
                f"socket {path} cannot be created: {error.strerror or error}",
                remedy="use a data directory on a local disk that is writable",
            ) from error
        raise
    server.setblocking(False)
    return server


def connect_unix(path: Path, timeout_s: float) -> socket.socket:
    """Returns a socket that is connected to `path`; its operations time out. Raises OSError."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(timeout_s)
        with _address(path) as address:
            client.connect(address)
    except BaseException:
        client.close()
        raise
    return client


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yields an address of the socket that fits into the system's limit.

    A long path is shortened with a descriptor of its directory, if the system has such paths.
    """
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield str(path)
        return
    if not _DESCRIPTORS.exists():
        raise KafkaStorageError(
            f"the path {path} is longer than the {_MAX_PATH_BYTES} bytes that a socket may have",
            remedy="use a data directory with a shorter path (metadata.log.dir or log.dirs)",
        )
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_DESCRIPTORS / str(directory) / path.name)
    finally:
        os.close(directory)
