"""The batches that a broker stored for a partition, read from their headers."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.kafka_clients.model import CODECS

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_FROM = 12  # the length does not include itself and the bytes before it


class StoredBatch(NamedTuple):
    codec: str
    producer_id: int
    base_sequence: int
    records: int


def stored_batches(directory: Path) -> Iterator[StoredBatch]:
    """The batches of a partition's directory, in their order."""
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position + _HEADER.size <= len(data):
            (
                _, length, _, magic, _, attributes, _, _, _, producer_id, _, base_sequence, count,
            ) = _HEADER.unpack_from(data, position)  # fmt: skip
            if length == 0:  # a segment that was allocated ahead
                break
            assert magic == 2, f"{segment} has a batch of format {magic}"
            yield StoredBatch(CODECS[attributes & 7], producer_id, base_sequence, count)
            position += _LENGTH_FROM + length
