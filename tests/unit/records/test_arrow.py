"""Arrow columns hold what the records hold."""

import subprocess
import sys

import pyarrow as pa
import pytest

from penstock.core.errors import CorruptRecordError
from penstock.records import _decode
from penstock.records.arrow import ArrowDecoder, decode_to_arrow
from penstock.records.batch import BatchHeader
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.errors import DecompressionLimitError
from penstock.records.record import Record
from tests.support.storage.batches import T, golden, golden_records, iter_records, legacy_records

V2 = golden("v2")
LEGACY = golden("legacy")
GAPS = golden_records([1000, 1003, 1004, 1010, 1100])


def rows(table: pa.RecordBatch) -> list[Record]:
    table.validate(full=True)
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize(
    "name", ["plain", "gaps", "delete_horizon", "log_append_time", "gzip", "snappy", "lz4", "zstd"]
)
def test_batches_that_kafka_wrote(name: str) -> None:
    assert rows(decode_to_arrow([V2[name]])) == list(iter_records(V2[name]))


def test_schema() -> None:
    """D1: the types of Spark's own source."""
    header = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
    assert decode_to_arrow([]).schema == pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.int64(), nullable=False),
            ("key", pa.binary()),
            ("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("item", header, nullable=False)), nullable=False),
        ]
    )
    assert rows(decode_to_arrow([])) == []


def test_many_batches_of_many_buffers() -> None:
    first = V2["plain"] + V2["gaps"]
    second = memoryview(bytearray(V2["zstd"] + V2["empty"] + V2["lz4_blocks"]))
    expected = list(iter_records(first)) + list(iter_records(second))
    assert rows(decode_to_arrow([first, second])) == expected


def test_control_batches_are_left_out() -> None:
    assert rows(decode_to_arrow([V2["commit"] + V2["gaps"] + V2["abort"]])) == GAPS


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (1000, 1101, range(5)),
        (1001, 1100, range(1, 4)),
        (1003, 1004, range(1, 2)),
        (1011, 1100, range(0)),
        (0, 1000, range(0)),
        (1101, 2000, range(0)),
    ],
)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_range_of_offsets(start: int, end: int, expected: range, codec: Compression) -> None:
    """A fetch returns complete batches; records outside the range are dropped."""
    batch = build_batch(GAPS, base_offset=1000, compression=codec)
    table = decode_to_arrow([batch], start_offset=start, end_offset=end)
    assert rows(table) == [GAPS[index] for index in expected]


def test_batches_that_the_caller_leaves_out() -> None:
    """C1, P4: `read_committed` leaves out what was aborted."""

    def keep(header: BatchHeader) -> bool:
        return header.producer_id != 4711

    log = V2["transactional"] + V2["gaps"] + V2["idempotent"]
    assert rows(decode_to_arrow([log], keep=keep)) == GAPS


@pytest.mark.parametrize("cut", [1, 16, 17, 40, 60, 61, 300])
def test_a_partial_batch_at_the_end_is_left_out(cut: int) -> None:
    assert rows(decode_to_arrow([V2["gaps"] + V2["plain"][:cut]])) == GAPS


def test_old_formats() -> None:
    log = LEGACY["v0_none"] + LEGACY["v1_lz4"] + V2["gaps"] + LEGACY["v1_none"][:10]
    expected = (
        legacy_records(500, timestamps=(-1, -1, -1))
        + legacy_records(500, timestamps=(T, T + 5, T - 10))
        + GAPS
    )
    assert rows(decode_to_arrow([log])) == expected
    assert rows(decode_to_arrow([log], start_offset=502)) == [
        record for record in expected if record.offset >= 502
    ]


def test_crcs_are_checked_by_default() -> None:
    broken = bytearray(V2["gaps"])
    broken[-2] ^= 1
    with pytest.raises(CorruptRecordError, match="has CRC"):
        decode_to_arrow([broken])
    assert decode_to_arrow([broken], check_crcs=False).num_rows == 5


def test_broken_records() -> None:
    broken = bytearray(V2["gaps"])
    broken[57:61] = (6).to_bytes(4, "big")
    decoder = ArrowDecoder(check_crcs=False)
    decoder.add(V2["gaps"])
    with pytest.raises(CorruptRecordError, match="record 5 of the batch"):
        decoder.add(V2["plain"] + broken)
    assert decoder.rows == 10, "earlier records are kept"
    assert rows(decoder.finish()) == GAPS + golden_records(range(5))


def test_garbage() -> None:
    with pytest.raises(CorruptRecordError, match="magic is"):
        decode_to_arrow([b"x" * 100])


def test_the_limit_is_for_all_batches_together() -> None:
    batch = build_batch([Record(0, T, None, bytes(50_000))], compression=Compression.LZ4)
    assert decode_to_arrow([batch] * 4, max_bytes=201_000).num_rows == 4
    with pytest.raises(DecompressionLimitError):
        decode_to_arrow([batch] * 5, max_bytes=201_000)


def test_a_decoder_starts_again_after_it_finished() -> None:
    decoder = ArrowDecoder()
    decoder.add(V2["gaps"], start_offset=1004)
    assert decoder.rows == 3
    assert rows(decoder.finish()) == GAPS[2:]
    assert decoder.rows == 0
    assert rows(decoder.finish()) == []
    decoder.add(V2["gaps"], end_offset=1004)
    assert rows(decoder.finish()) == GAPS[:2]


def test_header_names_that_are_no_utf8() -> None:
    batch = build_batch([Record(0, T, None, None, (("ab", b"1"), ("ok", None)))])
    batch[batch.index(b"ab")] = 0xFF
    table = decode_to_arrow([batch], check_crcs=False)
    assert rows(table)[0].headers == (("\ufffdb", b"1"), ("ok", None))


def test_too_much_for_one_arrow_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.records.arrow._MAX_INT32", 400)
    decoder = ArrowDecoder()
    decoder.add(V2["gaps"])
    with pytest.raises(ValueError, match=r"cannot hold the value_bytes"):
        decoder.finish()


def test_columns_without_null_have_no_validity_bits() -> None:
    table = decode_to_arrow([build_batch([Record(0, T, b"k", b"v")])])
    assert table.column("key").buffers()[0] is None
    assert table.column("value").buffers()[0] is None


def test_columns_that_are_too_small_are_refused() -> None:
    """The compiled loop must not write beyond them, whatever the caller measured."""
    records = [Record(0, T, b"key", b"value", (("name", b"content"),))]
    batch = build_batch(records * 1)
    sizes = [8, 8, 8, 3, 0, 8, 5, 0, 8, 8, 4, 8, 7, 0]
    formats = "qqiBBiBBiiBiBB"

    def fill(sizes: list[int]) -> None:
        columns = tuple(
            memoryview(bytearray(size)).cast("B").cast(letter)  # type: ignore[call-overload]
            for size, letter in zip(sizes, formats, strict=True)
        )
        cursor = memoryview(bytearray(48)).cast("q")
        _decode.fill_columns(
            batch, 61, len(batch), 1, 0, T, 0, False, 0, 2**63 - 1, columns, cursor
        )
        assert list(cursor) == [1, 3, 5, 1, 4, 7]

    fill(sizes)
    for index in (0, 1, 2, 3, 5, 6, 8, 9, 10, 11, 12):
        smaller = list(sizes)
        smaller[index] -= 4 if formats[index] == "i" else 8 if formats[index] == "q" else 1
        with pytest.raises(ValueError, match="columns are too small"):
            fill(smaller)


def test_pyarrow_is_imported_only_when_it_is_used() -> None:
    code = "import sys, penstock.records.arrow; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_headers() -> None:
    """D1: columns that are not requested are not built."""
    log = V2["plain"] + V2["zstd"]
    decoder = ArrowDecoder(headers=False)
    decoder.add(log)
    whole = decode_to_arrow([log])
    assert any(whole.column("headers").to_pylist())
    bare = decoder.finish()
    bare.validate(full=True)
    assert bare.equals(whole.drop_columns(["headers"]))


def test_microseconds() -> None:
    """D1: as Spark has timestamps; what does not fit is cut, not wrapped."""
    times = [-1, 0, 1_700_000_000_123, 2**62, -(2**62)]
    records = [Record(index, time, None, b"v") for index, time in enumerate(times)]
    decoder = ArrowDecoder(microseconds=True)
    decoder.add(build_batch(records, base_offset=0))
    column = decoder.finish().column("timestamp")
    latest = (2**63 - 1) // 1000 * 1000
    assert column.type == pa.timestamp("us", tz="UTC")
    assert column.cast(pa.int64()).to_pylist() == [
        -1000,
        0,
        1_700_000_000_123_000,
        latest,
        -latest,
    ]


def test_rows_and_size_of_a_decoder() -> None:
    decoder = ArrowDecoder()
    assert (decoder.rows, decoder.size, decoder.timestamp_types) == (0, 0, [])
    records = [Record(0, T, b"key", b"value", (("name", b"x"),)), Record(1, T, None, None)]
    decoder.add(build_batch(records, base_offset=0))
    decoder.add(build_batch(records, base_offset=0), start_offset=1)
    assert (decoder.rows, decoder.size, decoder.timestamp_types) == (3, 13, [(0, 3)])
    decoder.add(V2["log_append_time"])
    assert decoder.timestamp_types == [(0, 3), (1, decoder.rows - 3)]
    decoder.finish()
    assert (decoder.rows, decoder.size, decoder.timestamp_types) == (0, 0, [])
