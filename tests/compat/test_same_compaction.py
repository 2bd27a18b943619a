"""Kafka's cleaner and ours compact the same logs to the same result (S5).

The logs are Kafka's and ours, with every codec, transactions, tombstones, records without a key.
Kafka compacts a copy while it serves it; we compact another copy with Kafka's time.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.core.ids import TopicPartition
from penstock.records.batch import BatchHeader, TimestampType
from penstock.records.compress import Compression
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.disk import OsDisk
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.kafka.consumed_records import consume
from tests.support.kafka.log_exchange import KAFKA_EPOCH, written_at
from tests.support.kafka.logs import ServedLogs, ServedPartition
from tests.support.kafka.penstock_logs import COMPACT, NODE
from tests.support.storage.logs import batches_in
from tests.support.storage.written_files import epochs_in, files_in, producers_in

TOPICS = [
    "cleaned-ours",
    "cleaned-ours-again",
    "cleaned-append-time",
    "cleaned-not-idempotent",
    "cleaned-transactions",
    *(f"cleaned-codec-{codec.codec_name}" for codec in Compression),
]


class Batch(NamedTuple):
    segment: str
    header: BatchHeader
    data: bytes
    records: list[Record]


def _batches(directory: Path) -> Iterator[Batch]:
    for path in sorted(directory.glob("*.log")):
        for view, position, header in batches_in(path.read_bytes()):
            data = bytes(view[position : position + header.size])
            yield Batch(path.name, header, data, read_records(data, 0, header))


class Cleaned(NamedTuple):
    """A log after a run of our cleaner."""

    directory: Path
    served: ServedPartition


@pytest.fixture(params=TOPICS)
def where(request: pytest.FixtureRequest) -> TopicPartition:
    return TopicPartition(request.param, 0)


@pytest.fixture
def cleaned(
    where: TopicPartition,
    served: ServedLogs,
    to_clean: Mapping[TopicPartition, Path],
    tmp_path: Path,
) -> Cleaned:
    source = to_clean[where]
    shutil.copytree(source, tmp_path / str(where), ignore=shutil.ignore_patterns("*.deleted"))
    (tmp_path / ".kafka_cleanshutdown").touch()
    clock = ManualClock(_time_of_cleaning(source, served.data / str(where)))
    manager = LogManager(OsDisk(), [str(tmp_path)], clock)
    manager.startup(lambda topic: COMPACT, node_id=NODE)
    log = manager.get(where)
    assert log is not None
    log.update_high_watermark(log.log_end_offset)
    assert LogCleaner(manager, clock).clean() == 1
    responses = consume(log, served.partitions[where].offsets_for_timestamps)
    manager.shutdown()
    return Cleaned(tmp_path / str(where), responses)


def _time_of_cleaning(before: Path, after: Path) -> int:
    """Returns Kafka's time of the cleaning, derived from the delete horizons that it set."""
    old_horizons = {batch.header.delete_horizon_ms for batch in _batches(before)}
    new = {batch.header.delete_horizon_ms for batch in _batches(after)} - old_horizons
    if not new:
        return written_at(after)
    (horizon_ms,) = new
    assert horizon_ms is not None
    return horizon_ms - COMPACT.delete_retention_ms


def test_every_input_is_compared(to_clean: Mapping[TopicPartition, Path]) -> None:
    assert sorted(where.topic for where in to_clean) == sorted(TOPICS)


def test_the_same_records_are_retained(
    where: TopicPartition,
    served: ServedLogs,
    to_clean: Mapping[TopicPartition, Path],
    cleaned: Cleaned,
) -> None:
    """S5: for consumers of both isolation levels, with all fields."""
    assert cleaned.served == served.partitions[where]
    records = sum(batch.header.records_count for batch in _batches(to_clean[where]))
    assert 0 < len(cleaned.served.uncommitted) < records * 0.9


def test_the_same_batches_are_retained(
    where: TopicPartition, served: ServedLogs, cleaned: Cleaned
) -> None:
    """S5: offsets, producers, sequences, epochs, delete horizons, markers, empty batches."""
    ours, theirs = list(_batches(cleaned.directory)), list(_batches(served.data / str(where)))
    assert [batch.segment for batch in ours] == [batch.segment for batch in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert our.records == their.records
        if not _has_other_bytes(our, their):
            assert our.data == their.data
        same = {"base_timestamp": 0, "batch_length": 0, "crc": 0}
        assert our.header._replace(**same) == their.header._replace(**same)


def _has_other_bytes(our: Batch, their: Batch) -> bool:
    """Returns whether equal batches may have different bytes.

    Kafka rebuilds a batch that loses records: its timestamps are then relative to its first record,
    and with log append time they are all equal. We copy the bytes of the records, so that the base
    timestamp does not change. Different snappy libraries also produce different bytes.
    """
    if our.header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return True
    if our.header.base_timestamp != their.header.base_timestamp:
        assert their.header.base_timestamp == their.records[0].timestamp
        return True
    return our.header.compression is Compression.SNAPPY


def test_the_same_files_are_retained(
    where: TopicPartition, served: ServedLogs, cleaned: Cleaned
) -> None:
    """S5: segments, transaction indexes, snapshots and epochs."""
    ours, theirs = files_in(cleaned.directory), files_in(served.data / str(where))
    assert sorted(ours) == sorted(theirs)
    for name in ours:
        if name.endswith(".txnindex"):
            assert ours[name] == theirs[name]
        elif name.endswith(".snapshot"):
            assert producers_in(ours[name]) == producers_in(theirs[name])
        elif name.endswith(".timeindex"):
            assert ours[name] == theirs[name]
    end = served.partitions[where].high_watermark
    with_epoch = [entry for entry in epochs_in(theirs) if entry != (KAFKA_EPOCH, end)]
    assert with_epoch == epochs_in(ours)
