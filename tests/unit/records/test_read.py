"""Records of a batch, of any magic, and only as many as announced."""

import pytest

from penstock.core.errors import CorruptRecordError
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.errors import DecompressionLimitError
from penstock.records.read import read_records, record_bytes
from penstock.records.record import Record
from tests.support.storage.batches import T, golden, golden_records, iter_records, legacy_records

V2 = golden("v2")
LEGACY = golden("legacy")
SEQUENTIAL = golden_records(range(5))
GAPS = golden_records([1000, 1003, 1004, 1010, 1100])


@pytest.mark.parametrize(
    "name",
    ["plain", "idempotent", "transactional", "gzip", "snappy", "lz4", "zstd", "lz4_level_3"],
)
def test_records_that_kafka_wrote(name: str) -> None:
    """S1, P6."""
    assert read_records(V2[name]) == SEQUENTIAL
    assert read_records(b"xyz" + V2[name], 3, read_header(V2[name])) == SEQUENTIAL
    assert read_records(memoryview(V2[name])) == SEQUENTIAL


@pytest.mark.parametrize("name", ["gaps", "delete_horizon", "last_offset"])
def test_offsets_and_timestamps_are_absolute(name: str) -> None:
    assert read_records(V2[name]) == GAPS


def test_log_append_time_is_the_time_of_every_record() -> None:
    records = read_records(V2["log_append_time"])
    assert records == [record._replace(timestamp=T + 111_111) for record in SEQUENTIAL]


def test_the_count_must_be_right() -> None:
    header = read_header(V2["plain"])
    with pytest.raises(CorruptRecordError, match="bytes follow the 4 records"):
        read_records(V2["plain"], 0, header._replace(records_count=4))
    with pytest.raises(CorruptRecordError, match="record 5 of the batch: its length"):
        read_records(V2["plain"], 0, header._replace(records_count=6))
    with pytest.raises(CorruptRecordError, match="claims -1 records"):
        read_records(V2["plain"], 0, header._replace(records_count=-1))
    with pytest.raises(CorruptRecordError, match="record 5 of the batch"):
        read_records(V2["gzip"], 0, read_header(V2["gzip"])._replace(records_count=2**31 - 1))


def test_a_batch_that_is_not_whole() -> None:
    with pytest.raises(CorruptRecordError, match="are left"):
        read_records(V2["plain"][:-1])
    with pytest.raises(CorruptRecordError, match="needs 61 bytes"):
        read_records(V2["plain"][:60])


def test_unpacked_records_are_bounded() -> None:
    batch = build_batch([Record(0, T, None, bytes(100_000))], compression=Compression.ZSTD)
    assert len(read_records(batch, max_bytes=200_000)) == 1
    with pytest.raises(DecompressionLimitError):
        read_records(batch, max_bytes=100_000)


def test_uncompressed_records_stay_where_they_are() -> None:
    buffer = b"xx" + V2["plain"]
    source, start, end = record_bytes(buffer, 2, read_header(V2["plain"]))
    assert source is buffer
    assert (start, end) == (2 + HEADER_SIZE, len(buffer))


def test_all_records_of_a_log_of_every_magic() -> None:
    log = LEGACY["v0_none"] + LEGACY["v1_gzip"] + V2["gaps"] + V2["empty"] + V2["lz4"]
    assert list(iter_records(log)) == (
        legacy_records(500, timestamps=(-1, -1, -1))
        + legacy_records(500, timestamps=(T, T + 5, T - 10))
        + GAPS
        + SEQUENTIAL
    )
    with pytest.raises(CorruptRecordError):
        list(iter_records(log[:-1]))


def test_header_names_that_are_no_utf8() -> None:
    """They come out with replacement characters, as from Java's client."""
    batch = bytearray(build_batch([Record(0, T, None, None, (("ab", b"1"),))]))
    at = batch.index(b"ab")
    batch[at] = 0xFF
    assert read_records(batch)[0].headers == (("\ufffdb", b"1"),)


RECORD = bytes.fromhex("20 00 00 00 02 6b 04 7676 04 02 61 02 31 02 62 01".replace(" ", ""))
"""Length 16: no deltas, key `k`, value `vv`, headers a=1 and b=null."""


def batch_of(record: bytes, count: int = 1) -> bytes:
    header = bytearray(V2["plain"][:HEADER_SIZE])
    header[8:12] = (49 + len(record)).to_bytes(4, "big")
    header[57:61] = count.to_bytes(4, "big")
    return bytes(header) + record


def test_the_record_that_the_next_tests_break() -> None:
    assert read_records(batch_of(RECORD)) == [Record(0, T, b"k", b"vv", (("a", b"1"), ("b", None)))]


@pytest.mark.parametrize(
    ("position", "patch", "message"),
    [
        (0, "8080808080", "its length is not a varint"),
        (0, "22", "length is negative, or exceeds"),
        (0, "1e", "its headers are invalid, or exceed"),
        (0, "00", "a field is not a varint"),
        (0, "01", "length is negative"),
        (2, "ffffffffffffffffffff01", "a field"),
        (3, "ffffffffff01", "a field"),
        (4, "20", "a field"),
        (4, "808080808010", "a field"),
        (6, "40", "a field"),
        (9, "05", "headers are invalid"),
        (9, "40", "headers are invalid"),
        (9, "02", "fields end before the record"),
        (9, "00", "fields end before the record"),
        (10, "01", "headers are invalid"),
        (10, "40", "headers are invalid"),
        (12, "40", "headers are invalid"),
        (16, "06", "headers are invalid"),
    ],
)
def test_every_length_in_a_record_is_checked(position: int, patch: str, message: str) -> None:
    record = bytearray(RECORD)
    raw = bytes.fromhex(patch)
    record[position : position + len(raw)] = raw
    with pytest.raises(CorruptRecordError, match=message):
        read_records(batch_of(bytes(record)))


def test_cut_off_anywhere() -> None:
    for cut in range(len(RECORD)):
        with pytest.raises(CorruptRecordError):
            read_records(batch_of(RECORD[:cut]))


def test_varints_longer_than_they_need_be() -> None:
    """As in Java's reader."""
    record = bytes.fromhex("1c 00 8000 808000 8280808000 6b 01 00".replace(" ", ""))
    assert read_records(batch_of(record)) == [Record(0, T, b"k", None)]


def test_any_negative_length_is_null() -> None:
    """As in Java's reader, for keys and values."""
    record = bytes.fromhex("0c 00 00 00 03 05 00".replace(" ", ""))
    assert read_records(batch_of(record)) == [Record(0, T, None, None)]
