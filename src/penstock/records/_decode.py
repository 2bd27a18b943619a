"""Decodes records: the hot loops from bytes to objects, columns and validation results.

This file is plain Python and runs uncompiled. If a C compiler is available at installation, Cython
compiles the same source with the C types that `_decode.pxd` adds, and the compiled module is
imported instead. The functions from `_pure.py` have C counterparts in `_inline.pxd`; a parity test
runs both forms on the same input. `_encode.py` and `_murmur2.py` work in the same way. All decoding
loops are in this one file because a C compiler inlines the decoding of a record only within a file,
which halves the time.

A record of a v2 batch, all varints zigzag:

    varint   length of the rest
    int8     attributes, unused
    varlong  timestamp, relative to the batch's base timestamp
    varint   offset, relative to the batch's base offset
    varint   length of the key, -1 for null; the key
    varint   length of the value, -1 for null; the value
    varint   number of headers; for each: length of its name, the name, length of its value
             (-1 for null), the value

The compiled form does not check bounds, so every index is compared with the end first. Positions
are relative to the start of the buffer; a negative position means a failure, which the caller
reports.
"""

from types import SimpleNamespace
from typing import TypeVar

from crc32c import crc32c

from penstock.core.buffers import Buffer
from penstock.core.errors import CorruptRecordError
from penstock.records._interpreter_lock import RECORDS_AT_ONCE, let_others_run
from penstock.records.batch import BatchHeader
from penstock.records.record import Record

try:
    import cython
except ModuleNotFoundError:
    cython = SimpleNamespace(compiled=False)

if not cython.compiled:
    from penstock.records._pure import (
        int16_at,
        int32_at,
        int32s_of,
        int64_at,
        int64s_of,
        move_in,
        named,
        put_int32,
        put_int64,
        slice_of,
        source_of,
        target_of,
        text_of,
        view_of,
        wrapping_add,
    )

T = TypeVar("T", bound=tuple[object, ...])

_NO_TIMESTAMP = -1
_MAX_INT64 = 2**63 - 1
_LATEST_MS = (2**63 - 1) // 1000
_MASK_32 = 2**32 - 1
_MASK_64 = 2**64 - 1

_PAUSE_MASK = RECORDS_AT_ONCE - 1
_BAD_LENGTH = -1
_TOO_LONG = -2
_BAD_FIELD = -3
_BAD_HEADERS = -4
_NOT_FILLED = -5

_REASONS = {
    _BAD_LENGTH: "its length is not a varint, or is incomplete",
    _TOO_LONG: "its length is negative, or exceeds the rest of the batch",
    _BAD_FIELD: "a field is not a varint, or exceeds the record",
    _BAD_HEADERS: "its headers are invalid, or exceed the record",
    _NOT_FILLED: "its fields end before the record does",
}


def _invalid_record(index: int, reason: int) -> CorruptRecordError:
    return CorruptRecordError(f"record {index} of the batch: {_REASONS[reason]}")


def _trailing_bytes(count: int, size: int) -> CorruptRecordError:
    return CorruptRecordError(f"{size} bytes follow the {count} records that the batch claims")


def _varint(p: memoryview, pos: int, end: int) -> tuple[int, int]:
    """Returns a zigzag varint of up to 32 bits, and the position after it or -1.

    Most varints take one or two bytes; these are read without the loop.
    """
    if pos < end:
        value = p[pos]
        if value < 0x80:
            return (value >> 1) ^ -(value & 1), pos + 1
        if pos + 1 < end and p[pos + 1] < 0x80:
            value = (value & 0x7F) | (p[pos + 1] << 7)
            return (value >> 1) ^ -(value & 1), pos + 2
    return _longer_varint(p, pos, end, 28, _MASK_32)


def _varlong(p: memoryview, pos: int, end: int) -> tuple[int, int]:
    """Returns a zigzag varint of up to 64 bits, and the position after it or -1."""
    if pos < end:
        value = p[pos]
        if value < 0x80:
            return (value >> 1) ^ -(value & 1), pos + 1
        if pos + 1 < end and p[pos + 1] < 0x80:
            value = (value & 0x7F) | (p[pos + 1] << 7)
            return (value >> 1) ^ -(value & 1), pos + 2
    return _longer_varint(p, pos, end, 63, _MASK_64)


def _longer_varint(p: memoryview, pos: int, end: int, most: int, mask: int) -> tuple[int, int]:
    """Reads a varint of any length; `most` is the largest possible shift."""
    value = 0
    shift = 0
    while pos < end and shift <= most:
        byte = p[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= mask
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
    return 0, -1


def _skip_headers(p: memoryview, pos: int, end: int, count: int) -> int:
    """Returns the position after `count` headers, or -1."""
    for _ in range(count):
        size, pos = _varint(p, pos, end)
        if pos < 0 or size < 0 or size > end - pos:
            return -1
        pos += size
        size, pos = _varint(p, pos, end)
        if pos < 0 or size > end - pos:
            return -1
        if size > 0:
            pos += size
    return pos


def _read(p: memoryview, pos: int, end: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Returns the positions of the parts of the record at `pos`, all checked against `end`.

    These are: the position after the record (or a negative reason of failure), its timestamp delta
    and offset delta, start and size of its key and of its value (negative sizes for null), start
    and number of its headers.
    """
    size, pos = _varint(p, pos, end)
    if pos < 0:
        return _BAD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0
    if size < 0 or size > end - pos:
        return _TOO_LONG, 0, 0, 0, 0, 0, 0, 0, 0
    after = pos + size
    timestamp, pos = _varlong(p, pos + 1, after)
    if pos < 0:
        return _BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    offset, pos = _varint(p, pos, after)
    if pos < 0:
        return _BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    key_size, key_at = _varint(p, pos, after)
    if key_at < 0 or key_size > after - key_at:
        return _BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    pos = key_at
    if key_size > 0:
        pos += key_size
    value_size, value_at = _varint(p, pos, after)
    if value_at < 0 or value_size > after - value_at:
        return _BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    pos = value_at
    if value_size > 0:
        pos += value_size
    count, headers_at = _varint(p, pos, after)
    if headers_at < 0:
        return _BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    pos = headers_at
    if count != 0:
        if count < 0 or count > after - pos:
            return _BAD_HEADERS, 0, 0, 0, 0, 0, 0, 0, 0
        pos = _skip_headers(p, pos, after, count)
        if pos < 0:
            return _BAD_HEADERS, 0, 0, 0, 0, 0, 0, 0, 0
    if pos != after:
        return _NOT_FILLED, 0, 0, 0, 0, 0, 0, 0, 0
    return after, timestamp, offset, key_at, key_size, value_at, value_size, headers_at, count


def _decode_headers(
    p: memoryview, pos: int, end: int, count: int
) -> tuple[tuple[str, bytes | None], ...]:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, pos = _varint(p, pos, end)
        name = text_of(p, pos, pos + size)
        pos += size
        size, pos = _varint(p, pos, end)
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, slice_of(p, pos, pos + size)))
            pos += size
    return tuple(headers)


def decode_records(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    has_append_time: bool,
) -> list[Record]:
    """Returns the `count` records of `buffer[start:end]`, which they must fill exactly.

    With `has_append_time`, every record has the timestamp `append_time`.
    """
    view = view_of(buffer, start, end)
    p = source_of(view)
    pos = start
    kind = Record
    records: list[Record] = []
    timestamp = append_time
    for index in range(count):
        after, ts, delta, key_at, key_n, value_at, value_n, head_at, head_n = _read(p, pos, end)
        if after < 0:
            raise _invalid_record(index, after)
        if not has_append_time:
            timestamp = wrapping_add(base_timestamp, ts)
        records.append(
            named(
                kind,
                (
                    wrapping_add(base_offset, delta),
                    timestamp,
                    None if key_n < 0 else slice_of(p, key_at, key_at + key_n),
                    None if value_n < 0 else slice_of(p, value_at, value_at + value_n),
                    () if head_n == 0 else _decode_headers(p, head_at, after, head_n),
                ),
            )
        )
        pos = after
    if pos != end:
        raise _trailing_bytes(count, end - pos)
    return records


def decode_consumed(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    has_append_time: bool,
    from_offset: int,
    kind: type[T],
    topic: str,
    partition: int,
    timestamp_type: int,
    leader_epoch: int,
) -> list[T]:
    """Returns the records from `from_offset` as a consumer returns them to its user.

    Like `decode_records`, but with NamedTuples of `kind`: topic, partition, offset, timestamp,
    timestamp type, key, value, headers, leader epoch.
    """
    view = view_of(buffer, start, end)
    p = source_of(view)
    pos = start
    records: list[T] = []
    timestamp = append_time
    for index in range(count):
        after, ts, delta, key_at, key_n, value_at, value_n, head_at, head_n = _read(p, pos, end)
        if after < 0:
            raise _invalid_record(index, after)
        pos = after
        offset = wrapping_add(base_offset, delta)
        if offset < from_offset:
            continue
        if not has_append_time:
            timestamp = wrapping_add(base_timestamp, ts)
        records.append(
            named(
                kind,
                (
                    topic,
                    partition,
                    offset,
                    timestamp,
                    timestamp_type,
                    None if key_n < 0 else slice_of(p, key_at, key_at + key_n),
                    None if value_n < 0 else slice_of(p, value_at, value_at + value_n),
                    () if head_n == 0 else _decode_headers(p, head_at, after, head_n),
                    leader_epoch,
                ),
            )
        )
    if pos != end:
        raise _trailing_bytes(count, end - pos)
    return records


def _scan(
    p: memoryview, start: int, end: int, count: int, base_timestamp: int
) -> tuple[bool, int, int, int]:
    pos = start
    sequential = True
    null_keys = 0
    earliest = _MAX_INT64
    latest = _NO_TIMESTAMP
    for index in range(count):
        if index and index & _PAUSE_MASK == 0:
            let_others_run()
        after, ts, delta, _ka, key_n, _va, _vn, _ha, _hn = _read(p, pos, end)
        if after < 0:
            raise _invalid_record(index, after)
        timestamp = wrapping_add(base_timestamp, ts)
        if timestamp < earliest and timestamp != _NO_TIMESTAMP:
            earliest = timestamp
        if timestamp > latest:
            latest = timestamp
        if delta != index:
            sequential = False
        if key_n < 0:
            null_keys += 1
        pos = after
    if pos != end:
        raise _trailing_bytes(count, end - pos)
    return sequential, null_keys, earliest, latest


def scan_records(
    buffer: Buffer, start: int, end: int, count: int, base_timestamp: int
) -> tuple[bool, int, int, int]:
    """Returns what validation needs to know about the `count` records of `buffer[start:end]`.

    These are: whether the offset deltas are 0, 1, 2 and so on, how many records have no key, and
    their smallest and largest timestamp (2**63 - 1 and -1 if no record has one).
    """
    view = view_of(buffer, start, end)
    p = source_of(view)
    sequential, null_keys, earliest, latest = _scan(p, start, end, count, base_timestamp)
    return sequential, null_keys, earliest, latest


def assign_in_place(
    buffer: Buffer,
    next_offset: int,
    leader_epoch: int,
    max_size: int,
    earliest: int,
    latest: int,
    needs_keys: bool,
) -> BatchHeader | None:
    """Validates a client's uncompressed v2 batch and assigns its offset and leader epoch in place.

    This is the fast path of nearly every append; it checks what `validate` checks and returns the
    header. Returns None, and changes nothing, for anything unusual (read-only, compressed, control,
    log append time, a wrong max timestamp) and for everything that must be refused.
    """
    view = view_of(buffer, 0, 0)
    size = len(view)
    if size < 61 or size > max_size or view.readonly:
        return None
    p = source_of(view)
    attributes = int16_at(p, 21)
    producer_id = int64_at(p, 43)
    producer_epoch = int16_at(p, 51)
    base_sequence = int32_at(p, 53)
    count = int32_at(p, 57)
    if (
        int64_at(p, 0) != 0
        or int32_at(p, 8) != size - 12
        or p[16] != 2
        or (attributes != 0 and (attributes != 0x10 or producer_id < 0))
        or (producer_id >= 0 and (producer_epoch < 0 or base_sequence < 0))
        or count <= 0
        or int32_at(p, 23) != count - 1
    ):
        return None
    crc = crc32c(view[21:])
    if crc != int32_at(p, 17) & _MASK_32:
        return None
    base_timestamp = int64_at(p, 27)
    max_timestamp = int64_at(p, 35)
    try:
        sequential, null_keys, first_timestamp, last_timestamp = _scan(
            p, 61, size, count, base_timestamp
        )
    except CorruptRecordError:
        return None
    if (
        not sequential
        or (needs_keys and null_keys > 0)
        or first_timestamp < earliest
        or last_timestamp > latest
        or last_timestamp != max_timestamp
    ):
        return None
    q = target_of(view)
    put_int64(q, 0, next_offset)
    put_int32(q, 12, leader_epoch)
    return named(
        BatchHeader,
        (
            next_offset,
            size - 12,
            leader_epoch,
            2,
            crc,
            attributes,
            count - 1,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ),
    )


# --- columns


def measure_columns(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    from_offset: int,
    to_offset: int,
    totals: memoryview,
) -> None:
    """Adds to `totals` the space that the records `from_offset` to `to_offset` (exclusive) need.

    `totals` has nine int64: rows, bytes of keys, null keys, bytes of values, null values, headers,
    bytes of header names, bytes of header values, null header values.
    """
    view = view_of(buffer, start, end)
    p = source_of(view)
    t = int64s_of(totals)
    if len(totals) < 9:
        raise ValueError("totals must have nine int64")
    pos = start
    rows = key_bytes = null_keys = value_bytes = null_values = 0
    headers = name_bytes = head_bytes = null_heads = 0
    for index in range(count):
        after, _ts, delta, _ka, key_n, _va, value_n, head_at, head_n = _read(p, pos, end)
        if after < 0:
            raise _invalid_record(index, after)
        pos = after
        offset = wrapping_add(base_offset, delta)
        if offset < from_offset or offset >= to_offset:
            continue
        rows += 1
        if key_n < 0:
            null_keys += 1
        else:
            key_bytes += key_n
        if value_n < 0:
            null_values += 1
        else:
            value_bytes += value_n
        if head_n != 0:
            headers += head_n
            at = head_at
            for _ in range(head_n):
                size, at = _varint(p, at, after)
                name_bytes += size
                size, at = _varint(p, at + size, after)
                if size < 0:
                    null_heads += 1
                else:
                    head_bytes += size
                    at += size
    if pos != end:
        raise _trailing_bytes(count, end - pos)
    t[0] += rows
    t[1] += key_bytes
    t[2] += null_keys
    t[3] += value_bytes
    t[4] += null_values
    t[5] += headers
    t[6] += name_bytes
    t[7] += head_bytes
    t[8] += null_heads


def fill_columns(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    has_append_time: bool,
    from_offset: int,
    to_offset: int,
    columns: tuple[memoryview, ...],
    cursor: memoryview,
) -> None:
    """Appends the records `from_offset` to `to_offset` (exclusive) to `columns`.

    `columns`: offsets, timestamps (int64); ends of the keys (int32), keys, validity bits of the
    keys (empty if none is null); the same three for the values; ends of the headers of each row
    (int32), empty to leave headers out; ends of the header names (int32), names; ends of the header
    values (int32), header values, validity bits of the header values. Every column of ends starts
    with a 0. `cursor` has six int64 that tell how far the columns are filled: rows, bytes of keys,
    bytes of values, headers, bytes of header names, bytes of header values.
    """
    view = view_of(buffer, start, end)
    p = source_of(view)
    at = int64s_of(cursor)
    offsets = int64s_of(columns[0])
    timestamps = int64s_of(columns[1])
    key_ends = int32s_of(columns[2])
    keys = target_of(columns[3])
    key_bits = target_of(columns[4])
    value_ends = int32s_of(columns[5])
    values = target_of(columns[6])
    value_bits = target_of(columns[7])
    head_ends = int32s_of(columns[8])
    name_ends = int32s_of(columns[9])
    names = target_of(columns[10])
    head_value_ends = int32s_of(columns[11])
    head_values = target_of(columns[12])
    head_bits = target_of(columns[13])
    has_heads = len(columns[8]) > 0
    room = min(len(columns[0]), len(columns[1]), len(columns[2]) - 1, len(columns[5]) - 1)
    if has_heads:
        room = min(room, len(columns[8]) - 1)
    key_room = len(columns[3])
    value_room = len(columns[6])
    head_room = min(len(columns[9]), len(columns[11])) - 1
    name_room = len(columns[10])
    head_value_room = len(columns[12])
    has_key_bits = len(columns[4]) > 0
    has_value_bits = len(columns[7]) > 0
    has_head_bits = len(columns[13]) > 0
    if (
        len(cursor) < 6
        or (has_key_bits and 8 * len(columns[4]) < room)
        or (has_value_bits and 8 * len(columns[7]) < room)
        or (has_head_bits and 8 * len(columns[13]) < head_room)
    ):
        raise ValueError("the columns have inconsistent sizes")
    row, key_pos, value_pos, head_row = at[0], at[1], at[2], at[3]
    name_pos, head_pos = at[4], at[5]
    timestamp = append_time
    pos = start
    for index in range(count):
        after, ts, delta, key_at, key_n, value_at, value_n, head_at, head_n = _read(p, pos, end)
        if after < 0:
            raise _invalid_record(index, after)
        pos = after
        offset = wrapping_add(base_offset, delta)
        if offset < from_offset or offset >= to_offset:
            continue
        if row >= room or key_n > key_room - key_pos or value_n > value_room - value_pos:
            raise ValueError("the columns are too small")
        offsets[row] = offset
        if not has_append_time:
            timestamp = wrapping_add(base_timestamp, ts)
        timestamps[row] = timestamp
        if key_n >= 0:
            move_in(keys, key_pos, p, key_at, key_n)
            key_pos += key_n
            if has_key_bits:
                key_bits[row >> 3] |= 1 << (row & 7)
        if value_n >= 0:
            move_in(values, value_pos, p, value_at, value_n)
            value_pos += value_n
            if has_value_bits:
                value_bits[row >> 3] |= 1 << (row & 7)
        if has_heads and head_n != 0:
            if head_n > head_room - head_row:
                raise ValueError("the columns are too small")
            for _ in range(head_n):
                size, head_at = _varint(p, head_at, after)
                if size > name_room - name_pos:
                    raise ValueError("the columns are too small")
                move_in(names, name_pos, p, head_at, size)
                name_pos += size
                size, head_at = _varint(p, head_at + size, after)
                if size >= 0:
                    if size > head_value_room - head_pos:
                        raise ValueError("the columns are too small")
                    move_in(head_values, head_pos, p, head_at, size)
                    head_pos += size
                    head_at += size
                    if has_head_bits:
                        head_bits[head_row >> 3] |= 1 << (head_row & 7)
                head_row += 1
                name_ends[head_row] = name_pos
                head_value_ends[head_row] = head_pos
        row += 1
        key_ends[row] = key_pos
        value_ends[row] = value_pos
        if has_heads:
            head_ends[row] = head_row
    if pos != end:
        raise _trailing_bytes(count, end - pos)
    at[0], at[1], at[2], at[3] = row, key_pos, value_pos, head_row
    at[4], at[5] = name_pos, head_pos


def to_microseconds(timestamps: memoryview) -> None:
    """Converts milliseconds (int64) to microseconds in place, saturating at the limits."""
    t = int64s_of(timestamps)
    for index in range(len(timestamps)):
        value = t[index]
        if value > _LATEST_MS:
            value = _LATEST_MS
        elif value < -_LATEST_MS:
            value = -_LATEST_MS
        t[index] = value * 1000
