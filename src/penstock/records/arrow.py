"""Decodes batches into Arrow columns, without a Python object per record.

pyarrow is optional (`pip install penstock[arrow]`) and is imported on first use. The columns:

    offset     int64
    timestamp  int64, milliseconds; -1 if there is none
    key        binary, nullable
    value      binary, nullable
    headers    list of (key: string, value: binary, nullable)

Each batch is read twice: first to measure the space that its records need, then to write them. The
Arrow buffers are written in place and never copied.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from penstock.core.buffers import Buffer
from penstock.records import _decode
from penstock.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    MIN_ENTRY_SIZE,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    Entry,
    first_entry,
    read_header,
    verify,
)
from penstock.records.compress import DEFAULT_DECOMPRESSED_LIMIT
from penstock.records.legacy import convert_to_v2
from penstock.records.read import record_bytes

if TYPE_CHECKING:
    import pyarrow as pa

MAX_OFFSET = 2**63 - 1
_MAX_INT32 = 2**31 - 1


class _Totals(NamedTuple):
    """The space that the records need, as `_decode.measure_columns` measures it."""

    rows: int
    key_bytes: int
    null_keys: int
    value_bytes: int
    null_values: int
    headers: int
    name_bytes: int
    header_value_bytes: int
    null_header_values: int


class ArrowDecoder:
    """Collects batches, then returns them as one `pyarrow.RecordBatch`.

    `keep` is called with the header of each data batch and returns whether to decode it; a
    read_committed consumer leaves out aborted batches in this way. Control batches are always left
    out. `max_bytes` limits the total decompressed size of one result. `headers=False` leaves out
    that column. With `microseconds`, timestamps have Arrow's timestamp type in microseconds UTC.
    """

    def __init__(
        self,
        *,
        keep: Callable[[BatchHeader], bool] | None = None,
        check_crcs: bool = True,
        max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
        headers: bool = True,
        microseconds: bool = False,
    ) -> None:
        self._headers = headers
        self._microseconds = microseconds
        self._keep = keep
        self._check_crcs = check_crcs
        self._max_bytes = max_bytes
        self._reset()

    def _reset(self) -> None:
        self._sources: list[tuple[Buffer, int, int, BatchHeader, int, int]] = []
        self._timestamp_types: list[tuple[int, int]] = []
        self._unpacked_bytes = 0
        self._totals = memoryview(bytearray(8 * len(_Totals._fields))).cast("q")

    @property
    def rows(self) -> int:
        """Number of records collected so far."""
        return int(self._totals[0])

    @property
    def size(self) -> int:
        """Total size of the keys, values and headers collected so far."""
        totals = self._totals
        return int(totals[1] + totals[3] + totals[6] + totals[7])

    @property
    def timestamp_types(self) -> list[tuple[int, int]]:
        """Timestamp types of the collected records, run-length encoded: (type, count)."""
        return list(self._timestamp_types)

    def add(self, buffer: Buffer, *, start_offset: int = 0, end_offset: int = MAX_OFFSET) -> None:
        """Collects the records `start_offset` to `end_offset` (exclusive) of all batches.

        A partial batch at the end, as in a fetch response, is left out. The buffer must not change
        until `finish`. Raises CorruptRecordError or DecompressionLimitError; the batch at fault and
        those after it are not collected then.
        """
        view = memoryview(buffer)
        position = 0
        while (entry := _complete_entry(view, position)) is not None:
            if isinstance(entry, BatchHeader):
                self.add_batch(view, position, entry, start_offset, end_offset)
            else:
                self._add_message(view[position : position + entry.size], start_offset, end_offset)
            position += entry.size

    def add_batch(
        self,
        view: memoryview,
        position: int,
        header: BatchHeader,
        start_offset: int,
        end_offset: int,
    ) -> None:
        """Collects the complete v2 batch at `position`; otherwise like `add`."""
        count = header.records_count
        base_offset = header.base_offset
        attributes = header.attributes
        if (
            count == 0
            or attributes & CONTROL_FLAG
            or base_offset >= end_offset
            or base_offset + header.last_offset_delta < start_offset
            or (self._keep is not None and not self._keep(header))
        ):
            return
        end = position + header.size
        if self._check_crcs and crc32c(view[position + CRC_START : end]) != header.crc:
            verify(view, position, header)
        source: Buffer
        if attributes & CODEC_MASK:
            source, start, end = record_bytes(
                view, position, header, max_bytes=self._max_bytes - self._unpacked_bytes
            )
            self._unpacked_bytes += len(source)
        else:
            source, start = view, position + HEADER_SIZE
        previous_rows = self.rows
        _decode.measure_columns(
            source, start, end, count, base_offset, start_offset, end_offset, self._totals
        )
        self._add_timestamp_type(
            int(attributes & TIMESTAMP_TYPE_FLAG != 0), self.rows - previous_rows
        )
        self._sources.append((source, start, end, header, start_offset, end_offset))

    def _add_timestamp_type(self, timestamp_type: int, rows: int) -> None:
        types = self._timestamp_types
        if types and types[-1][0] == timestamp_type:
            types[-1] = timestamp_type, types[-1][1] + rows
        else:
            types.append((timestamp_type, rows))

    def _add_message(self, message: memoryview, start_offset: int, end_offset: int) -> None:
        """Collects a v0/v1 message by converting it to a v2 batch."""
        limit = self._max_bytes - self._unpacked_bytes
        batch = memoryview(convert_to_v2(message, max_bytes=limit))
        self.add_batch(batch, 0, read_header(batch), start_offset, end_offset)

    def finish(self) -> "pa.RecordBatch":
        """Returns the collected records and resets the decoder.

        Raises ValueError if keys, values or headers exceed the 2 GiB that one Arrow batch can hold.
        """
        totals = _Totals(*self._totals)
        too_large = [
            name for name, total in zip(_Totals._fields, totals, strict=True) if total > _MAX_INT32
        ]
        if too_large:
            raise ValueError(
                f"one Arrow batch cannot hold the {', '.join(too_large)}: decode fewer at once"
            )
        columns = _Columns(totals, headers=self._headers)
        cursor = memoryview(bytearray(8 * 6)).cast("q")
        for source, start, end, header, start_offset, end_offset in self._sources:
            _decode.fill_columns(
                source,
                start,
                end,
                header.records_count,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp,
                header.attributes & TIMESTAMP_TYPE_FLAG != 0,
                start_offset,
                end_offset,
                columns.views,
                cursor,
            )
        self._reset()
        if self._microseconds:
            columns.convert_to_microseconds()
        return columns.record_batch()


def decode_to_arrow(
    buffers: Iterable[Buffer],
    *,
    start_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    keep: Callable[[BatchHeader], bool] | None = None,
    check_crcs: bool = True,
    max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT,
) -> "pa.RecordBatch":
    """Returns the records `start_offset` to `end_offset` (exclusive) of all batches in `buffers`.

    `ArrowDecoder` explains the options and can combine several ranges of offsets in one result.
    """
    decoder = ArrowDecoder(keep=keep, check_crcs=check_crcs, max_bytes=max_bytes)
    for buffer in buffers:
        decoder.add(buffer, start_offset=start_offset, end_offset=end_offset)
    return decoder.finish()


def _complete_entry(view: memoryview, position: int) -> BatchHeader | Entry | None:
    """Returns the batch header or v0/v1 entry at `position`; None if it is incomplete."""
    remaining = len(view) - position
    if remaining < MIN_ENTRY_SIZE:
        return None
    entry: BatchHeader | Entry
    if view[position + MAGIC_AT] != MAGIC:
        entry = first_entry(view, position)
    elif remaining < HEADER_SIZE:
        return None
    else:
        entry = read_header(view, position)
    return entry if entry.size <= remaining else None


class _Columns:
    """Arrow buffers of the right size, and the columns that they form."""

    def __init__(self, totals: _Totals, *, headers: bool) -> None:
        import pyarrow as pa

        self._pa = pa
        self._has_headers = headers
        if not headers:
            totals = totals._replace(headers=0, name_bytes=0, header_value_bytes=0)
        self._totals = totals
        rows = totals.rows
        self._timestamp_type = pa.int64()
        self._offsets = pa.allocate_buffer(8 * rows)
        self._timestamps = pa.allocate_buffer(8 * rows)
        self._keys = self._binary(rows, totals.key_bytes, totals.null_keys)
        self._values = self._binary(rows, totals.value_bytes, totals.null_values)
        self._header_ends = pa.allocate_buffer(4 * (rows + 1))
        self._names = self._binary(totals.headers, totals.name_bytes, 0)
        self._header_values = self._binary(
            totals.headers, totals.header_value_bytes, totals.null_header_values
        )
        self.views = (
            memoryview(self._offsets).cast("B").cast("q"),
            memoryview(self._timestamps).cast("B").cast("q"),
            *self._binary_views(self._keys),
            *self._binary_views(self._values),
            self._ends_view(self._header_ends) if headers else memoryview(bytearray()).cast("i"),
            *self._binary_views(self._names)[:2],
            *self._binary_views(self._header_values),
        )

    def _binary(
        self, length: int, size: int, nulls: int
    ) -> "tuple[pa.Buffer, pa.Buffer, bytearray]":
        """Allocates ends, bytes and, if there are nulls, validity bits of a column."""
        bits = bytearray((length + 7) // 8 if nulls else 0)
        return (
            self._pa.allocate_buffer(4 * (length + 1)),
            self._pa.allocate_buffer(size),
            bits,
        )

    def _binary_views(
        self, column: "tuple[pa.Buffer, pa.Buffer, bytearray]"
    ) -> tuple[memoryview, memoryview, memoryview]:
        ends, data, bits = column
        return self._ends_view(ends), memoryview(data).cast("B"), memoryview(bits)

    @staticmethod
    def _ends_view(ends: "pa.Buffer") -> memoryview:
        view = memoryview(ends).cast("B").cast("i")
        view[0] = 0
        return view

    def _array(
        self,
        kind: "pa.DataType",
        length: int,
        column: "tuple[pa.Buffer, pa.Buffer, bytearray]",
        nulls: int,
    ) -> "pa.Array":
        ends, data, bits = column
        validity = self._pa.py_buffer(bits) if nulls else None
        return self._pa.Array.from_buffers(kind, length, [validity, ends, data], nulls)

    def convert_to_microseconds(self) -> None:
        """Converts the timestamps. Call it after the columns are filled."""
        _decode.to_microseconds(self.views[1])
        self._timestamp_type = self._pa.timestamp("us", tz="UTC")

    def record_batch(self) -> "pa.RecordBatch":
        """Returns the filled columns."""
        pa, totals = self._pa, self._totals
        rows = totals.rows
        arrays = [
            pa.Array.from_buffers(pa.int64(), rows, [None, self._offsets], 0),
            pa.Array.from_buffers(self._timestamp_type, rows, [None, self._timestamps], 0),
            self._array(pa.binary(), rows, self._keys, totals.null_keys),
            self._array(pa.binary(), rows, self._values, totals.null_values),
        ]
        fields = [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", self._timestamp_type, nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
        ]
        if self._has_headers:
            headers = self._header_lists()
            arrays.append(headers)
            fields.append(pa.field("headers", headers.type, nullable=False))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _header_lists(self) -> "pa.Array":
        pa, totals = self._pa, self._totals
        header_type = pa.struct(
            [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
        )
        entries = pa.Array.from_buffers(
            header_type,
            totals.headers,
            [None],
            0,
            children=[
                self._text(totals.headers),
                self._array(
                    pa.binary(), totals.headers, self._header_values, totals.null_header_values
                ),
            ],
        )
        return pa.Array.from_buffers(
            pa.list_(pa.field("item", header_type, nullable=False)),
            totals.rows,
            [None, self._header_ends],
            0,
            children=[entries],
        )

    def _text(self, headers: int) -> "pa.Array":
        """Returns the header names as strings; bytes that are not UTF-8 are replaced."""
        names = self._array(self._pa.string(), headers, self._names, 0)
        try:
            names.validate(full=True)
        except self._pa.ArrowInvalid:
            raw = self._array(self._pa.binary(), headers, self._names, 0)
            names = self._pa.array(
                [str(name, "utf-8", "replace") for name in raw.to_pylist()], self._pa.string()
            )
        return names
