"""Message sets of magic 0 and 1 that Kafka 3.9 wrote, read and converted."""

import zlib
from struct import pack

import pytest

from penstock.core.errors import CorruptRecordError
from penstock.records.batch import TimestampType, read_header, split, verify
from penstock.records.compress import Compression, compress
from penstock.records.errors import DecompressionLimitError
from penstock.records.legacy import convert_to_v2, crc_ok, read_entry, read_message
from penstock.records.read import read_records
from penstock.records.record import Record
from tests.support.storage.batches import T, golden, iter_records, legacy_records

LEGACY = golden("legacy")
V2 = golden("v2")
NO_TIMES = (-1, -1, -1)
TIMES = (T, T + 5, T - 10)
APPEND_TIMES = (T + 111_111,) * 3

EXPECTED = {
    **{f"v0_{codec}": legacy_records(500, timestamps=NO_TIMES) for codec in ("none", "gzip")},
    **{f"v0_{codec}": legacy_records(500, timestamps=NO_TIMES) for codec in ("snappy", "lz4")},
    **{f"v1_{codec}": legacy_records(500, timestamps=TIMES) for codec in ("none", "gzip")},
    **{f"v1_{codec}": legacy_records(500, timestamps=TIMES) for codec in ("snappy", "lz4")},
    "v1_none_log_append_time": legacy_records(500, timestamps=APPEND_TIMES),
    "v1_gzip_log_append_time": legacy_records(500, timestamps=APPEND_TIMES),
    "v1_gzip_from_0": legacy_records(0, timestamps=TIMES),
}


def message(
    magic: int,
    offset: int,
    value: bytes | None,
    *,
    attributes: int = 0,
    timestamp: int = T,
    key: bytes | None = None,
) -> bytes:
    """A message with the right CRC."""
    body = pack(">bB", magic, attributes) + (pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        body += pack(">i", -1) if field is None else pack(">i", len(field)) + field
    return pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("name", EXPECTED)
def test_message_sets_that_kafka_wrote(name: str) -> None:
    """S1."""
    assert list(iter_records(LEGACY[name])) == EXPECTED[name]


def test_golden_data_is_complete() -> None:
    assert LEGACY.keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_conversion_keeps_every_record(name: str) -> None:
    converted = convert_to_v2(LEGACY[name], partition_leader_epoch=4)
    ((_, header),) = split(converted)
    verify(converted, 0, header)
    assert list(iter_records(converted)) == EXPECTED[name]
    assert header.partition_leader_epoch == 4
    assert header.compression.codec_name in name
    assert header.timestamp_type is (
        TimestampType.LOG_APPEND_TIME if "append" in name else TimestampType.CREATE_TIME
    )


def test_conversion_of_a_mixed_log() -> None:
    """Neighbours of one kind share a batch; v2 batches are not touched."""
    log = (
        message(0, 1, b"a")
        + message(1, 2, b"b")
        + message(1, 3, b"c", attributes=0x08, timestamp=T + 1)
        + message(1, 4, b"d", attributes=0x08, timestamp=T + 1)
        + message(1, 5, b"e", attributes=0x08, timestamp=T + 2)
        + message(1, 2**32, b"f", timestamp=T + 2)
        + message(1, 2**33, b"g", timestamp=T + 2)
        + V2["gaps"]
    )
    converted = convert_to_v2(log)
    assert [(header.base_offset, header.records_count) for _, header in split(converted)] == [
        (1, 2),
        (3, 2),
        (5, 1),
        (2**32, 1),
        (2**33, 1),
        (1000, 5),
    ]
    assert list(iter_records(converted)) == list(iter_records(log))
    assert converted.endswith(V2["gaps"])
    with pytest.raises(CorruptRecordError, match="are left"):
        convert_to_v2(log[:-1])
    assert convert_to_v2(b"") == b""


def test_wrapper_at_offset_0_counts_from_0() -> None:
    """Some versions of librdkafka leave the offset of the wrapper 0."""
    inner = b"".join(message(1, offset, b"v") for offset in range(3))
    wrapper = message(1, 0, compress(Compression.GZIP, inner), attributes=1)
    assert [record.offset for record in read_records(wrapper)] == [0, 1, 2]


def test_wrapper_with_gaps_from_compaction() -> None:
    inner = message(1, 0, b"v") + message(1, 7, b"v")
    wrapper = message(1, 107, compress(Compression.GZIP, inner), attributes=1)
    assert [record.offset for record in read_records(wrapper)] == [100, 107]


def test_inner_messages_of_another_magic() -> None:
    """Some logs have them; a produce request must not."""
    inner = message(0, 0, b"v") + message(1, 1, b"w")
    wrapper = message(1, 11, compress(Compression.GZIP, inner), attributes=0x09, timestamp=T + 9)
    assert read_entry(wrapper) == [Record(10, -1, None, b"v"), Record(11, T + 9, None, b"w")]
    with pytest.raises(CorruptRecordError, match="messages of another magic"):
        read_entry(wrapper, same_magic=True)


def test_inner_message_that_is_cut_off_is_ignored() -> None:
    inner = message(0, 5, b"v") + message(0, 6, b"w")[:-1]
    wrapper = message(0, 6, compress(Compression.GZIP, inner), attributes=1)
    assert [record.offset for record in read_entry(wrapper)] == [5]


@pytest.mark.parametrize(
    ("wrapper", "error"),
    [
        (message(1, 9, None, attributes=1), "has no value"),
        (message(1, 9, compress(Compression.GZIP, b""), attributes=1), "contains no message"),
        (
            message(
                1, 9, compress(Compression.GZIP, message(1, 0, b"", attributes=1)), attributes=1
            ),
            "compressed again",
        ),
        (
            message(1, 3, compress(Compression.GZIP, message(1, 4, b"")), attributes=1),
            "a wrapper at offset 3 contains a message at 4",
        ),
        (message(1, 9, b"not gzip", attributes=1), "invalid gzip data"),
        (message(1, 9, b"", attributes=4), "names compression codec 4"),
        (
            message(
                1,
                9,
                compress(Compression.GZIP, bytearray(message(1, 0, b"v")[:-1] + b"x")),
                attributes=1,
            ),
            "has CRC",
        ),
    ],
)
def test_broken_wrappers(wrapper: bytes, error: str) -> None:
    with pytest.raises(CorruptRecordError, match=error):
        read_entry(wrapper)


def test_unpacked_messages_are_bounded() -> None:
    wrapper = message(1, 9, compress(Compression.GZIP, message(1, 0, bytes(10_000))), attributes=1)
    assert len(read_entry(wrapper, max_bytes=20_000)) == 1
    for read in (read_entry, convert_to_v2):
        with pytest.raises(DecompressionLimitError):
            read(wrapper, max_bytes=5000)


@pytest.mark.parametrize("name", ["v0_none", "v1_none"])
def test_crc_is_checked(name: str) -> None:
    first = bytearray(LEGACY[name])
    assert crc_ok(first)
    for position in (12, 17, 20, 29):
        first[position] ^= 1
        assert not crc_ok(first)
        with pytest.raises(CorruptRecordError, match="has CRC"):
            read_message(first)
        first[position] ^= 1
    assert not crc_ok(first[:20])


@pytest.mark.parametrize("magic", [0, 1])
def test_lengths_are_checked(magic: int) -> None:
    whole = message(magic, 1, b"value", key=b"key")
    key_at = 26 if magic else 18
    for at, length in ((key_at, 1000), (key_at, 11), (key_at + 7, 6), (key_at + 7, 2**31 - 1)):
        broken = bytearray(whole)
        broken[at : at + 4] = pack(">i", length)
        broken[12:16] = pack(">I", zlib.crc32(broken[16:]))
        with pytest.raises(CorruptRecordError, match=r"ends within a field|are left"):
            read_message(broken)
    with pytest.raises(CorruptRecordError, match="are left"):
        read_message(whole[:-1])


def test_a_v1_message_too_short_for_its_timestamp() -> None:
    body = pack(">bB", 1, 0) + bytes(8)
    short = pack(">qiI", 5, len(body) + 4, zlib.crc32(body)) + body
    with pytest.raises(CorruptRecordError, match="ends within a field"):
        read_message(short)


def test_v2_is_no_message() -> None:
    with pytest.raises(CorruptRecordError, match="magic is 2"):
        read_message(V2["plain"])
    assert read_header(V2["plain"]).magic == 2
