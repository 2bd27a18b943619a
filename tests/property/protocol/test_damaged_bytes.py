"""Damaged, truncated and random bytes: a ProtocolError or a message, with bounded memory."""

import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest

from penstock.core.errors import ProtocolError
from penstock.protocol.codec import decode, decoder, encode
from penstock.protocol.fields import Message
from tests.support.protocol.message_samples import (
    full_message,
    message_classes,
    random_message,
    versions_of,
)

CLASSES = [pytest.param(cls, id=cls.__name__) for cls in message_classes()]

# The largest lengths and counts, as encoded in old and in flexible versions.
HUGE = {False: (b"\x7f\xff\xff\xff", b"\x7f\xff"), True: (b"\xff\xff\xff\xff\x07",)}
ALLOWED_BYTES = 200_000


@pytest.mark.parametrize("cls", CLASSES)
def test_every_truncation_is_rejected(cls: type[Message]) -> None:
    for version in versions_of(cls):
        _refuses_every_truncation(cls, version)


def _refuses_every_truncation(cls: type[Message], version: int) -> None:
    encoded = memoryview(encode(full_message(cls, version), version))
    read = decoder(cls, version)
    for end in range(len(encoded)):
        with pytest.raises(ProtocolError):
            read(encoded[:end], 0)


@pytest.mark.parametrize("cls", CLASSES)
def test_damaged_and_random_bytes_raise_only_protocol_errors(cls: type[Message]) -> None:
    for version in versions_of(cls):
        random = Random(f"{cls.__name__} {version}")
        outcomes = [
            _refused(cls, version, damaged)
            for damaged in (*_damaged(cls, version, random), *_random_bytes(random))
        ]
        assert len(outcomes) == 45


@pytest.mark.parametrize("cls", CLASSES)
def test_huge_lengths_allocate_no_memory(cls: type[Message]) -> None:
    """A length or count is compared with the available bytes before any allocation."""
    for version in {cls.INFO.versions.low, cls.INFO.versions.high}:
        encoded = encode(full_message(cls, version), version)
        decoder(cls, version)
        huge_lengths = HUGE[version in cls.INFO.flexible]
        damaged = [
            encoded[:position] + huge + encoded[position + 1 :]
            for position in range(len(encoded))
            for huge in huge_lengths
        ]
        # Threads that earlier tests have started may allocate something too, but not every time.
        peaks = (_peak_memory(cls, version, damaged) for _ in range(3))
        assert any(peak < ALLOWED_BYTES for peak in peaks)


def _peak_memory(cls: type[Message], version: int, messages: list[bytes]) -> int:
    """Returns the bytes that decoding the messages allocates at most at one time."""
    tracemalloc.start()
    try:
        for message in messages:
            _refused(cls, version, message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak


def _refused(cls: type[Message], version: int, data: bytes) -> bool:
    """Returns whether decoding raised ProtocolError; any other exception fails the test."""
    try:
        message, end = decode(cls, version, data)
    except ProtocolError:
        return True
    assert isinstance(message, cls)
    assert 0 <= end <= len(data)
    return False


def _damaged(cls: type[Message], version: int, random: Random) -> Iterator[bytes]:
    for _ in range(25):
        damaged = bytearray(encode(random_message(cls, version, random), version))
        for _ in range(random.randint(1, 3)):
            if damaged:
                damaged[random.randrange(len(damaged))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        yield bytes(damaged)


def _random_bytes(random: Random) -> Iterator[bytes]:
    for _ in range(20):
        yield random.randbytes(random.randrange(80))
