"""Batches built here are the batches that Kafka's own builder writes."""

import pytest

from penstock.core.errors import InvalidRecordError, KafkaError
from penstock.records.batch import HEADER_SIZE, TimestampType, read_header, verify
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.read import read_records
from penstock.records.record import Record
from tests.support.storage.batch_builder import BatchBuilder
from tests.support.storage.batches import T, golden, golden_records

V2 = golden("v2")
SEQUENTIAL = golden_records(range(5))
GAPS = golden_records([1000, 1003, 1004, 1010, 1100])
CODECS = [codec for codec in Compression if codec is not Compression.NONE]


def test_plain() -> None:
    assert build_batch(SEQUENTIAL) == V2["plain"]


def test_offsets_with_gaps_and_a_leader_epoch() -> None:
    assert build_batch(GAPS, base_offset=1000, partition_leader_epoch=7) == V2["gaps"]


def test_idempotent() -> None:
    """P3."""
    batch = build_batch(SEQUENTIAL, producer_id=4711, producer_epoch=3, base_sequence=2_147_483_646)
    assert batch == V2["idempotent"]


def test_transactional() -> None:
    """P4."""
    batch = build_batch(
        SEQUENTIAL, producer_id=4711, producer_epoch=3, base_sequence=5, is_transactional=True
    )
    assert batch == V2["transactional"]


def test_log_append_time() -> None:
    batch = build_batch(
        SEQUENTIAL, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=T + 111_111
    )
    assert batch == V2["log_append_time"]


def test_log_append_time_without_a_time_takes_the_latest_timestamp() -> None:
    records = [record._replace(timestamp=T) for record in SEQUENTIAL]
    batch = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert read_header(batch).max_timestamp == T
    assert read_records(batch) == records


def test_delete_horizon() -> None:
    """S5."""
    batch = build_batch(
        GAPS, base_offset=1000, partition_leader_epoch=7, delete_horizon_ms=T + 1_000_000
    )
    assert batch == V2["delete_horizon"]
    assert read_records(batch) == GAPS


def test_last_offset_of_a_compacted_batch() -> None:
    """S5: the last offset, and with it the last sequence, outlives its record."""
    batch = build_batch(
        GAPS,
        base_offset=1000,
        partition_leader_epoch=7,
        producer_id=12,
        producer_epoch=1,
        base_sequence=9,
        last_offset=1200,
    )
    assert batch == V2["last_offset"]


def test_batch_without_records() -> None:
    """S5."""
    batch = build_batch(
        [],
        base_offset=1000,
        last_offset=1100,
        producer_id=12,
        producer_epoch=1,
        base_sequence=9,
        partition_leader_epoch=7,
        is_transactional=True,
        max_timestamp=T + 77,
        compression=Compression.ZSTD,
        delete_horizon_ms=T,
    )
    assert batch == V2["empty"]
    assert read_records(batch) == []


@pytest.mark.parametrize("codec", CODECS)
def test_compressed(codec: Compression) -> None:
    """P6: with every codec the very bytes of the Java client."""
    assert build_batch(SEQUENTIAL, compression=codec) == V2[codec.codec_name]
    repeats = 4000 if codec is Compression.SNAPPY else 20_000
    big = [Record(0, T, b"big", b"0123456789" * repeats)]
    assert build_batch(big, compression=codec) == V2[codec.codec_name + "_blocks"]


def test_compression_levels() -> None:
    lz4 = build_batch(SEQUENTIAL, compression=Compression.LZ4, level=3)
    assert lz4 == V2["lz4_level_3"]
    zstd = build_batch(SEQUENTIAL, compression=Compression.ZSTD, level=22)
    assert zstd == V2["zstd_level_22"]


@pytest.mark.parametrize(
    ("offsets", "base_offset", "last_offset"),
    [
        ([1, 1], 0, None),
        ([2, 1], 0, None),
        ([4, 5], 5, None),
        ([0, 2**31], 0, None),
        ([0], -1, None),
        ([0, 5], 0, 4),
        ([0], 0, 2**31),
        ([], 5, 4),
        ([], 5, None),
        ([2**63], 0, None),
    ],
)
def test_offsets_that_make_no_batch(
    offsets: list[int], base_offset: int, last_offset: int | None
) -> None:
    records = [Record(offset, T, None, None) for offset in offsets]
    with pytest.raises(InvalidRecordError):
        build_batch(records, base_offset=base_offset, last_offset=last_offset)


def test_largest_offset_delta() -> None:
    records = [Record(offset, T, None, b"v") for offset in (0, 2**31 - 1)]
    batch = build_batch(records)
    assert read_header(batch).last_offset == 2**31 - 1
    assert read_records(batch) == records


def test_timestamp_that_does_not_fit() -> None:
    with pytest.raises(InvalidRecordError, match="cannot be encoded"):
        build_batch([Record(0, 2**63, None, None)])


def test_header_field_that_does_not_fit() -> None:
    with pytest.raises(InvalidRecordError, match="cannot have the header"):
        build_batch(SEQUENTIAL, partition_leader_epoch=2**31)


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch", "base_sequence", "is_transactional", "message"),
    [
        (-1, -1, -1, True, "needs a producer id"),
        (5, -1, 0, False, "needs an epoch"),
        (5, 0, -1, False, "needs a sequence"),
    ],
)
def test_half_a_producer(
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
    message: str,
) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        build_batch(
            SEQUENTIAL,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )


def filled(builder: BatchBuilder) -> BatchBuilder:
    for record in SEQUENTIAL:
        assert builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder


def test_builder_writes_the_same_bytes() -> None:
    """P5."""
    assert filled(BatchBuilder()).close() == V2["plain"]
    assert filled(BatchBuilder(compression=Compression.SNAPPY)).close() == V2["snappy"]
    batch = filled(BatchBuilder()).close(
        producer_id=4711, producer_epoch=3, base_sequence=5, is_transactional=True
    )
    assert batch == V2["transactional"]


def test_builder_is_full_at_its_limit() -> None:
    """P5: `batch.size` bounds the finished batch to the byte."""
    batch_size = len(build_batch([Record(0, T, None, b"v" * 100)]))
    two = len(build_batch([Record(offset, T, None, b"v" * 100) for offset in (0, 1)]))
    builder = BatchBuilder(write_limit=two)
    assert not builder.is_full
    assert builder.append(T, None, b"v" * 100)
    assert builder.estimated_size == builder.uncompressed_size == batch_size
    assert not builder.append(T, None, b"v" * 101)
    assert builder.uncompressed_size == batch_size
    assert not builder.append(T, None, b"v" * 100_000)
    assert builder.append(T, None, b"v" * 100)
    assert builder.is_full
    assert not builder.append(T, None, b"")
    batch = builder.close()
    assert len(batch) == two
    assert [record.value for record in read_records(batch)] == [b"v" * 100] * 2


def test_builder_takes_a_first_record_of_any_size() -> None:
    """P5: a record larger than `batch.size` gets a batch of its own."""
    builder = BatchBuilder(write_limit=100)
    assert builder.append(T, b"k", b"v" * 5000)
    assert not builder.append(T, b"k", b"v")
    assert read_records(builder.close()) == [Record(0, T, b"k", b"v" * 5000)]
    assert BatchBuilder(write_limit=0).append(T, None, None)


def test_builder_estimates_with_the_ratio_of_earlier_batches() -> None:
    def fill(ratio: float) -> int:
        builder = BatchBuilder(
            write_limit=1000, compression=Compression.GZIP, compression_ratio=ratio
        )
        while builder.append(T, None, b"v" * 100):
            pass
        assert builder.estimated_size <= 1000
        return builder.records_count

    assert fill(1.0) == 8
    assert fill(0.1) == 73


def test_builder_keeps_the_latest_timestamp() -> None:
    builder = BatchBuilder()
    for timestamp in (T, T + 9, T - 50, -1):
        builder.append(timestamp, None, b"v")
    assert builder.max_timestamp == T + 9
    batch = builder.close()
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (T, T + 9)
    assert [record.timestamp for record in read_records(batch)] == [T, T + 9, T - 50, -1]
    verify(batch, 0, header)


def test_builder_refuses_the_same_records_as_kafka() -> None:
    builder = BatchBuilder()
    builder.append(T, None, b"v")
    for timestamp in (-2, 2**63):
        with pytest.raises(InvalidRecordError, match=f"timestamp {timestamp} is not between"):
            builder.append(timestamp, None, b"v")
    with pytest.raises(InvalidRecordError, match="needs a sequence"):
        builder.close(producer_id=1, producer_epoch=1)
    assert len(builder.close()) > HEADER_SIZE
    with pytest.raises(ValueError, match="closed already"):
        builder.close()
    assert not builder.append(T, None, b"v")
    with pytest.raises(ValueError, match="needs a record"):
        BatchBuilder().close()
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        BatchBuilder(compression=Compression.ZSTD, level=23)


def test_header_names_that_are_no_text_become_question_marks() -> None:
    """A lone surrogate has no UTF-8; Java writes `?` for it."""
    batch = build_batch([Record(0, T, None, None, (("a\ud800", b"1"),))])
    assert read_records(batch)[0].headers == (("a?", b"1"),)
