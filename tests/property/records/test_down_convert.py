"""Down-converted records equal the originals except for fields that the format lacks."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import KafkaError
from penstock.records.batch import HEADER_SIZE, MAGIC, MAGIC_AT, compute_crc, write_crc
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.down_convert import down_convert
from penstock.records.legacy import convert_to_v2, crc_ok, read_message
from penstock.records.record import Record
from tests.support.storage.batches import golden, iter_records, record_lists

codecs = st.sampled_from([codec for codec in Compression if codec is not Compression.ZSTD])
magics = st.integers(0, 1)
SEEDS = [*golden("v2").values(), *golden("legacy").values()]


def without(records: list[Record], magic: int) -> list[Record]:
    """Returns the records without fields that the format lacks."""
    return [
        record._replace(headers=(), timestamp=record.timestamp if magic else -1)
        for record in records
    ]


@given(record_lists(min_size=1), codecs, magics)
def test_down_converted_records_round_trip(
    records: list[Record], codec: Compression, magic: int
) -> None:
    """C2: read directly, and converted up again."""
    batch = build_batch(records, base_offset=records[0].offset, compression=codec)
    messages, next_offset = down_convert(batch, magic)
    assert crc_ok(messages)
    assert list(iter_records(messages)) == without(records, magic)
    assert list(iter_records(convert_to_v2(messages))) == without(records, magic)
    assert next_offset == records[-1].offset + 1


@given(record_lists(min_size=1), codecs, magics, st.integers(0, 12), st.integers(0, 3000))
def test_conversion_starts_at_any_offset_with_any_size_limit(
    records: list[Record], codec: Compression, magic: int, index: int, room: int
) -> None:
    """C1: all records from the offset on are returned, one limited message set at a time."""
    start_offset = records[min(index, len(records) - 1)].offset
    batch = build_batch(records, base_offset=records[0].offset, compression=codec)
    whole = down_convert(batch, magic, start_offset).messages
    read = [record for record in iter_records(whole) if record.offset >= start_offset]
    assert read == [item for item in without(records, magic) if item.offset >= start_offset]
    assert down_convert(batch, magic, start_offset, room=room).messages == whole, (
        "the first one is whole"
    )


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytearray:
    """A batch or message set with some bytes changed and, mostly, a recomputed CRC."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1) | st.integers(0, min(len(data) - 1, 80)))
        data[at] = draw(st.integers(0, 255))
    del data[draw(st.just(len(data)) | st.integers(0, len(data))) :]
    if len(data) >= HEADER_SIZE and data[MAGIC_AT] == MAGIC and draw(st.integers(0, 4)):
        write_crc(data, 0, compute_crc(data, 0, len(data)))
    return data


@settings(max_examples=400)
@given(damaged_batches(), magics)
def test_damaged_batches_raise_only_kafka_errors(data: bytearray, magic: int) -> None:
    """E7: a damaged batch raises KafkaError, or its conversion can be read."""
    with suppress(KafkaError):
        messages, _ = down_convert(data, magic, max_bytes=1 << 20)
        position = 0
        while position < len(messages):
            message = read_message(messages, position)
            assert message.magic <= magic
            position += message.size
        assert position == len(messages)
