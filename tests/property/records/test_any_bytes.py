"""Invalid and damaged batches raise `KafkaError` and no other exception."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import CorruptRecordError, KafkaError
from penstock.records import legacy
from penstock.records.append_policy import AppendOrigin, AppendPolicy
from penstock.records.arrow import decode_to_arrow
from penstock.records.batch import (
    HEADER,
    HEADER_SIZE,
    compute_crc,
    first_entry,
    read_header,
    split,
    verify,
    write_crc,
)
from penstock.records.build import build_batch
from penstock.records.compress import Compression, compress, decompress
from penstock.records.control import read_end_txn_marker
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.records.validate import Assigned, verify_batches
from tests.support.storage.batches import T, golden, iter_records, record_lists
from tests.support.storage.validation import validate_and_assign

LIMIT = 1 << 20
GOLDEN = [*golden("v2").values(), *golden("legacy").values()]
SMALL = [batch for batch in GOLDEN if len(batch) < 800]


def read_everything(data: bytes) -> None:
    """Runs every reader of the layer on the bytes."""
    readers: list[Callable[[], object]] = [
        lambda: list(iter_records(data, max_bytes=LIMIT)),
        lambda: read_records(data, max_bytes=LIMIT),
        lambda: read_end_txn_marker(data, 0, read_header(data)),
        lambda: split(data),
        lambda: verify(data, 0, read_header(data)),
        lambda: first_entry(data),
        lambda: legacy.read_entry(data, max_bytes=LIMIT),
        lambda: legacy.convert_to_v2(data, max_bytes=LIMIT),
        lambda: legacy.crc_ok(data),
        lambda: verify_batches(data),
        lambda: decode_to_arrow([data], check_crcs=False, max_bytes=LIMIT),
        lambda: append(data, AppendOrigin.CLIENT),
        lambda: append(data, AppendOrigin.COORDINATOR),
    ]
    for read in readers:
        with suppress(KafkaError):
            read()


def append(data: bytes, origin: AppendOrigin) -> Assigned:
    policy = AppendPolicy(max_decompressed_bytes=LIMIT)
    return validate_and_assign(
        data, next_offset=0, leader_epoch=0, now_ms=T, policy=policy, origin=origin
    )


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_random_bytes_raise_only_kafka_errors(data: bytes) -> None:
    read_everything(data)


@settings(max_examples=150)
@given(
    st.builds(
        HEADER.pack,
        st.sampled_from([0, 0, 5, -1, 2**63 - 1, -(2**63)]),
        st.sampled_from([49, 60, 100, 2**31 - 1]),
        st.just(-1),
        st.sampled_from([2, 2, 2, 1, 0]),
        st.just(0),
        st.integers(-(2**15), 2**15 - 1),
        st.sampled_from([0, 1, 5, -1, 2**31 - 1, -(2**31)]),
        st.sampled_from([0, T, -1, 2**63 - 1, -(2**63)]),
        st.sampled_from([0, T, -1, 2**63 - 1, -(2**63)]),
        st.sampled_from([-1, 0, 2**63 - 1]),
        st.sampled_from([-1, 0]),
        st.sampled_from([-1, 0]),
        st.sampled_from([0, 1, 2, -1, 2**31 - 1, -(2**31)]),
    ),
    st.binary(max_size=60),
)
def test_random_headers_raise_only_kafka_errors(header: bytes, rest: bytes) -> None:
    batch = bytearray(header + rest)
    read_everything(bytes(batch))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    write_crc(batch, 0, compute_crc(batch, 0, len(batch)))
    read_everything(bytes(batch))


@settings(max_examples=250)
@given(st.sampled_from(SMALL), st.data())
def test_damaged_batches_raise_only_kafka_errors(batch: bytes, data: st.DataObject) -> None:
    """The CRC is recomputed, so that the damage is detected by later checks."""
    broken = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(broken) - 1))
        broken[at] = data.draw(st.integers(0, 255))
    read_everything(bytes(broken))
    if broken[16] == 2:
        write_crc(broken, 0, compute_crc(broken, 0, len(broken)))
        read_everything(bytes(broken))


@pytest.mark.parametrize("batch", SMALL, ids=range(len(SMALL)))
def test_a_truncated_batch_is_rejected(batch: bytes) -> None:
    """S7: no prefix of a v2 batch is accepted as a batch."""
    for cut in range(0, len(batch), 7 if len(batch) > 200 else 1):
        read_everything(batch[:cut])
        if cut > 0 and batch[16] == 2:
            with pytest.raises(CorruptRecordError):
                split(batch[:cut])


@settings(max_examples=100)
@given(record_lists(min_size=1, max_size=4), st.data())
def test_damage_is_detected(records: list[Record], data: st.DataObject) -> None:
    """S7: a changed bit after the CRC field is always detected."""
    batch = build_batch(records, base_offset=records[0].offset)
    header = read_header(batch)
    bit = data.draw(st.integers(21 * 8, 8 * len(batch) - 1))
    batch[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptRecordError):
        verify(batch, 0, header)


@settings(max_examples=300)
@given(st.sampled_from(list(Compression)[1:]), st.data())
def test_damaged_compressed_data_raises_only_kafka_errors(
    codec: Compression, data: st.DataObject
) -> None:
    """The output never exceeds the limit."""
    source = data.draw(st.binary(max_size=300)) * data.draw(st.sampled_from([1, 5, 2000]))
    packed = bytearray(compress(codec, source))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(packed) - 1))
        packed[at : at + data.draw(st.integers(1, 3))] = data.draw(st.binary(max_size=3))
    with suppress(KafkaError):
        assert len(decompress(codec, packed, 10_000)) <= 10_000


@settings(max_examples=150)
@given(st.sampled_from(list(Compression)[1:]), st.binary(max_size=60))
def test_random_compressed_bytes_raise_only_kafka_errors(codec: Compression, data: bytes) -> None:
    prefixes = {
        Compression.GZIP: b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff",
        Compression.SNAPPY: b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01",
        Compression.LZ4: bytes.fromhex("04224d18604082"),
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for prefix in (b"", prefixes[codec]):
        for magic in (0, 1, 2):
            with suppress(KafkaError):
                assert len(decompress(codec, prefix + data, 10_000, magic=magic)) <= 10_000


def test_the_header_size_is_that_of_the_struct() -> None:
    assert HEADER.size == HEADER_SIZE
