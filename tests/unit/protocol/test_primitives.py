"""Varints, arrays of every length, and the tables that must not grow without end."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol import primitives
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Int8, Int64, Message, Struct, data
from penstock.protocol.primitives import UUIDS, UVARINTS, read_uvarint


class Pair(Struct):
    left: Int8 = 0
    right: str = ""


class Lists(Message):
    INFO = data(versions="0-1", flexible="1+")

    numbers: list[Int64] = []
    flags: list[bool] = []
    fractions: list[float] = []
    names: list[str] = []
    blobs: list[bytes] = []
    ids: list[UUID] = []
    pairs: list[Pair] = []


@given(st.integers(0, 2**32 - 1))
def test_varint_there_and_back(value: int) -> None:
    encoded = UVARINTS[value]
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    if len(encoded) > 1:
        assert read_uvarint(memoryview(encoded), 1, encoded[0]) == (value, len(encoded))
    else:
        assert encoded == bytes([value])


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2**21 - 1, "ffff7f"),
        (2**21, "80808001"),
        (2**28 - 1, "ffffff7f"),
        (2**28, "8080808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_varints_byte_by_byte(value: int, encoded: str) -> None:
    assert UVARINTS[value].hex() == encoded


def test_a_longer_form_than_needed_is_read() -> None:
    """Nothing forbids it, and Apache Kafka reads it too."""
    assert read_uvarint(memoryview(b"\x81\x80\x00"), 1, 0x81) == (1, 3)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 126, 127, 128, 3000])
def test_arrays_of_any_length(version: int, count: int) -> None:
    lists = Lists(
        numbers=list(range(count)),
        flags=[n % 3 == 0 for n in range(count)],
        fractions=[n / 4 for n in range(count)],
        names=[str(n) for n in range(count)],
        blobs=[bytes([n & 0xFF]) * 2 for n in range(count)],
        ids=[UUID(int=n) for n in range(count)],
        pairs=[Pair(n & 0x7F, "p") for n in range(count)],
    )
    encoded = encode(lists, version)
    assert decode(Lists, version, encoded) == (lists, len(encoded))


def test_uuids_are_kept_but_not_for_ever() -> None:
    first = UUID(int=1).bytes
    assert UUIDS[first] is UUIDS[first]
    for number in range(10_000):
        assert UUIDS[number.to_bytes(16, "big")] == UUID(int=number)
    assert len(UUIDS) <= 4096


def test_long_arrays_leave_nothing_behind() -> None:
    for count in range(60, 500):
        encode(Lists(numbers=[0] * count), 0)
        decode(Lists, 0, encode(Lists(numbers=[0] * count), 0))
    assert len(primitives.ARRAY_READERS["q"]) <= 65
    assert len(primitives.ARRAY_WRITERS["q"]) <= 65


def test_a_negative_varint_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 is not an unsigned varint"):
        UVARINTS[-1]
