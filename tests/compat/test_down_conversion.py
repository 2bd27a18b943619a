"""Batches converted to the message formats v0 and v1, by us and by Kafka 3.9, the last to do so."""

import random
import shutil
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.core.errors import ErrorCode, KafkaError
from penstock.records.batch import MAGIC, TimestampType, first_entry
from penstock.records.build import build_batch
from penstock.records.compress import Compression, decompress
from penstock.records.control import build_end_txn_marker
from penstock.records.down_convert import down_convert
from penstock.records.legacy import Message, read_message
from penstock.records.record import Record
from tests.support.kafka.broker import JAVA_DIRECTORY, ROOT, KafkaParts, MissingPartError
from tests.support.storage.batches import golden

UNSUPPORTED = b"unsupported"
START = 1_700_000_000_000
OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


class Case(NamedTuple):
    magic: int
    first_offset: int
    batches: bytes


def _records(rng: random.Random, offset: int) -> Iterator[Record]:
    for _ in range(rng.randrange(1, 9)):
        key, value = (
            rng.choice([None, b"", rng.randbytes(8), b"text " * rng.randrange(40)])
            for _ in range(2)
        )
        headers = (("h", b"1"),) if rng.random() < 0.3 else ()
        yield Record(offset, START + rng.randrange(-500, 500), key, value, headers)
        offset += rng.choice([1, 1, 1, 2, 70])


def _batches(rng: random.Random, codecs: list[Compression]) -> tuple[bytes, int]:
    """Returns consecutive batches and markers, and the next offset."""
    data = bytearray()
    offset = rng.choice([0, 7, 2**40])
    for _ in range(rng.randrange(1, 5)):
        if rng.random() < 0.2:
            data += build_end_txn_marker(
                True,
                producer_id=3,
                producer_epoch=0,
                coordinator_epoch=1,
                timestamp=START,
                base_offset=offset,
            )
            offset += 1
            continue
        records = list(_records(rng, offset))
        append_time = rng.random() < 0.3
        data += build_batch(
            records,
            base_offset=offset - rng.choice([0, 0, min(offset, 2)]),
            compression=rng.choice(codecs),
            timestamp_type=TimestampType(append_time),
            max_timestamp=START + 5000 if append_time else None,
        )
        offset = records[-1].offset + 1
    return bytes(data), offset


def _cases() -> list[Case]:
    rng = random.Random(11)
    cases = []
    for number in range(400):
        codecs = [Compression.ZSTD] if number % 50 == 0 else OLD_CODECS
        batches, end = _batches(rng, codecs)
        start = first_entry(batches).offset
        cases.append(Case(number % 2, rng.choice([0, rng.randrange(start, end)]), batches))
    old = golden("legacy").values()
    return cases + [
        Case(magic, first, set_) for set_ in old for magic in (0, 1) for first in (0, 501)
    ]


CASES = _cases()


@pytest.fixture(scope="module")
def converted_by_kafka() -> list[bytes]:
    java = shutil.which("java")
    result = sorted((ROOT / ".parts" / "java-clients").glob("3.9.*/libs"))
    if java is None or not result:
        pytest.fail(str(MissingPartError("Kafka 3.9's jars are missing: run make setup")))
    parts = KafkaParts(Path(java), result[-1], "3.9")
    lines = [
        f"{case.magic} {case.first_offset} {b64encode(case.batches).decode()}" for case in CASES
    ]
    run = parts.run(JAVA_DIRECTORY / "DownConvert.java", stdin="\n".join(lines))
    printed = run.stdout.splitlines()
    assert len(printed) == len(CASES)
    return [UNSUPPORTED if line == UNSUPPORTED.decode() else b64decode(line) for line in printed]


def _unpacked(data: bytes | bytearray) -> list[tuple[Message, bytes]]:
    """Returns each message without its size and compressed value, and the decompressed value."""
    result = []
    position = 0
    while position < len(data):
        message = read_message(data, position)
        codec = message.compression
        assert message.magic < MAGIC
        inner = b""
        if codec is not Compression.NONE and message.value is not None:
            inner = bytes(decompress(codec, message.value, magic=message.magic))
            if codec is Compression.LZ4:
                # The header without its checksum, which differs in magic 0.
                assert message.value[:7].hex() == f"04224d186040{'82' if message.magic else '1a'}"
        position += message.size
        result.append((message._replace(size=0, value=b"") if inner else message, inner))
    return result


def _converted_by_us(case: Case) -> bytes:
    try:
        return bytes(down_convert(case.batches, case.magic, case.first_offset).messages)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
            raise
        return UNSUPPORTED


def test_conversions_are_equal_to_kafkas(converted_by_kafka: list[bytes]) -> None:
    """C2: byte for byte, after decompression."""
    compressed = plain = refused = 0
    for case, theirs in zip(CASES, converted_by_kafka, strict=True):
        ours = _converted_by_us(case)
        if UNSUPPORTED in (ours, theirs):
            assert ours == theirs
            refused += 1
        elif any(inner for _, inner in _unpacked(ours)):
            assert _unpacked(ours) == _unpacked(theirs)
            compressed += 1
        else:
            assert ours == theirs
            plain += 1
    assert min(compressed, plain, refused) > 0
