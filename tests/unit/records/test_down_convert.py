"""v2 batches as message sets of magic 0 and 1, for the clients of Fetch 0 to 3 (C2)."""

import pytest

from penstock.core.errors import CorruptRecordError, ErrorCode, KafkaError
from penstock.records.batch import TimestampType, set_max_timestamp
from penstock.records.batch import read_header as header_of
from penstock.records.build import build_batch
from penstock.records.compress import Compression, decompress
from penstock.records.control import build_end_txn_marker
from penstock.records.down_convert import convert_entry, down_convert
from penstock.records.errors import DecompressionLimitError
from penstock.records.legacy import read_message
from penstock.records.record import Record
from tests.support.storage.batches import T, golden, golden_records, iter_records, legacy_records

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
LEGACY = golden("legacy")
TIMES = (T, T + 5, T - 10)


def batch(
    *values: bytes | None, offset: int = 0, codec: Compression = Compression.NONE
) -> bytearray:
    records = [
        Record(offset + index, T + index, b"k", value, (("header", b"h"),))
        for index, value in enumerate(values)
    ]
    return build_batch(records, base_offset=offset, compression=codec)


def marker(offset: int) -> bytearray:
    return build_end_txn_marker(
        True,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=T,
        base_offset=offset,
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_records_keep_offset_key_and_value(codec: Compression, magic: int) -> None:
    """Headers are lost, and in magic 0 the timestamp."""
    offsets = [70, 71, 75, 80, 2000]
    records = golden_records(offsets)
    converted = down_convert(build_batch(records, base_offset=70, compression=codec), magic)
    expected = [record._replace(headers=()) for record in records]
    if magic == 0:
        expected = [record._replace(timestamp=-1) for record in expected]
    assert list(iter_records(converted.messages)) == expected
    assert converted.next_offset == 2001


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_message_sets_are_the_same_as_kafkas(codec: Compression, magic: int) -> None:
    """S1: the decompressed message sets are equal byte for byte."""
    records = legacy_records(500, timestamps=TIMES)
    kafka_messages = LEGACY[f"v{magic}_{codec.codec_name}"]
    messages = down_convert(
        build_batch(records, base_offset=500, compression=codec), magic
    ).messages
    if codec is Compression.NONE:
        assert messages == kafka_messages
        return
    message, expected = read_message(messages), read_message(kafka_messages)
    assert message[:1] + message[2:6] == expected[:1] + expected[2:6]
    assert message.value is not None
    assert expected.value is not None
    unpacked = [decompress(codec, item.value or b"", magic=magic) for item in (message, expected)]
    assert bytes(unpacked[0]) == bytes(unpacked[1])
    if codec is Compression.LZ4:
        assert message.value[:7] == expected.value[:7], "the header checksum differs by magic"


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_log_append_time(codec: Compression) -> None:
    data = batch(b"a", b"b", codec=codec)
    set_max_timestamp(data, 0, header_of(data), TimestampType.LOG_APPEND_TIME, T + 99)
    messages = down_convert(data, 1).messages
    assert read_message(messages).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in iter_records(messages)] == [T + 99] * 2
    messages = down_convert(data, 0).messages
    assert read_message(messages).attributes == codec


def test_markers_and_empty_batches_are_left_out() -> None:
    empty = build_batch([], base_offset=4, last_offset=6)
    data = marker(3) + empty + batch(b"a", offset=7) + marker(8)
    converted = down_convert(data, 1)
    assert [record.offset for record in iter_records(converted.messages)] == [7]
    assert converted.next_offset == 9
    assert down_convert(marker(3) + empty, 0) == (bytearray(), 7)


def test_uncompressed_messages_begin_with_the_requested_offset() -> None:
    """Some versions of librdkafka rely on it. A wrapper is complete; its reader skips records."""
    values = (b"a", b"b", b"c")
    plain = down_convert(batch(*values, offset=5), 1, first_offset=6).messages
    assert [record.offset for record in iter_records(plain)] == [6, 7]
    packed = down_convert(batch(*values, offset=5, codec=Compression.GZIP), 1, 6).messages
    assert [record.offset for record in iter_records(packed)] == [5, 6, 7]


def test_old_messages_are_not_converted() -> None:
    data = LEGACY["v0_gzip"] + LEGACY["v1_lz4"] + bytes(batch(b"new", offset=600))
    converted = down_convert(data, 1).messages
    assert converted.startswith(LEGACY["v0_gzip"] + LEGACY["v1_lz4"])
    assert [record.value for record in iter_records(converted)][-1] == b"new"


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_magic_1_becomes_magic_0(codec: Compression) -> None:
    converted = down_convert(LEGACY[f"v1_{codec.codec_name}"], 0)
    assert list(iter_records(converted.messages)) == legacy_records(500, timestamps=(-1, -1, -1))
    assert read_message(converted.messages).magic == 0
    assert converted.next_offset == 503


def test_zstd_cannot_be_converted() -> None:
    data = batch(b"a", codec=Compression.ZSTD)
    with pytest.raises(KafkaError, match="zstd") as caught:
        convert_entry(data, 0, 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    before = batch(b"a", b"b")
    after_a_marker = marker(0) + batch(b"a", offset=1, codec=Compression.ZSTD)
    with pytest.raises(KafkaError, match="zstd"):
        down_convert(after_a_marker, 1)
    converted = down_convert(before + batch(b"c", offset=2, codec=Compression.ZSTD), 1)
    assert converted == (down_convert(before, 1).messages, 2)


def test_the_size_is_limited() -> None:
    """The first batch is complete; the following ones are truncated at the limit."""
    data = marker(0) + batch(b"first", offset=1) + batch(b"second", offset=2)
    all_messages = down_convert(data, 1).messages
    first = down_convert(data[: -len(batch(b"second"))], 1).messages
    assert down_convert(data, 1, room=0) == (first, 2)
    assert down_convert(data, 1, room=len(first)) == (first, 2)
    assert down_convert(data, 1, room=len(first) + 5) == (all_messages[: len(first) + 5], 3)
    assert down_convert(data, 1, room=len(all_messages)) == (all_messages, 3)


def test_a_corrupt_batch_ends_the_message_set() -> None:
    good = batch(b"a")
    bad = batch(b"b", offset=1)
    bad[-1] ^= 0xFF
    with pytest.raises(CorruptRecordError):
        down_convert(bad, 1)
    assert down_convert(good + bad, 1) == down_convert(good, 1)
    with pytest.raises(CorruptRecordError):
        down_convert(good[:-1], 1)


def test_decompression_is_limited() -> None:
    data = batch(b"x" * 10_000, codec=Compression.GZIP)
    with pytest.raises(DecompressionLimitError):
        down_convert(data, 1, max_bytes=9_000)


def test_offsets_beyond_the_maximum_are_refused() -> None:
    data = batch(b"a", b"b", codec=Compression.GZIP)
    data[:8] = (2**63 - 1).to_bytes(8, "big")
    with pytest.raises(CorruptRecordError, match="cannot express"):
        down_convert(data, 1)
