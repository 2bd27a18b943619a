"""Bytes of `.snapshot` files (P3, S1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.producer.append_info import BatchMetadata, ProducerStateEntry
from penstock.storage.producer.snapshot import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
)

KAFKA = bytes.fromhex(
    "0001fd9b4eef00000003"
    "0000000000000fa1" "0003" "0000000e" "00000000000000aa" "00000004"
    "0000018bcfe56b15" "00000007" "0000000000000096"
    "0000000000000fa2" "7fff" "ffffffff" "ffffffffffffffff" "00000000"
    "0000018bcfe56be8" "0000000c" "ffffffffffffffff"
    "0000000000000000" "0000" "7fffffff" "000000012a05f200" "00000000"
    "ffffffffffffffff" "ffffffff" "ffffffffffffffff"
)  # fmt: skip
"""Written by ProducerStateManager.writeSnapshot of Kafka 4.3.1: `entries()`, in this order."""

KAFKA_EMPTY = bytes.fromhex("000148674bc700000000")


def entries() -> list[ProducerStateEntry]:
    """One with two batches and an open transaction, one known by a marker only, one at the end
    of its sequences."""
    first = BatchMetadata(9, 159, 9, 1700000000456)
    second = BatchMetadata(14, 170, 4, 1700000000789)
    last = BatchMetadata(2147483647, 5000000000, 0, -1)
    return [
        ProducerStateEntry(4001, 3, 7, 1700000000789, 150, (first, second)),
        ProducerStateEntry(4002, 32767, 12, 1700000001000, None),
        ProducerStateEntry(0, 0, -1, -1, None, (last,)),
    ]


def test_writes_the_bytes_that_kafka_writes() -> None:
    assert encode_snapshot(entries()) == KAFKA
    assert encode_snapshot([]) == KAFKA_EMPTY


def test_reads_the_bytes_that_kafka_wrote() -> None:
    """Only the last batch of a producer is in the file."""
    expected = entries()
    expected[0].batches.popleft()
    assert decode_snapshot(KAFKA) == expected
    assert decode_snapshot(memoryview(KAFKA_EMPTY)) == []


def _entry(
    producer_id: int,
    epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    txn: int | None,
    batch: tuple[int, int, int] | None,
) -> ProducerStateEntry:
    entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, txn)
    if batch is not None:
        sequence, offset, delta = batch
        entry.add_batch(epoch, BatchMetadata(sequence, offset, delta, timestamp))
    return entry


producers = st.builds(
    _entry,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.none() | st.integers(0, 2**63 - 1),
    st.none()
    | st.tuples(st.integers(-1, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)),
)


@given(st.lists(producers, max_size=10))
def test_a_snapshot_round_trips(state: list[ProducerStateEntry]) -> None:
    assert decode_snapshot(encode_snapshot(state)) == state


@given(st.data())
def test_a_damaged_snapshot_is_corrupt_and_nothing_else(data: st.DataObject) -> None:
    """Any change of any byte, and any cut: the CRC covers all but itself and the version."""
    content = bytearray(data.draw(st.sampled_from([KAFKA, KAFKA_EMPTY])))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(content)


@given(st.binary(max_size=200))
def test_random_bytes_are_corrupt_and_nothing_else(content: bytes) -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes are too few"),
        (KAFKA[:9], "9 bytes are too few"),
        (b"\0\2" + KAFKA[2:], "version 2 is not supported"),
        (KAFKA[:-1], "CRC is 0xfd9b4eef"),
        (bytes.fromhex("0001 ba0cc8c4 00000001"), "1 producers do not fit into 10 bytes"),
        (bytes.fromhex("0001 ffffffff ffffffff"), "-1 producers do not fit"),
    ],
)
def test_the_error_has_the_reason(content: bytes, message: str) -> None:
    """The last two have a right CRC and a count that their bytes cannot hold."""
    with pytest.raises(CorruptSnapshotError, match=message):
        decode_snapshot(content)
