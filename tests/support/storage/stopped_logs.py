"""Logs that were stopped, cleanly or not, and then damaged."""

from pathlib import Path

from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from tests.support.storage.logs import (
    NOW,
    LogDirectory,
    filler,
)

SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=1200, index_interval_bytes=150)
COMPACT = LogConfig(
    segment_bytes=1000,
    segment_index_bytes=1200,
    index_interval_bytes=150,
    cleanup_policy=frozenset({"compact"}),
)


def fill(log: Log, count: int, epoch: int = 0) -> None:
    """Batches of one record and 100 bytes, ten in a segment, one every 10 ms."""
    for _ in range(count):
        log.append_as_leader(filler(100, timestamp=NOW + 10 * log.log_end_offset), epoch)


def stopped(directory: LogDirectory, count: int, *, clean: bool = False) -> None:
    """A log of `count` records that was stopped."""
    fill(directory.open(), count)
    if clean:
        directory.close()
    else:
        directory.crash()


def flip(path: Path, position: int) -> None:
    """Damages one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def contents(directory: LogDirectory, *suffixes: str) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in directory.path.iterdir() if path.suffix in suffixes
    }
