"""Records round-trip through batches, with every codec and extreme values."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records.arrow import decode_to_arrow
from penstock.records.batch import (
    TimestampType,
    read_header,
    set_base_offset_and_epoch,
    set_max_timestamp,
    split,
    verify,
)
from penstock.records.build import build_batch
from penstock.records.compress import Compression, compress, decompress
from penstock.records.read import read_records
from penstock.records.record import Record
from tests.support.storage.batch_builder import BatchBuilder
from tests.support.storage.batches import int64s, record_lists

codecs = st.sampled_from(Compression)


def base_of(records: list[Record]) -> int:
    return records[0].offset if records else 0


@given(record_lists(min_size=1), codecs, st.none() | st.integers(0, 2**62))
def test_records_round_trip(records: list[Record], codec: Compression, horizon: int | None) -> None:
    """P6, S1."""
    batch = build_batch(
        records, base_offset=base_of(records), compression=codec, delete_horizon_ms=horizon
    )
    header = read_header(batch)
    verify(batch, 0, header)
    assert header.records_count == len(records)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(-1, *(record.timestamp for record in records))
    assert header.delete_horizon_ms == horizon
    assert read_records(batch) == records


@given(record_lists(min_size=1, max_size=5), st.lists(int64s, min_size=5, max_size=5))
def test_any_timestamps_round_trip(records: list[Record], timestamps: list[int]) -> None:
    """Deltas that overflow 64 bits wrap in encoding and decoding."""
    records = [
        record._replace(timestamp=timestamp)
        for record, timestamp in zip(records, timestamps, strict=False)
    ]
    batch = build_batch(records, base_offset=base_of(records))
    assert read_records(batch) == records


@given(record_lists(min_size=1), st.integers(0, 2**62), st.integers(-1, 2**31 - 1), codecs)
def test_offsets_and_append_time_are_set_in_place(
    records: list[Record], offset: int, epoch: int, codec: Compression
) -> None:
    """A new offset moves all records; log append time changes all their timestamps."""
    first = base_of(records)
    batch = build_batch(records, base_offset=first, compression=codec)
    set_base_offset_and_epoch(batch, 0, offset, epoch)
    header = read_header(batch)
    verify(batch, 0, header)
    assert header.partition_leader_epoch == epoch
    moved = [record._replace(offset=record.offset - first + offset) for record in records]
    assert read_records(batch) == moved
    header = set_max_timestamp(batch, 0, header, TimestampType.LOG_APPEND_TIME, 12345)
    verify(batch, 0, header)
    assert header == read_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert read_records(batch) == [record._replace(timestamp=12345) for record in moved]


@given(record_lists(max_size=20), codecs)
def test_builder_and_build_batch_agree(records: list[Record], codec: Compression) -> None:
    """P5."""
    builder = BatchBuilder(write_limit=2**20, compression=codec)
    taken = [record for record in records if record.timestamp >= -1]
    for record in taken:
        assert builder.append(record.timestamp, record.key, record.value, record.headers)
    if not taken:
        return
    renumbered = [record._replace(offset=index) for index, record in enumerate(taken)]
    assert builder.close() == build_batch(renumbered, compression=codec)


@settings(max_examples=60)
@given(st.lists(st.tuples(record_lists(max_size=6), codecs), max_size=5), int64s, int64s)
def test_arrow_columns_hold_the_records(
    batches: list[tuple[list[Record], Compression]], start: int, end: int
) -> None:
    """D1: those between the two offsets."""
    log = b"".join(
        build_batch(records, base_offset=base_of(records), compression=codec)
        for records, codec in batches
        if records
    )
    table = decode_to_arrow([log], start_offset=start, end_offset=end)
    table.validate(full=True)
    assert [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ] == [record for records, _ in batches for record in records if start <= record.offset < end]


@given(st.lists(record_lists(min_size=1, max_size=3), max_size=4))
def test_split_returns_the_original_batches(lists: list[list[Record]]) -> None:
    batches = [build_batch(records, base_offset=base_of(records)) for records in lists]
    result = split(b"".join(batches))
    assert [header for _, header in result] == [read_header(batch) for batch in batches]
    assert [position for position, _ in result] == [
        sum(map(len, batches[:index])) for index in range(len(batches))
    ]


@given(codecs, st.lists(st.binary(max_size=2000), max_size=40).map(b"".join))
def test_each_codec_round_trips(codec: Compression, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data
