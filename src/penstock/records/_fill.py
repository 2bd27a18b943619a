"""Writing records: the hot loops from objects and columns to bytes.

Plain Python that is compiled where possible, as `_hot.py` says, which also has the layout of a
record. Bounds are not checked by the compiled form either: whoever writes makes room before.
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
    from penstock.records._plain import (
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
    """Write the already zigzagged `value`; there must be room. Returns the position after it."""
    while value >= 0x80:
        q[pos] = (value & 0x7F) | 0x80
        pos += 1
        value >>= 7
    q[pos] = value
    return pos + 1


def _encode_headers(headers: Headers) -> bytes:
    """The headers with their number, as they follow the value."""
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
    """Bytes of a record after its length. Sizes of key and value are -1 for null."""
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
    """Write a record of `body` bytes; there must be room. Returns the position after it."""
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
    """Write a record into `out` at `pos`, making room for it, and return where it ends."""
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
    """The records behind `reserve` bytes for a header; their last offset; their latest timestamp.

    Offsets must rise and stay within 2**31 - 1 of the base offset (`InvalidRecordError`). Where
    there is no record or no timestamp: the base offset - 1, and -1.
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
                f"rise and stay within {_MAX_INT32} of the base offset"
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
    """The records of one batch as they come, written into `out` behind the room for a header.

    There is room up to `limit` bytes of the finished batch; the first record always has it. With a
    `ratio` above 0 the records will be compressed, to about that part of their size. Where they
    need more than the `out` that was given, they move to a larger one.
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
        """Close it and let go of the bytes; what was counted stays."""
        self.out = grown(self.out, 0, 0)
        self.closed = True

    def estimated_size(self) -> int:
        """Bytes that the batch would have if it were finished now."""
        if self.ratio <= 0:
            return self.end
        return _HEADER_SIZE + whole((self.end - _HEADER_SIZE) * self.ratio)

    def is_full(self) -> bool:
        return self.closed or (self.count > 0 and self.estimated_size() >= self.limit)

    def _put(
        self, timestamp: int, key: bytes | None, value: bytes | None, encoded_headers: bytes
    ) -> int:
        """Write a record, unless it has no room: then 0, and nothing changes. Else its size."""
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
        """Bytes that the record takes before compression, or 0 where it finds no room.

        `InvalidRecordError`: a timestamp below -1, or a record larger than 2 GiB.
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
        """`append`, with a receipt: a NamedTuple of `kind`, or None where there is no room.

        Its fields: `owner`, the record's number in the batch, its timestamp, the sizes of its key
        and its value (-1 for null).
        """
        number = self.count
        size = self._put(
            to_int64(timestamp), key, value, _encode_headers(headers) if headers else b"\x00"
        )
        if size == 0:
            return None
        return named(
            kind,
            (
                owner,
                number,
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
        """Append many records, and return the position of the first that finds no room, or `stop`.

        They are `values[order[i]]` for i from `start` on, or `values[i]` without an `order`;
        `keys` and `timestamps` (int64) go with the values, `timestamp` is for all where there are
        none. `order` is int32.
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
        each = to_int64(timestamp)
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
                each = times[index]
            value = bytes_or_none(values, index)
            if self._put(each, key, value, encoded_headers) == 0:
                break
            position += 1
        return position


def size_upper_bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most bytes that a batch of this one record takes before compression.

    It is what Kafka's producer compares with its limits: fields of fixed size count as the most
    that their varints can take.
    """
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    headers_size = len(_encode_headers(headers)) if headers else 1
    return _HEADER_SIZE + 18 + _body_size(0, 0, key_size, value_size, headers_size)


def measure_records(
    values: list[bytes | None], keys: list[bytes | None] | None, sizes: memoryview
) -> int:
    """Check that all are bytes or None (TypeError), and return the most bytes of a key and value.

    `sizes` (int32) takes two for each record: the sizes of its key and of its value, -1 for null.
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
