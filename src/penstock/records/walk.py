"""Walks over encoded v2 records without decoding them: memory does not depend on their contents.

A record as an object takes some 200 bytes, and its headers as many as the client likes, though a
batch may have one for every 7 bytes of its decompressed size. `_decode.py` is ten times as fast and
used wherever that does not matter.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.buffers import Buffer
from penstock.core.errors import CorruptRecordError
from penstock.records.batch import HEADER_SIZE

_MASK_64 = 2**64 - 1
_SIGN_64 = 2**63


class RecordSpan(NamedTuple):
    """The parts of a record, as positions in the buffer of its batch."""

    timestamp_delta: int
    offset_delta: int
    key_size_at: int
    """Where the key, the value and the headers begin, with the size of the key."""
    key_at: int
    key_size: int
    """-1 if there is no key."""
    end: int


class Renumbered(NamedTuple):
    """Encoded records with consecutive offset deltas, behind room for the header of a batch."""

    batch: bytearray
    base_timestamp: int


def walk_records(source: Buffer, start: int, end: int, count: int) -> Iterator[RecordSpan]:
    """Yields the `count` records of `source[start:end]`; raises CorruptRecordError at a bad one.

    Values and headers are not checked: `_decode.scan_records` does that.
    """
    position = start
    try:
        for index in range(count):
            size, body = _varint(source, position)
            position = body + size
            if size < 0 or position > end:
                raise _damaged(index)
            timestamp_delta, at = _varint(source, body + 1)
            offset_delta, key_size_at = _varint(source, at)
            key_size, key_at = _varint(source, key_size_at)
            if key_at + max(key_size, 0) > position:
                raise _damaged(index)
            yield RecordSpan(timestamp_delta, offset_delta, key_size_at, key_at, key_size, position)
    except IndexError:
        raise CorruptRecordError("the last record of the batch is incomplete") from None


def value_of(source: Buffer, record: RecordSpan) -> bytes | None:
    size, at = _varint(source, record.key_at + max(record.key_size, 0))
    return None if size < 0 else bytes(source[at : at + size])


def key_of(source: Buffer, record: RecordSpan) -> bytes | None:
    if record.key_size < 0:
        return None
    return bytes(source[record.key_at : record.key_at + record.key_size])


def renumber(
    source: Buffer, start: int, end: int, count: int, base_timestamp: int, append_time: int | None
) -> Renumbered:
    """Returns a copy of valid records with the offset deltas 0, 1, 2 and so on.

    Their timestamps count from the first of them; with `append_time` all of them have that one.
    """
    batch = bytearray(HEADER_SIZE)
    first_delta = 0
    with memoryview(source) as view:
        for index, record in enumerate(walk_records(source, start, end, count)):
            if index == 0:
                first_delta = record.timestamp_delta
            delta = 0
            if append_time is None:
                delta = wrapping(record.timestamp_delta - first_delta)
            head = b"\0" + _encoded(delta) + _encoded(index)
            rest = view[record.key_size_at : record.end]
            batch += _encoded(len(head) + len(rest))
            batch += head
            batch += rest
    if append_time is not None:
        return Renumbered(batch, append_time)
    return Renumbered(batch, wrapping(base_timestamp + first_delta))


def wrapping(value: int) -> int:
    """Returns a sum or difference of 64-bit numbers as Java computes it."""
    return ((value + _SIGN_64) & _MASK_64) - _SIGN_64


def _varint(source: Buffer, position: int) -> tuple[int, int]:
    """Returns a zigzag varint and the position after it; IndexError at the end of the buffer."""
    code = source[position]
    position += 1
    if code >= 0x80:
        code &= 0x7F
        shift = 7
        while True:
            byte = source[position]
            position += 1
            code |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise CorruptRecordError("a field of a record is not a varint")
        code &= _MASK_64
    return (code >> 1) ^ -(code & 1), position


def _encoded(value: int) -> bytes:
    """Returns a zigzag varint."""
    code = ((value << 1) ^ (value >> 63)) & _MASK_64
    if code < 0x80:
        return _ONE_BYTE[code]
    out = bytearray()
    while code >= 0x80:
        out.append(code & 0x7F | 0x80)
        code >>= 7
    out.append(code)
    return bytes(out)


_ONE_BYTE = [bytes([code]) for code in range(0x80)]


def _damaged(index: int) -> CorruptRecordError:
    return CorruptRecordError(f"record {index} of the batch: a size exceeds the rest of the batch")
