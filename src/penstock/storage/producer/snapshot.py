"""The format of a `.snapshot` file: the producers of a partition at one offset.

    offset  size  field
         0     2  version, 1
         2     4  CRC-32C of everything from byte 6 on
         6     4  number of producers
        10        46 bytes for each: producer id (8), epoch (2), last sequence (4), last offset
                  (8), offset delta (4), timestamp (8), coordinator epoch (4), first offset of the
                  open transaction (8), -1 if there is none

Only the last batch of a producer is stored. Numbers are big-endian.
"""

from collections.abc import Iterable
from struct import Struct

from crc32c import crc32c

from penstock.core.buffers import Buffer
from penstock.storage.producer.append_info import BatchMetadata, ProducerStateEntry

_VERSION = 1
_HEADER = Struct(">hIi")
_CRC_START = 6
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshotError(Exception):
    """A snapshot file is invalid; the next older one is used instead."""


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Returns the content of a snapshot file."""
    rows = [
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
        )
        for entry in entries
    ]
    data = bytearray(_HEADER.pack(_VERSION, 0, len(rows)) + b"".join(rows))
    _HEADER.pack_into(data, 0, _VERSION, crc32c(memoryview(data)[_CRC_START:]), len(rows))
    return bytes(data)


def decode_snapshot(data: Buffer) -> list[ProducerStateEntry]:
    """Returns the producers in a snapshot file; raises `CorruptSnapshotError` if it is invalid."""
    if len(data) < _HEADER.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few for a snapshot")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(f"version {version} is not supported, only {_VERSION}")
    computed = crc32c(memoryview(data)[_CRC_START:])
    if crc != computed:
        raise CorruptSnapshotError(f"CRC is {crc:#010x}, the bytes give {computed:#010x}")
    if count < 0 or _HEADER.size + count * _ENTRY.size > len(data):
        raise CorruptSnapshotError(f"{count} producers do not fit into {len(data)} bytes")
    rows = memoryview(data)[_HEADER.size : _HEADER.size + count * _ENTRY.size]
    return [_entry(*row) for row in _ENTRY.iter_unpack(rows)]


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerStateEntry:
    batch = BatchMetadata(last_sequence, last_offset, offset_delta, timestamp)
    return ProducerStateEntry(
        producer_id,
        epoch,
        coordinator_epoch,
        timestamp,
        txn_first_offset if txn_first_offset >= 0 else None,
        (batch,) if last_offset >= 0 else (),
    )
