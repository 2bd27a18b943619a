"""docs/formats.md shows real bytes: those that the log writes."""

import re
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.core.ids import TopicPartition
from penstock.records.record import Record
from penstock.storage.checkpoint.checkpoint_files import (
    MetaProperties,
    PartitionMetadata,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
)
from tests.support.storage.written_log import NOW_MS, WrittenLog

DOC = Path(__file__).parents[4] / "docs" / "formats.md"
TOPIC_ID = UUID(bytes=bytes(range(16)))


def blocks(language: str) -> dict[str, str]:
    """The fenced blocks of one language, by what follows the language."""
    result = re.findall(rf"^```{language} (.+)\n((?:.*\n)*?)```$", DOC.read_text(), re.MULTILINE)
    return dict(result)


def bytes_of(lines: str) -> bytes:
    """The bytes of a hexdump: pairs of digits after the position, up to two blanks."""
    return b"".join(
        bytes.fromhex(re.split(r"\s{2,}", line)[1]) for line in lines.splitlines() if line
    )


@pytest.fixture
def example(new_log: Callable[..., WrittenLog]) -> Path:
    """The directory of the partition that the page describes."""
    log = new_log(start_offset=42, index_interval_bytes=0)
    records = [
        Record(0, NOW_MS, b"user-1", b"hello"),
        Record(1, NOW_MS + 250, b"user-2", None, (("trace", b"7"),)),
    ]
    log.append(records, producer_id=4000, base_sequence=10, is_transactional=True)
    log.end_txn(4000, commit=False, timestamp=NOW_MS + 1000)
    log.close()
    return log.directory


def test_every_hexdump_is_what_the_log_writes(example: Path) -> None:
    """S1: every byte of every binary file of the example is on the page."""
    shown: dict[str, bytes] = {}
    for title, lines in blocks("hexdump").items():
        name, at = title.split()
        assert len(shown.get(name, b"")) == int(at)
        shown[name] = shown.get(name, b"") + bytes_of(lines)
    written = {path.name: path.read_bytes() for path in example.iterdir()}
    del written["leader-epoch-checkpoint"]
    assert shown == written


def test_positions_in_hexdumps_are_right() -> None:
    for lines in blocks("hexdump").values():
        for number, line in enumerate(lines.splitlines()):
            assert line.startswith(f"{16 * number:04x}  ")


def test_the_annotated_batch_is_the_one_in_the_hexdump() -> None:
    (annotated,) = blocks("annotated").values()
    position = 0
    for line in annotated.splitlines():
        assert int(line[:2], 16) == position, line
        position += len(bytes_of(line))
    assert bytes_of(annotated) == bytes_of(blocks("hexdump")["00000000000000000042.log 0"])


def test_every_text_file_is_what_is_written(example: Path) -> None:
    expected = {
        "recovery-point-offset-checkpoint": encode_offsets(
            {TopicPartition("orders", 0): 45, TopicPartition("orders", 1): 1498}
        ),
        "leader-epoch-checkpoint": (example / "leader-epoch-checkpoint").read_bytes(),
        # No line end closes these two; the page says so, a fenced block cannot show it.
        "partition.metadata": encode_partition_metadata(PartitionMetadata(0, TOPIC_ID)) + b"\n",
        ".kafka_cleanshutdown": encode_clean_shutdown() + b"\n",
        "meta.properties": encode_meta_properties(
            MetaProperties(0, "Q2x1c3RlcklkRm9yRG9jcw", 1, TOPIC_ID)
        ),
    }
    assert {name: text.encode() for name, text in blocks("file").items()} == expected
