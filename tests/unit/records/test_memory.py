"""The memory of hostile batches follows their decompressed size, not the number of their parts."""

import tracemalloc
import zlib
from collections.abc import Callable
from struct import pack

import pytest

from penstock.core.errors import KafkaError
from penstock.records.append_policy import AppendOrigin, AppendPolicy
from penstock.records.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    compute_crc,
    write_crc,
)
from penstock.records.compress import Compression, compress
from penstock.records.down_convert import down_convert
from penstock.records.errors import RecordValidationError
from penstock.records.read import iter_headerless_records, read_records
from tests.support.storage.batches import T
from tests.support.storage.validation import validate_and_assign

MIB = 2**20
UNPACKED = MIB
EMPTY_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])
"""No key, no value, no headers, timestamp and offset of the batch."""
COMPACTED = AppendPolicy(compacted=True)


def batch_of_records(records: bytes, count: int, codec: Compression = Compression.ZSTD) -> bytes:
    packed = compress(codec, records)
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_SIZE + len(packed) - LOG_OVERHEAD,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=T,
        max_timestamp=T,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )
    batch = bytearray(HEADER_SIZE) + packed
    HEADER.pack_into(batch, 0, *header)
    write_crc(batch, 0, compute_crc(batch, 0, len(batch)))
    return bytes(batch)


def varint(value: int) -> bytes:
    code = (value << 1) ^ (value >> 63)
    out = bytearray()
    while code >= 0x80:
        out.append(code & 0x7F | 0x80)
        code >>= 7
    out.append(code)
    return bytes(out)


def tiny_records(codec: Compression = Compression.ZSTD) -> bytes:
    """All of them have the offset delta 0, so that they must be renumbered."""
    count = UNPACKED // len(EMPTY_RECORD)
    return batch_of_records(EMPTY_RECORD * count, count, codec)


def many_headers() -> bytes:
    """One record of empty headers, with the offset delta 5."""
    count = UNPACKED // 2
    body = bytes([0, 0]) + varint(5) + bytes([1, 1]) + varint(count) + bytes([0, 1]) * count
    return batch_of_records(varint(len(body)) + body, 1)


def tiny_messages(codec: Compression = Compression.GZIP) -> bytes:
    """A wrapper of magic 1 with messages without key and value."""
    body = pack(">bbqii", 1, 0, T, -1, -1)
    message = pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body
    packed = compress(codec, message * (UNPACKED // len(message)))
    body = pack(">bbqii", 1, codec, T, -1, len(packed)) + packed
    return pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


def peak_mib(work: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def append(batch: bytes, policy: AppendPolicy) -> None:
    validate_and_assign(
        bytearray(batch),
        next_offset=100,
        leader_epoch=0,
        now_ms=T,
        policy=policy,
        origin=AppendOrigin.CLIENT,
    )


@pytest.mark.parametrize("make", [tiny_records, many_headers, tiny_messages])
def test_batches_that_are_rewritten(make: Callable[[], bytes]) -> None:
    batch = make()
    policy = AppendPolicy(max_message_bytes=64 * MIB)
    assert peak_mib(lambda: append(batch, policy)) < 4 * UNPACKED / MIB


@pytest.mark.parametrize("make", [tiny_records, tiny_messages])
def test_batches_of_invalid_records(make: Callable[[], bytes]) -> None:
    batch = make()

    def refuse() -> None:
        with pytest.raises(RecordValidationError, match="at least 100") as refusal:
            append(batch, COMPACTED)
        assert len(refusal.value.record_errors) == 100

    assert peak_mib(refuse) < 3 * UNPACKED / MIB


def test_records_are_read_one_at_a_time() -> None:
    for batch in (tiny_records(), many_headers()):
        peak = peak_mib(lambda batch=batch: sum(1 for _ in iter_headerless_records(batch)))  # type: ignore[misc]
        assert peak < 2 * UNPACKED / MIB


def test_records_without_headers_are_those_of_read_records() -> None:
    body = bytes([0, 4, 0]) + varint(3) + b"key" + varint(2 * MIB) + bytes(2 * MIB) + bytes([0])
    batch = batch_of_records(varint(len(body)) + body, 1)
    assert list(iter_headerless_records(batch)) == read_records(batch)


@pytest.mark.parametrize("make", [tiny_records, many_headers])
def test_down_conversion(make: Callable[..., bytes]) -> None:
    """Messages take more bytes than records; beyond the limit of a batch they are refused."""
    batch = tiny_records(Compression.LZ4) if make is tiny_records else many_headers()

    def convert() -> None:
        with pytest.raises(KafkaError):  # zstd, or too many bytes
            down_convert(batch, 1, max_bytes=UNPACKED)

    assert peak_mib(convert) < 3 * UNPACKED / MIB + 1
