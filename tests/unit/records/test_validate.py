"""Batches that a leader accepts, changes and refuses: the rules of LogValidator."""

import zlib
from struct import pack

import pytest

from penstock.core.errors import CorruptRecordError, ErrorCode, InvalidRecordError, KafkaError
from penstock.records.append_policy import AppendOrigin, AppendPolicy
from penstock.records.batch import (
    BatchHeader,
    TimestampType,
    compute_crc,
    read_header,
    split,
    verify,
    write_crc,
)
from penstock.records.build import build_batch
from penstock.records.compress import Compression, compress
from penstock.records.control import build_end_txn_marker
from penstock.records.errors import DecompressionLimitError, RecordError, RecordValidationError
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.records.validate import Assigned, verify_batches
from tests.support.storage.batches import T, golden, legacy_records
from tests.support.storage.validation import (
    max_timestamp_of,
    offset_of_max_timestamp,
    validate_and_assign,
)

NOW = T + 1000
V2 = golden("v2")
LEGACY = golden("legacy")
CODECS = [codec for codec in Compression if codec is not Compression.NONE]
LOG_APPEND = AppendPolicy(timestamp_type=TimestampType.LOG_APPEND_TIME)
RECORDS = [
    Record(0, T, b"a", b"1"),
    Record(1, T + 7, b"b", None, (("h", b"x"),)),
    Record(2, T - 3, b"c", b"3" * 200),
]


def assign(
    batch: bytes | bytearray | memoryview,
    policy: AppendPolicy | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> Assigned:
    return validate_and_assign(
        batch,
        next_offset=100,
        leader_epoch=5,
        now_ms=NOW,
        policy=policy or AppendPolicy(),
        origin=origin,
    )


def renumbered(records: list[Record], timestamp: int | None = None) -> list[Record]:
    return [
        record._replace(
            offset=100 + index, timestamp=record.timestamp if timestamp is None else timestamp
        )
        for index, record in enumerate(records)
    ]


def check(assigned: Assigned, records: list[Record]) -> BatchHeader:
    """One whole batch, from offset 100 in epoch 5, that holds just these records."""
    ((_, header),) = split(assigned.buffer)
    verify(assigned.buffer, 0, header)
    assert assigned.headers == [header]
    assert header.partition_leader_epoch == 5
    assert assigned.headers[0].base_offset == header.base_offset == 100
    assert assigned.last_offset == header.last_offset == 100 + len(records) - 1
    assert read_records(assigned.buffer) == records
    assert max_timestamp_of(assigned) == header.max_timestamp
    return header


def mended(batch: bytearray) -> bytearray:
    """The batch with the CRC that its bytes give: what a client meant to send."""
    write_crc(batch, 0, compute_crc(batch, 0, len(batch)))
    return batch


def with_attributes(batch: bytearray, attributes: int) -> bytearray:
    batch[21:23] = attributes.to_bytes(2, "big")
    return mended(batch)


@pytest.mark.parametrize("codec", Compression)
def test_in_place(codec: Compression) -> None:
    """Offset and epoch are written into the caller's buffer; every other byte stays."""
    batch = build_batch(RECORDS, compression=codec)
    before = bytes(batch)
    assigned = assign(batch)
    assert assigned.buffer is batch
    assert batch[16:] == before[16:]
    check(assigned, renumbered(RECORDS))
    assert max_timestamp_of(assigned) == T + 7
    assert offset_of_max_timestamp(assigned) == 102


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_read_only_buffer_is_copied(codec: Compression) -> None:
    batch = bytes(build_batch(RECORDS, compression=codec))
    for buffer in (batch, memoryview(batch)):
        assigned = assign(buffer)
        assert assigned.buffer is not buffer
        check(assigned, renumbered(RECORDS))
    assert batch == bytes(build_batch(RECORDS, compression=codec))


def test_idempotent_and_transactional_batches_keep_their_producer() -> None:
    """P3, P4."""
    for transactional in (False, True):
        batch = build_batch(
            RECORDS,
            producer_id=9,
            producer_epoch=2,
            base_sequence=77,
            is_transactional=transactional,
        )
        header = check(assign(batch), renumbered(RECORDS))
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 77)
        assert header.is_transactional is transactional


def test_no_timestamps() -> None:
    records = [record._replace(timestamp=-1) for record in RECORDS]
    for codec in (Compression.NONE, Compression.GZIP):
        assigned = assign(build_batch(records, compression=codec))
        check(assigned, renumbered(records))
        assert max_timestamp_of(assigned) == -1
        assert offset_of_max_timestamp(assigned) == -1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_log_append_time(codec: Compression) -> None:
    batch = build_batch(RECORDS, compression=codec)
    assigned = assign(batch, LOG_APPEND)
    assert assigned.buffer is batch
    header = check(assigned, renumbered(RECORDS, NOW))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert max_timestamp_of(assigned) == NOW
    assert offset_of_max_timestamp(assigned) == 102


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_a_wrong_max_timestamp_is_set_right(codec: Compression) -> None:
    batch = build_batch(RECORDS, compression=codec)
    batch[35:43] = (T + 99_999).to_bytes(8, "big")
    assigned = assign(mended(batch))
    assert assigned.buffer is batch
    assert check(assigned, renumbered(RECORDS)).max_timestamp == T + 7


@pytest.mark.parametrize("source", Compression)
@pytest.mark.parametrize("target", Compression)
def test_compression_type_of_the_topic(source: Compression, target: Compression) -> None:
    """P6: `compression.type`."""
    batch = build_batch(
        RECORDS, compression=source, producer_id=1, producer_epoch=2, base_sequence=3
    )
    assigned = assign(batch, AppendPolicy(compression=target))
    header = check(assigned, renumbered(RECORDS))
    assert header.compression is target
    assert (assigned.buffer is batch) is (source is target)
    assert header.base_sequence == 3
    assert header.max_timestamp == T + 7


def test_compression_level_of_the_topic() -> None:
    records = [
        Record(0, T, b"k", b"".join(b"line %d of a text\n" % number for number in range(4000)))
    ]
    sizes = [
        len(
            assign(
                build_batch(records), AppendPolicy(compression=Compression.GZIP, level=level)
            ).buffer
        )
        for level in (1, 9)
    ]
    assert sizes[1] < sizes[0]


def test_the_level_is_for_the_codec_of_the_topic_only() -> None:
    """`compression.type=producer` and a batch to be rewritten: its own codec has no level 22."""
    batch = build_batch([RECORDS[0], RECORDS[2]._replace(offset=5)], compression=Compression.SNAPPY)
    batch[23:27] = (1).to_bytes(4, "big")
    assigned = assign(mended(batch), AppendPolicy(level=22))
    assert check(assigned, renumbered([RECORDS[0], RECORDS[2]])).compression is Compression.SNAPPY


def test_recompressed_with_log_append_time() -> None:
    policy = AppendPolicy(
        compression=Compression.ZSTD, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    check(assign(build_batch(RECORDS), policy), renumbered(RECORDS, NOW))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_offset_deltas_that_old_clients_got_wrong_are_set_right(codec: Compression) -> None:
    batch = build_batch(
        [record._replace(offset=offset) for record, offset in zip(RECORDS, (0, 5, 9), strict=True)],
        compression=codec,
    )
    batch[23:27] = (2).to_bytes(4, "big")
    assigned = assign(mended(batch))
    assert assigned.buffer is not batch
    check(assigned, renumbered(RECORDS))


def test_control_batches_come_from_coordinators_only() -> None:
    """P4."""
    marker = build_end_txn_marker(
        True, producer_id=1, producer_epoch=1, coordinator_epoch=3, timestamp=T
    )
    with pytest.raises(InvalidRecordError, match="must not write control batches"):
        assign(marker)
    assigned = assign(marker, AppendPolicy(compression=Compression.GZIP), AppendOrigin.COORDINATOR)
    assert assigned.buffer is marker, "control batches are not compressed"
    assert assigned.headers[0].is_control


def test_a_coordinator_may_write_several_batches() -> None:
    later = [record._replace(timestamp=T + 50) for record in RECORDS]
    batches = build_batch(RECORDS) + build_batch(later) + build_batch(RECORDS, base_offset=0)
    assigned = assign(batches, origin=AppendOrigin.COORDINATOR)
    assert [header for _, header in verify_batches(assigned.buffer)] == assigned.headers
    assert [header.base_offset for header in assigned.headers] == [100, 103, 106]
    assert (assigned.headers[0].base_offset, assigned.last_offset) == (100, 108)
    assert (max_timestamp_of(assigned), offset_of_max_timestamp(assigned)) == (T + 50, 105)
    with pytest.raises(InvalidRecordError, match="one batch at a time, not 3"):
        assign(batches)


def test_nothing_to_append() -> None:
    with pytest.raises(InvalidRecordError, match="at least one batch"):
        assign(b"")


def test_too_large() -> None:
    """P7, E2: refused before anything else is looked at, with the limit in the message."""
    batch = build_batch(RECORDS)
    assign(bytes(batch), AppendPolicy(max_message_bytes=len(batch)))
    batch[-1] ^= 1
    with pytest.raises(KafkaError, match=r"max\.message\.bytes, 100: send smaller") as caught:
        assign(batch, AppendPolicy(max_message_bytes=100))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_too_large_once_it_is_rewritten() -> None:
    """P7."""
    batch = build_batch([Record(0, T, None, bytes(5000))], compression=Compression.ZSTD)
    policy = AppendPolicy(compression=Compression.NONE, max_message_bytes=1000)
    with pytest.raises(KafkaError) as caught:
        assign(batch, policy)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb(codec: Compression) -> None:
    batch = build_batch([Record(0, T, None, bytes(300_000))], compression=codec)
    with pytest.raises(DecompressionLimitError) as caught:
        assign(batch, AppendPolicy(max_decompressed_bytes=100_000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_wrong_crc() -> None:
    batch = build_batch(RECORDS)
    batch[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="has CRC"):
        assign(batch)


def test_a_torn_batch() -> None:
    with pytest.raises(CorruptRecordError, match="are left"):
        assign(build_batch(RECORDS)[:-1])


def test_clients_start_at_offset_0() -> None:
    batch = build_batch(RECORDS)
    batch[:8] = (1).to_bytes(8, "big")
    with pytest.raises(InvalidRecordError, match="must start at offset 0, not 1"):
        assign(batch)
    check(assign(batch, origin=AppendOrigin.COORDINATOR), renumbered(RECORDS))


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (57, 0),
        (57, -1),
        (57, 2),
        (57, 4),
        (23, 3),
        (23, -1),
    ],
)
def test_count_and_last_offset_must_agree(position: int, value: int) -> None:
    batch = build_batch(RECORDS)
    batch[position : position + 4] = value.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidRecordError, match="offset delta"):
        assign(mended(batch))


def test_count_that_the_records_do_not_have() -> None:
    """INVALID_RECORD, not CORRUPT_MESSAGE: a client would send the same again."""
    for count, message in ((2, "bytes follow the 2 records"), (4, "record 3 of the batch")):
        for codec in (Compression.NONE, Compression.GZIP):
            batch = build_batch(RECORDS, compression=codec)
            batch[57:61] = count.to_bytes(4, "big")
            batch[23:27] = (count - 1).to_bytes(4, "big")
            with pytest.raises(InvalidRecordError, match=message):
                assign(mended(batch))


def test_records_that_cannot_be_unpacked() -> None:
    batch = build_batch(RECORDS)
    with pytest.raises(InvalidRecordError, match="invalid zstd data"):
        assign(with_attributes(batch, Compression.ZSTD))
    with pytest.raises(InvalidRecordError, match="unknown compression codec 7"):
        assign(with_attributes(batch, 7))


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch", "base_sequence", "attributes", "message"),
    [
        (-1, -1, -1, 0x10, "transactional batch needs a producer id"),
        (5, 0, -1, 0, "sequence -1 in epoch 0"),
        (5, -1, 0, 0, "sequence 0 in epoch -1"),
    ],
)
def test_half_a_producer(
    producer_id: int, producer_epoch: int, base_sequence: int, attributes: int, message: str
) -> None:
    """P3."""
    batch = build_batch(RECORDS)
    batch[43:57] = pack(">qhi", producer_id, producer_epoch, base_sequence)
    with pytest.raises(InvalidRecordError, match=message):
        assign(with_attributes(batch, attributes))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_timestamps_too_far_from_now(codec: Compression) -> None:
    policy = AppendPolicy(timestamp_before_max_ms=5000, timestamp_after_max_ms=3000)

    def at(*timestamps: int) -> bytearray:
        records = [
            Record(index, timestamp, None, b"v") for index, timestamp in enumerate(timestamps)
        ]
        return build_batch(records, compression=codec)

    assigned = assign(at(NOW - 5000, NOW + 3000, -1), policy)
    assert max_timestamp_of(assigned) == NOW + 3000
    batch = at(NOW, NOW - 5001, -1, NOW + 3001)
    before = bytes(batch)
    with pytest.raises(RecordValidationError) as caught:
        assign(batch, policy)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert caught.value.record_errors == (
        RecordError(1, f"timestamp {NOW - 5001} is not between {NOW - 5000} and {NOW + 3000}"),
        RecordError(3, f"timestamp {NOW + 3001} is not between {NOW - 5000} and {NOW + 3000}"),
    )
    assert batch == before, "a refused batch is not changed"
    check(assign(batch, LOG_APPEND), renumbered(read_records(before), NOW))


def test_default_limits_of_timestamps() -> None:
    """An hour into the future, and as far back as one likes."""
    assign(build_batch([Record(0, 0, None, b"v")]))
    assign(build_batch([Record(0, NOW + 3_600_000, None, b"v")]))
    with pytest.raises(RecordValidationError):
        assign(build_batch([Record(0, NOW + 3_600_001, None, b"v")]))
    unlimited = AppendPolicy(timestamp_after_max_ms=2**63 - 1)
    assign(build_batch([Record(0, 2**63 - 1, None, b"v")]), unlimited)


def test_producers_must_not_send_log_append_time() -> None:
    batch = build_batch(
        RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=T + 500
    )
    with pytest.raises(RecordValidationError, match="must not send log append time") as caught:
        assign(bytes(batch), LOG_APPEND)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1, 2]
    header = check(
        assign(bytes(batch)),
        [record._replace(timestamp=record.timestamp) for record in renumbered(RECORDS)],
    )
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.max_timestamp == T + 500
    undated = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=-1)
    with pytest.raises(RecordValidationError, match="must not send log append time"):
        assign(undated)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_compacted_topics_need_keys(codec: Compression) -> None:
    """S5."""
    compacted = AppendPolicy(compacted=True)
    check(assign(build_batch(RECORDS, compression=codec), compacted), renumbered(RECORDS))
    records = [RECORDS[0], *(record._replace(key=None) for record in RECORDS[1:])]
    with pytest.raises(RecordValidationError, match="2 of the batch's records") as caught:
        assign(build_batch(records, compression=codec), compacted)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in caught.value.record_errors] == [1, 2]
    check(assign(build_batch(records, compression=codec)), renumbered(records))


@pytest.mark.parametrize("name", LEGACY)
def test_old_formats_are_converted(name: str) -> None:
    """They become one v2 batch with the codec that they had."""
    policy = AppendPolicy(timestamp_type=TimestampType.CREATE_TIME)
    times = (-1, -1, -1) if name.startswith("v0") else (T, T + 5, T - 10)
    if "append" in name:
        times = (T + 111_111,) * 3
    assigned = assign(LEGACY[name], policy)
    header = check(assigned, legacy_records(100, timestamps=times))
    assert header.compression.codec_name == name.split("_")[1]
    assert offset_of_max_timestamp(assigned) == (-1 if times[0] == -1 else 102)


def test_old_formats_obey_the_topic() -> None:
    policy = AppendPolicy(
        compression=Compression.ZSTD, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    header = check(assign(LEGACY["v1_none"], policy), legacy_records(100, timestamps=(NOW,) * 3))
    assert header.compression is Compression.ZSTD
    with pytest.raises(RecordValidationError, match="needs a key"):
        assign(LEGACY["v1_gzip"], AppendPolicy(compacted=True))
    with pytest.raises(RecordValidationError, match="must not send log append time"):
        assign(LEGACY["v1_none_log_append_time"], policy)
    with pytest.raises(RecordValidationError, match="is not between"):
        assign(LEGACY["v1_gzip"], AppendPolicy(timestamp_before_max_ms=1000))
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        assign(LEGACY["v1_gzip"], AppendPolicy(max_message_bytes=50))


def test_old_formats_that_kafka_refuses() -> None:
    with pytest.raises(InvalidRecordError, match="mixes messages of magic 0 and 1"):
        assign(LEGACY["v0_none"] + LEGACY["v1_none"])
    with pytest.raises(InvalidRecordError, match="mixes messages of magic 1 and 2"):
        assign(LEGACY["v1_none"] + V2["plain"])
    with pytest.raises(InvalidRecordError, match="only one of its append"):
        assign(LEGACY["v1_gzip"] * 2)
    with pytest.raises(CorruptRecordError, match="has CRC"):
        assign(LEGACY["v1_none"][:-1] + b"x")
    body = pack(">bBqii", 1, 1, T, -1, 4) + b"nope"
    wrapper = pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    with pytest.raises(InvalidRecordError, match="invalid gzip data"):
        assign(wrapper)
    inner = compress(Compression.GZIP, LEGACY["v0_none"])
    body = pack(">bBqii", 1, 1, T, -1, len(inner)) + inner
    wrapper = pack(">qiI", 9, len(body) + 4, zlib.crc32(body)) + body
    with pytest.raises(InvalidRecordError):
        assign(wrapper)


def test_followers_check_crcs_and_order() -> None:
    """R2."""
    first, second = bytes(V2["plain"]), V2["gaps"]
    assert verify_batches(first + second) == [
        (0, read_header(first)),
        (len(first), read_header(second)),
    ]
    assert verify_batches(b"") == []
    with pytest.raises(InvalidRecordError, match="last offset 4 follows 1100"):
        verify_batches(second + first)
    with pytest.raises(CorruptRecordError, match="has CRC"):
        verify_batches(first + second[:-1] + b"x")
    with pytest.raises(CorruptRecordError, match="are left"):
        verify_batches(first + second[:-1])


def test_entries_of_every_magic() -> None:
    log = LEGACY["v0_gzip"] + V2["gaps"]
    entries = verify_batches(log)
    assert [(position, entry.last_offset, entry.magic) for position, entry in entries] == [
        (0, 502, 0),
        (len(LEGACY["v0_gzip"]), 1100, 2),
    ]
    with pytest.raises(InvalidRecordError, match="last offset 502 follows 502"):
        verify_batches(LEGACY["v0_gzip"] * 2)
    with pytest.raises(CorruptRecordError):
        verify_batches(log[:-1])
    with pytest.raises(CorruptRecordError, match="has CRC"):
        verify_batches(LEGACY["v0_gzip"][:-1] + b"x" + V2["gaps"])
