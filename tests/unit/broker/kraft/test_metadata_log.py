"""Reading of a KRaft controller's snapshots and log (S1, S7)."""

import os
from pathlib import Path

import pytest

from penstock.broker.kraft.metadata_log import read_metadata
from penstock.core.errors import KafkaStorageError
from penstock.protocol.codec import encode
from penstock.protocol.fields import Message
from penstock.protocol.stored.cluster_metadata import FeatureLevelRecord, ProducerIdsRecord
from penstock.records.batch import set_base_offset_and_epoch
from penstock.records.build import build_batch
from penstock.records.record import Record


def frame(message: Message, record_type: int | None = None) -> bytes:
    number = message.INFO.key if record_type is None else record_type
    assert number is not None
    return bytes([1, number, 0]) + encode(message, 0)


def level(number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord("f", number)


def batch(offset: int, *values: bytes) -> bytes:
    records = [Record(number, 0, None, value) for number, value in enumerate(values)]
    built = bytearray(build_batch(records))
    set_base_offset_and_epoch(built, 0, offset, 0)
    return bytes(built)


def levels(directory: Path) -> list[int]:
    return [
        record.feature_level
        for record in read_metadata(directory)
        if isinstance(record, FeatureLevelRecord)
    ]


def segment(directory: Path, base: int) -> Path:
    return directory / f"{base:020}.log"


def test_the_log_without_a_snapshot(tmp_path: Path) -> None:
    segment(tmp_path, 0).write_bytes(batch(0, frame(level(0)), frame(level(1))))
    segment(tmp_path, 2).write_bytes(batch(2, frame(level(2))))
    assert levels(tmp_path) == [0, 1, 2]


def test_records_follow_the_latest_snapshot(tmp_path: Path) -> None:
    (tmp_path / f"{1:020}-0000000001.checkpoint").write_bytes(batch(0, frame(level(10))))
    (tmp_path / f"{3:020}-0000000001.checkpoint").write_bytes(batch(0, frame(level(20))))
    segment(tmp_path, 0).write_bytes(batch(0, b"unreadable"))
    segment(tmp_path, 1).write_bytes(
        batch(1, frame(level(1)), frame(level(2)), frame(level(3))) + batch(4, frame(level(4)))
    )
    assert levels(tmp_path) == [20, 3, 4]


def test_records_of_other_types_are_ignored(tmp_path: Path) -> None:
    segment(tmp_path, 0).write_bytes(
        batch(0, frame(ProducerIdsRecord(1, 2, 3)), frame(level(1), 99), frame(level(5)))
    )
    assert [type(record) for record in read_metadata(tmp_path)] == [
        ProducerIdsRecord,
        FeatureLevelRecord,
    ]


def test_a_torn_batch_at_the_end_is_ignored(tmp_path: Path) -> None:
    path = segment(tmp_path, 0)
    path.write_bytes(batch(0, frame(level(0))) + batch(1, frame(level(1))))
    for _ in range(20):
        os.truncate(path, path.stat().st_size - 5)
        if path.stat().st_size < len(batch(0, frame(level(0)))):
            break
        assert levels(tmp_path) == [0]


def test_a_gap_before_the_log_is_an_error(tmp_path: Path) -> None:
    segment(tmp_path, 7).write_bytes(batch(7, frame(level(0))))
    with pytest.raises(KafkaStorageError, match="begins at offset 7"):
        levels(tmp_path)


@pytest.mark.parametrize("position", [30, 70])
def test_a_damaged_batch_is_an_error(tmp_path: Path, position: int) -> None:
    data = bytearray(batch(0, frame(level(0))) + batch(1, frame(level(1))))
    data[position] ^= 0xFF
    segment(tmp_path, 0).write_bytes(data)
    with pytest.raises(KafkaStorageError, match="cannot be read at position 0"):
        levels(tmp_path)


def test_an_unknown_version_is_an_error(tmp_path: Path) -> None:
    number = FeatureLevelRecord.INFO.key
    assert number is not None
    segment(tmp_path, 0).write_bytes(batch(0, bytes([1, number, 9]) + encode(level(1), 0)))
    with pytest.raises(KafkaStorageError, match="cannot be read at position 0"):
        levels(tmp_path)
