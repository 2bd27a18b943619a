"""The header of a batch: read, split, verified, changed in place."""

from dataclasses import dataclass

import pytest

from penstock.core.errors import CorruptRecordError
from penstock.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Entry,
    TimestampType,
    first_entry,
    read_header,
    set_base_offset_and_epoch,
    set_max_timestamp,
    split,
    verify,
)
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.read import read_records
from tests.support.storage.batches import T, golden, golden_records

V2 = golden("v2")


def test_header_of_a_batch_that_kafka_wrote() -> None:
    header = read_header(V2["gaps"])
    assert header == BatchHeader(
        base_offset=1000,
        batch_length=len(V2["gaps"]) - LOG_OVERHEAD,
        partition_leader_epoch=7,
        magic=2,
        crc=int.from_bytes(V2["gaps"][17:21], "big"),
        attributes=0,
        last_offset_delta=100,
        base_timestamp=T,
        max_timestamp=T + 10_000_000_000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=5,
    )
    assert header.size == len(V2["gaps"])
    assert header.last_offset == 1100
    assert header.next_offset == 1101
    assert header.last_sequence == -1
    assert not header.has_producer_id
    assert header.delete_horizon_ms is None


@dataclass(frozen=True)
class Flags:
    """The expected attributes of a golden batch."""

    compression: Compression = Compression.NONE
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    is_transactional: bool = False
    is_control: bool = False
    has_delete_horizon: bool = False


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("plain", Flags()),
        ("gzip", Flags(Compression.GZIP)),
        ("snappy", Flags(Compression.SNAPPY)),
        ("lz4", Flags(Compression.LZ4)),
        ("zstd", Flags(Compression.ZSTD)),
        ("log_append_time", Flags(timestamp_type=TimestampType.LOG_APPEND_TIME)),
        ("transactional", Flags(is_transactional=True)),
        ("commit", Flags(is_transactional=True, is_control=True)),
        ("delete_horizon", Flags(has_delete_horizon=True)),
    ],
)
def test_attributes(name: str, flags: Flags) -> None:
    header = read_header(V2[name])
    assert (
        Flags(
            header.compression,
            header.timestamp_type,
            header.is_transactional,
            header.is_control,
            header.has_delete_horizon,
        )
        == flags
    )


def test_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    assert read_header(V2["delete_horizon"]).delete_horizon_ms == T + 1_000_000


def test_sequence_wraps() -> None:
    """P3: sequences go from 2**31 - 1 to 0."""
    header = read_header(V2["idempotent"])
    assert header.base_sequence == 2**31 - 2
    assert header.last_sequence == 2
    assert header.has_producer_id


def test_unknown_codec_is_named() -> None:
    header = read_header(V2["plain"])._replace(attributes=5)
    with pytest.raises(CorruptRecordError, match="unknown compression codec 5"):
        _ = header.compression


@pytest.mark.parametrize("size", [0, 1, 16, HEADER_SIZE - 1])
def test_header_needs_61_bytes(size: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"needs 61 bytes, but {size} are left"):
        read_header(V2["plain"][:size])


def test_header_alone_is_enough_to_read_it() -> None:
    assert read_header(V2["plain"][:HEADER_SIZE]) == read_header(V2["plain"])
    assert read_header(b"xx" + V2["plain"], 2) == read_header(V2["plain"])


def test_other_magics_and_short_lengths_are_no_headers() -> None:
    batch = bytearray(V2["plain"])
    batch[16] = 1
    with pytest.raises(CorruptRecordError, match="magic is 1"):
        read_header(batch)
    batch[16] = 2
    batch[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(CorruptRecordError, match="batch length is 48"):
        read_header(batch)


def test_split() -> None:
    together = V2["plain"] + V2["gaps"] + V2["empty"]
    first, second, third = split(together)
    assert first == (0, read_header(V2["plain"]))
    assert second == (len(V2["plain"]), read_header(V2["gaps"]))
    assert third == (len(V2["plain"]) + len(V2["gaps"]), read_header(V2["empty"]))
    assert split(b"") == []


@pytest.mark.parametrize("missing", [1, 100, 300, 600])
def test_split_refuses_a_partial_batch_unless_allowed(missing: int) -> None:
    """S7: a torn write shows as a partial batch at the end."""
    together = V2["gaps"] + V2["plain"]
    torn = together[: len(together) - missing]
    with pytest.raises(CorruptRecordError):
        split(torn)
    assert split(torn, allow_partial=True) == [(0, read_header(V2["gaps"]))]
    with pytest.raises(CorruptRecordError, match="magic is 0"):
        split(V2["gaps"] + bytes(100), allow_partial=True)


def test_crc() -> None:
    header = read_header(V2["plain"])
    verify(V2["plain"], 0, header)
    verify(b"abc" + V2["plain"], 3, header)
    for position in (21, 60, 61, len(V2["plain"]) - 1):
        broken = bytearray(V2["plain"])
        broken[position] ^= 1
        with pytest.raises(CorruptRecordError, match="has CRC"):
            verify(broken, 0, header)
    with pytest.raises(CorruptRecordError, match="are left"):
        verify(V2["plain"][:-1], 0, header)


def test_offset_and_epoch_are_set_without_touching_the_crc() -> None:
    batch = bytearray(b"xx" + V2["plain"])
    set_base_offset_and_epoch(batch, 2, 2**40, 77)
    header = read_header(batch, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 77)
    verify(batch, 2, header)
    set_base_offset_and_epoch(memoryview(batch), 2, 5, -1)
    assert read_header(batch, 2) == read_header(V2["plain"])._replace(base_offset=5)
    assert batch[10:] == V2["plain"][8:]


def test_log_append_time() -> None:
    batch = bytearray(V2["plain"])
    header = set_max_timestamp(
        batch, 0, read_header(batch), TimestampType.LOG_APPEND_TIME, T + 111_111
    )
    assert batch == V2["log_append_time"]
    assert header == read_header(batch)
    assert {record.timestamp for record in read_records(batch)} == {T + 111_111}


def test_log_append_time_keeps_the_other_attributes() -> None:
    batch = build_batch(
        golden_records(range(5)),
        compression=Compression.LZ4,
        producer_id=1,
        producer_epoch=1,
        base_sequence=1,
        is_transactional=True,
    )
    header = set_max_timestamp(batch, 0, read_header(batch), TimestampType.LOG_APPEND_TIME, T)
    assert header.compression is Compression.LZ4
    assert header.is_transactional
    verify(batch, 0, header)


def test_first_entry_of_every_magic() -> None:
    legacy = golden("legacy")
    assert first_entry(V2["gaps"]) == Entry(1000, len(V2["gaps"]), 2)
    assert first_entry(legacy["v0_gzip"]) == Entry(502, len(legacy["v0_gzip"]), 0)
    assert first_entry(b"x" + legacy["v1_gzip"], 1) == Entry(502, len(legacy["v1_gzip"]), 1)


@pytest.mark.parametrize(
    ("magic", "length", "message"),
    [
        (0, 13, "length is 13"),
        (1, -1, "length is -1"),
        (2, 48, "length is 48"),
        (3, 100, "magic is 3"),
        (-1, 100, "magic is -1"),
    ],
)
def test_first_entry_refuses(magic: int, length: int, message: str) -> None:
    entry = bytearray(17)
    entry[8:12] = length.to_bytes(4, "big", signed=True)
    entry[16] = magic & 0xFF
    with pytest.raises(CorruptRecordError, match=message):
        first_entry(entry)
    with pytest.raises(CorruptRecordError, match="17 bytes"):
        first_entry(entry[:16])
