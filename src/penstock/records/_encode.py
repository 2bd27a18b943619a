"""Encodes records: the hot loops from objects and columns to bytes.

Compiled if possible; `_decode.py` explains how and describes the layout of a record. The compiled
form does not check bounds, so the code makes room before it writes.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TypeAlias

from penstock.core.errors import InvalidRecordError
from penstock.records.record import Record

try:
    import cython
except ModuleNotFoundError:
    cython = SimpleNamespace(compiled=False)

if not cython.compiled:
    from penstock.records._pure import (
        Named,
        bytes_of,
        bytes_or_none,
        copy_in,
        fields_of,
        grown,
        int32s_of,
        int64s_of,
        named,
        resize,
        slice_of,
        source_of,
        to_int64,
        utf8_of,
        whole,
        wrapping_subtract,
        zigzag,
    )

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_HEADER_SIZE = 61
_NO_TIMESTAMP = -1
_MAX_INT32 = 2**31 - 1
_NO_INT32S = memoryview(bytearray(0)).cast("i")
_NO_INT64S = memoryview(bytearray(0)).cast("q")


def _varint_size(value: int) -> int:
    size = 1
    value >>= 7
    while value:
        size += 1
        value >>= 7
    return size


def _write_varint(q: bytearray, pos: int, value: int) -> int:
    """Writes a zigzag-encoded `value`, for which there must be room; returns its end."""
    while value >= 0x80:
        q[pos] = (value & 0x7F) | 0x80
        pos += 1
        value >>= 7
    q[pos] = value
    return pos + 1


def _encode_headers(headers: Headers) -> bytes:
    """Returns the encoded header count and headers, as they follow a record's value."""
    out = bytearray(64)
    q = bytes_of(out)
    pos = _write_varint(q, 0, zigzag(len(headers)))
    for name, value in headers:
        encoded = utf8_of(name)
        value_size = -1 if value is None else len(value)
        if len(encoded) + value_size + 10 > len(out) - pos:
            resize(out, 2 * (pos + len(encoded) + value_size + 10))
            q = bytes_of(out)
        pos = _write_varint(q, pos, zigzag(len(encoded)))
        copy_in(q, pos, encoded)
        pos = _write_varint(q, pos + len(encoded), zigzag(value_size))
        if value is not None:
            copy_in(q, pos, value)
            pos += value_size
    return slice_of(source_of(memoryview(out)), 0, pos)


def _body_size(
    timestamp_code: int, offset_code: int, key_size: int, value_size: int, headers_size: int
) -> int:
    """Returns the size of a record without its length. Null keys and values have size -1."""
    body = 1 + _varint_size(timestamp_code) + _varint_size(offset_code) + headers_size
    body += _varint_size(zigzag(key_size)) + _varint_size(zigzag(value_size))
    if key_size > 0:
        body += key_size
    if value_size > 0:
        body += value_size
    return body


def _write_record(
    q: bytearray,
    pos: int,
    body: int,
    timestamp_code: int,
    offset_code: int,
    key: bytes | None,
    key_size: int,
    value: bytes | None,
    value_size: int,
    encoded_headers: bytes,
) -> int:
    """Writes a record of `body` bytes, for which there must be room; returns its end."""
    pos = _write_varint(q, pos, zigzag(body))
    q[pos] = 0
    pos = _write_varint(q, pos + 1, timestamp_code)
    pos = _write_varint(q, pos, offset_code)
    pos = _write_varint(q, pos, zigzag(key_size))
    if key is not None:
        copy_in(q, pos, key)
        pos += key_size
    pos = _write_varint(q, pos, zigzag(value_size))
    if value is not None:
        copy_in(q, pos, value)
        pos += value_size
    copy_in(q, pos, encoded_headers)
    return pos + len(encoded_headers)


def append_record(
    out: bytearray,
    pos: int,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> int:
    """Writes a record into `out` at `pos`, growing `out` if needed; returns its end."""
    encoded_headers = _encode_headers(headers) if headers else b"\x00"
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    timestamp_code = zigzag(timestamp_delta)
    offset_code = zigzag(offset_delta)
    body = _body_size(timestamp_code, offset_code, key_size, value_size, len(encoded_headers))
    room = len(out)
    if pos < 0 or pos > room:
        raise ValueError(f"position {pos} in a buffer of {room} bytes")
    if body > _MAX_INT32 - pos:
        raise InvalidRecordError(f"a record of {body} bytes does not fit into a batch")
    if body + 5 > room - pos:
        resize(out, max(2 * room, pos + body + 5))
    return _write_record(
        bytes_of(out),
        pos,
        body,
        timestamp_code,
        offset_code,
        key,
        key_size,
        value,
        value_size,
        encoded_headers,
    )


def encode_records(
    records: Sequence[Record], reserve: int, base_offset: int, base_timestamp: int
) -> tuple[bytearray, int, int]:
    """Returns the encoded records behind `reserve` free bytes, their last offset and max timestamp.

    Without records the last offset is the base offset - 1; without timestamps the max timestamp is
    -1. Raises InvalidRecordError unless offsets increase and stay within 2**31 - 1 of the base.
    """
    if base_offset < 0:
        raise InvalidRecordError(f"a batch cannot start at offset {base_offset}")
    out = bytearray(reserve + 64 * len(records))
    pos = reserve
    previous = base_offset - 1
    latest = _NO_TIMESTAMP
    for record in records:
        fields = fields_of(record)
        offset = to_int64(fields[0])
        timestamp = to_int64(fields[1])
        if offset <= previous or offset - base_offset > _MAX_INT32:
            raise InvalidRecordError(
                f"offset {offset} after {previous} in a batch from {base_offset}: offsets must "
                f"increase and stay within {_MAX_INT32} of the base offset"
            )
        previous = offset
        if timestamp > latest:
            latest = timestamp
        pos = append_record(
            out,
            pos,
            wrapping_subtract(timestamp, base_timestamp),
            offset - base_offset,
            fields[2],
            fields[3],
            fields[4],
        )
    resize(out, pos)
    return out, previous, latest


class Filler:
    """Writes the records of one batch into `out`, behind free space for the header.

    The finished batch takes up to `limit` bytes; the first record always fits. A `ratio` above 0
    means that the records will be compressed to about this fraction of their size. `out` is
    replaced by a larger buffer if the records do not fit into it.
    """

    def __init__(self, out: bytearray, limit: int, ratio: float) -> None:
        self.out = out if len(out) >= _HEADER_SIZE else grown(out, 0, _HEADER_SIZE)
        self.limit = limit
        self.ratio = ratio
        self.end = _HEADER_SIZE
        self.count = 0
        self.base_timestamp = _NO_TIMESTAMP
        self.max_timestamp = _NO_TIMESTAMP
        self.closed = False

    def drop(self) -> None:
        """Closes the batch and releases its bytes; the counters keep their values."""
        self.out = grown(self.out, 0, 0)
        self.closed = True

    def estimated_size(self) -> int:
        """Returns the size that the batch would have if it were finished now."""
        if self.ratio <= 0:
            return self.end
        return _HEADER_SIZE + whole((self.end - _HEADER_SIZE) * self.ratio)

    def is_full(self) -> bool:
        return self.closed or (self.count > 0 and self.estimated_size() >= self.limit)

    def _put(
        self, timestamp: int, key: bytes | None, value: bytes | None, encoded_headers: bytes
    ) -> int:
        """Writes a record and returns its size; returns 0 if there is no room for it."""
        if timestamp < _NO_TIMESTAMP:
            raise InvalidRecordError(f"timestamp {timestamp} is below -1")
        if self.closed:
            return 0
        pos = self.end
        count = self.count
        base = timestamp if count == 0 else self.base_timestamp
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        timestamp_code = zigzag(wrapping_subtract(timestamp, base))
        offset_code = zigzag(count)
        body = _body_size(timestamp_code, offset_code, key_size, value_size, len(encoded_headers))
        if body > _MAX_INT32 - pos - 5 or count == _MAX_INT32:
            if count > 0:
                return 0
            raise InvalidRecordError(f"a record of {body} bytes does not fit into a batch")
        size = body + _varint_size(zigzag(body))
        if count > 0:
            estimated = self.estimated_size()
            if estimated >= self.limit or size > self.limit - estimated:
                return 0
        room = len(self.out)
        if size > room - pos:
            self.out = grown(self.out, pos, max(2 * room, pos + size))
        _write_record(
            bytes_of(self.out),
            pos,
            body,
            timestamp_code,
            offset_code,
            key,
            key_size,
            value,
            value_size,
            encoded_headers,
        )
        self.base_timestamp = base
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.end = pos + size
        self.count = count + 1
        return size

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        """Adds a record; returns its uncompressed size, or 0 if there is no room for it.

        Raises InvalidRecordError if the timestamp is below -1 or the record exceeds 2 GiB.
        """
        return self._put(
            to_int64(timestamp), key, value, _encode_headers(headers) if headers else b"\x00"
        )

    def append_named(
        self,
        kind: type[Named],
        owner: object,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Named | None:
        """Adds a record; returns a NamedTuple of `kind`, or None if there is no room for it.

        The fields of `kind`: `owner`, the record's index in the batch, its timestamp, the sizes of
        its key and value (-1 for null).
        """
        index = self.count
        size = self._put(
            to_int64(timestamp), key, value, _encode_headers(headers) if headers else b"\x00"
        )
        if size == 0:
            return None
        return named(
            kind,
            (
                owner,
                index,
                timestamp,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
            ),
        )

    def fill(
        self,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        timestamps: memoryview | None,
        timestamp: int,
        headers: Headers,
        order: memoryview | None,
        start: int,
        stop: int,
    ) -> int:
        """Adds many records; returns the position of the first that does not fit, or `stop`.

        The records are `values[order[i]]` for i in `start` to `stop`, or `values[i]` without an
        `order` (int32). `keys` and `timestamps` (int64) belong to the values; `timestamp` applies
        to all records if `timestamps` is None.
        """
        total = len(values)
        has_keys = keys is not None
        has_timestamps = timestamps is not None
        has_order = order is not None
        if (
            (keys is not None and len(keys) != total)
            or (timestamps is not None and len(timestamps) < total)
            or not 0 <= start <= stop <= (total if order is None else len(order))
        ):
            raise ValueError(f"records {start} to {stop} of {total}: columns of unequal length")
        times = int64s_of(timestamps if timestamps is not None else _NO_INT64S)
        numbers = int32s_of(order if order is not None else _NO_INT32S)
        encoded_headers = _encode_headers(headers) if headers else b"\x00"
        record_timestamp = to_int64(timestamp)
        key: bytes | None = None
        position = start
        while position < stop:
            index = position
            if has_order:
                index = numbers[position]
                if index < 0 or index >= total:
                    raise ValueError(f"record {index} of {total}")
            if has_keys:
                key = bytes_or_none(keys, index)
            if has_timestamps:
                record_timestamp = times[index]
            value = bytes_or_none(values, index)
            if self._put(record_timestamp, key, value, encoded_headers) == 0:
                break
            position += 1
        return position


def size_upper_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Returns an upper bound of the uncompressed size of a batch with this one record.

    Kafka's producer compares this bound with its limits: varints count with their maximum size.
    """
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    headers_size = len(_encode_headers(headers)) if headers else 1
    return _HEADER_SIZE + 18 + _body_size(0, 0, key_size, value_size, headers_size)


def measure_records(
    values: list[bytes | None], keys: list[bytes | None] | None, sizes: memoryview
) -> int:
    """Returns the largest size of a key plus value; raises TypeError unless all are bytes or None.

    Writes two items per record to `sizes` (int32): the size of its key and of its value, -1 for
    null.
    """
    total = len(values)
    has_keys = keys is not None
    if (keys is not None and len(keys) != total) or len(sizes) < 2 * total:
        raise ValueError(f"{total} values: columns of unequal length")
    measured = int32s_of(sizes)
    largest = 0
    key: bytes | None = None
    for index in range(total):
        if has_keys:
            key = bytes_or_none(keys, index)
        value = bytes_or_none(values, index)
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        if key_size > _MAX_INT32 or value_size > _MAX_INT32:
            raise InvalidRecordError(f"record {index} is too large for any batch")
        measured[2 * index] = key_size
        measured[2 * index + 1] = value_size
        size = max(key_size, 0) + max(value_size, 0)
        if size > largest:
            largest = size
    return largest
