"""Reads `__cluster_metadata`: the latest snapshot of a KRaft controller and the log behind it.

A stopped Kafka node has them in the first of its log directories, or in `metadata.log.dir`.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from penstock.core.errors import CorruptRecordError, KafkaError, KafkaStorageError
from penstock.protocol.fields import Message
from penstock.protocol.stored.cluster_metadata import decode_frame
from penstock.records.batch import HEADER_SIZE, BatchHeader, read_header, verify
from penstock.records.read import read_records
from penstock.storage.file_names import CLUSTER_METADATA_TOPIC

DIRECTORY: Final = f"{CLUSTER_METADATA_TOPIC}-0"
_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_SEGMENT = re.compile(r"(\d{20})\.log")


def find_metadata_log(log_dirs: Iterable[str]) -> Path | None:
    """Returns the directory of the metadata log in one of these log directories."""
    for log_dir in log_dirs:
        directory = Path(log_dir) / DIRECTORY
        if directory.is_dir():
            return directory
    return None


def read_metadata(directory: Path) -> Iterator[Message]:
    """Yields the records of the latest snapshot and those that follow it, in order.

    A torn batch at the end of the log is ignored, as after a crash. Raises KafkaStorageError for
    anything else that cannot be read: without it the metadata would be wrong.
    """
    start = 0
    snapshots = _numbered(directory, _SNAPSHOT)
    if snapshots:
        start, path = snapshots[-1]
        yield from _read(path, 0, is_complete=True)
    segments = _numbered(directory, _SEGMENT)
    while len(segments) > 1 and segments[1][0] <= start:
        del segments[0]
    if segments and segments[0][0] > start:
        raise KafkaStorageError(
            f"{directory} begins at offset {segments[0][0]}, and has no snapshot up to it"
        )
    for number, (_, path) in enumerate(segments, 1):
        yield from _read(path, start, is_complete=number < len(segments))


def _numbered(directory: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """Returns the files whose names match, by the offset in their names."""
    return sorted(
        (int(match[1]), path)
        for path in directory.iterdir()
        if (match := pattern.fullmatch(path.name))
    )


def _read(path: Path, start: int, *, is_complete: bool) -> Iterator[Message]:
    """Yields the records from an offset on; a file that is not complete may end in a torn batch."""
    data = path.read_bytes()
    position = 0
    while position < len(data):
        try:
            header = read_header(data, position)
            verify(data, position, header)
        except CorruptRecordError as error:
            if not is_complete and _is_torn(data, position):
                return
            raise _unreadable(path, position, error) from error
        if not header.is_control and header.last_offset >= start:
            try:
                yield from _messages(data, position, header, start)
            except KafkaError as error:
                raise _unreadable(path, position, error) from error
        position += header.size


def _messages(data: bytes, position: int, header: BatchHeader, start: int) -> Iterator[Message]:
    for record in read_records(data, position, header):
        if record.value is not None and record.offset >= start:
            message = decode_frame(record.value)
            if message is not None:
                yield message


def _is_torn(data: bytes, position: int) -> bool:
    """Whether the batch at a position is longer than the rest of the file."""
    remaining = len(data) - position
    if remaining < HEADER_SIZE:
        return True
    try:
        return read_header(data, position).size > remaining
    except CorruptRecordError:
        return False


def _unreadable(path: Path, position: int, error: KafkaError) -> KafkaStorageError:
    return KafkaStorageError(
        f"the metadata of Kafka in {path} cannot be read at position {position}: {error.message}",
        remedy="stop Kafka cleanly, and start it once if it was killed",
    )
