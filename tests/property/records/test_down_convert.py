"""Whatever is converted to an older format and read again is what it was, as far as formats go."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import KafkaError
from penstock.records.batch import HEADER_SIZE, MAGIC, MAGIC_AT, compute_crc, write_crc
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.down_convert import down_convert
from penstock.records.legacy import convert_to_v2, crc_ok, read_message
from penstock.records.read import iter_records
from penstock.records.record import Record
from tests.support.storage.batches import golden, record_lists

codecs = st.sampled_from([codec for codec in Compression if codec is not Compression.ZSTD])
magics = st.integers(0, 1)
SEEDS = [*golden("v2").values(), *golden("legacy").values()]


def without(records: list[Record], magic: int) -> list[Record]:
    """The records without what the format does not have."""
    return [
        record._replace(headers=(), timestamp=record.timestamp if magic else -1)
        for record in records
    ]


@given(record_lists(min_size=1), codecs, magics)
def test_there_and_back(records: list[Record], codec: Compression, magic: int) -> None:
    """C2: read as it is, and converted up again."""
    batch = build_batch(records, base_offset=records[0].offset, compression=codec)
    messages, next_offset = down_convert(batch, magic)
    assert crc_ok(messages)
    assert list(iter_records(messages)) == without(records, magic)
    assert list(iter_records(convert_to_v2(messages))) == without(records, magic)
    assert next_offset == records[-1].offset + 1


@given(record_lists(min_size=1), codecs, magics, st.integers(0, 12), st.integers(0, 3000))
def test_from_anywhere_with_any_room(
    records: list[Record], codec: Compression, magic: int, index: int, room: int
) -> None:
    """C1: every record from the wanted one on can be had, a set with some room at a time."""
    wanted = records[min(index, len(records) - 1)].offset
    batch = build_batch(records, base_offset=records[0].offset, compression=codec)
    whole = down_convert(batch, magic, wanted).messages
    read = [record for record in iter_records(whole) if record.offset >= wanted]
    assert read == [item for item in without(records, magic) if item.offset >= wanted]
    assert down_convert(batch, magic, wanted, room=room).messages == whole, "the first one is whole"


@st.composite
def spoilt(draw: st.DrawFn) -> bytearray:
    """A batch or message set with some bytes changed and, mostly, the CRC of a batch mended."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1) | st.integers(0, min(len(data) - 1, 80)))
        data[at] = draw(st.integers(0, 255))
    del data[draw(st.just(len(data)) | st.integers(0, len(data))) :]
    if len(data) >= HEADER_SIZE and data[MAGIC_AT] == MAGIC and draw(st.integers(0, 4)):
        write_crc(data, 0, compute_crc(data, 0, len(data)))
    return data


@settings(max_examples=400)
@given(spoilt(), magics)
def test_any_bytes(data: bytearray, magic: int) -> None:
    """E7: what is no batch any more is refused with a KafkaError, what is converted can be read."""
    with suppress(KafkaError):
        messages, _ = down_convert(data, magic, max_bytes=1 << 20)
        position = 0
        while position < len(messages):
            message = read_message(messages, position)
            assert message.magic <= magic
            position += message.size
        assert position == len(messages)
