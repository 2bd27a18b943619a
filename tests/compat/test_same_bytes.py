"""Appending Kafka's batches with our log creates the same files, byte for byte (S1).

Settings, appends, restarts and DeleteRecords are those of Kafka. So the segments must end at the
same offsets, and every index entry must be at the same position.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.core.ids import TopicPartition
from penstock.records.append_policy import AppendOrigin
from penstock.records.batch import BatchHeader, TimestampType, set_max_timestamp
from penstock.records.compress import Compression
from penstock.records.control import build_end_txn_marker, read_end_txn_marker
from penstock.records.read import read_records, record_bytes
from penstock.storage.checkpoint import checkpoint_files
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import load_log
from tests.support.clock import ManualClock
from tests.support.kafka.log_exchange import KAFKA_EPOCH, kafka_config, written_at
from tests.support.kafka.logs import KafkaWrittenLogs, ServedLogs, read_checkpoint
from tests.support.storage.batch_builder import BatchBuilder
from tests.support.storage.logs import batches_in
from tests.support.storage.written_files import copy_of, epochs_in, files_in, same_files

CODECS = [f"codec-{codec.codec_name}" for codec in Compression]
PARTITIONS = [TopicPartition(topic, n) for topic in [*CODECS, "transactions"] for n in (0, 1)] + [
    TopicPartition(topic, 0)
    for topic in ("append-time", "big", "not-idempotent", "records-deleted", "transaction-open")
]
SMALL_FILES = ("recovery-point", "replication", "log-start", "cleaner")
REBUILT = [
    *(f"rebuilt-{topic}" for topic in ("append-time", "codec-gzip", "codec-none", "transactions")),
    *(f"rebuilt-compacted-{kind}" for kind in ("lz4", "transactions")),
    *(f"old-{v}-{codec}" for v in ("v0", "v1") for codec in ("none", "gzip", "snappy", "lz4")),
    "old-v1-append-time",
]


def _batches(directory: Path) -> Iterator[tuple[bytes, BatchHeader]]:
    for path in sorted(directory.glob("*.log")):
        for view, position, header in batches_in(path.read_bytes()):
            yield bytes(view[position : position + header.size]), header


class Replay:
    """A log of ours to which the operations of one of Kafka's logs are applied."""

    def __init__(self, where: TopicPartition, directory: Path, now_ms: int) -> None:
        self.where = where
        self.directory = directory
        self.clock = ManualClock(now_ms)
        self._epoch = 0
        self.log = self._load(clean=False, start_offset=0)

    def _load(self, *, clean: bool, start_offset: int) -> Log:
        return load_log(
            OsDisk(),
            str(self.directory),
            self.where,
            kafka_config(self.where.topic),
            self.clock,
            clean=clean,
            log_start_offset=start_offset,
        )

    def follow(self, data: bytes, header: BatchHeader) -> None:
        self._restart_before(header)
        self.log.append_as_follower(data)
        self.log.update_high_watermark(self.log.log_end_offset)

    def lead(self, data: bytes, header: BatchHeader) -> None:
        """Appends the batch as its producer or coordinator sent it, built by us."""
        self._restart_before(header)
        origin = AppendOrigin.COORDINATOR if header.is_control else AppendOrigin.CLIENT
        built = _marker(data, header) if header.is_control else _produced(data, header)
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            self.clock.advance(header.max_timestamp - self.clock.now_ms())
        epoch = header.partition_leader_epoch
        self.log.append_as_leader(built, epoch, origin=origin)
        self.log.update_high_watermark(self.log.log_end_offset)

    def _restart_before(self, header: BatchHeader) -> None:
        """Restarts the log if the leader epoch changed: Kafka was restarted before this batch."""
        if header.partition_leader_epoch != self._epoch:
            self._epoch = header.partition_leader_epoch
            self.delete_records(130)
            self.log.close()
            self.log = self._load(clean=True, start_offset=self.log.log_start_offset)
            self.log.update_high_watermark(self.log.log_end_offset)

    def delete_records(self, offset: int) -> None:
        if self.where.topic == "records-deleted":
            self.log.increment_log_start_offset(offset)

    def close(self) -> None:
        self.delete_records(260)
        self.log.close()


def _produced(data: bytes, header: BatchHeader) -> bytearray:
    """Returns the batch as the producer sent it: from offset 0, with its own timestamps."""
    sent = bytearray(data)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        # The records still have the producer's timestamps.
        header = set_max_timestamp(sent, 0, header, TimestampType.CREATE_TIME, -1)
    builder = BatchBuilder(write_limit=4_000_000, compression=header.compression)
    for record in read_records(sent, 0, header):
        assert builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.close(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )


def _marker(data: bytes, header: BatchHeader) -> bytearray:
    marker = read_end_txn_marker(data, 0, header)
    return build_end_txn_marker(
        marker.commits,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=header.max_timestamp,
    )


@pytest.mark.parametrize("where", PARTITIONS, ids=str)
def test_a_follower_writes_kafkas_files(
    where: TopicPartition, kafka_written_logs: KafkaWrittenLogs, tmp_path: Path
) -> None:
    """S1, S3: segments, offset, time and transaction indexes, snapshots, leader epochs."""
    source = kafka_written_logs.directory(where)
    replay = Replay(where, tmp_path / str(where), written_at(source))
    for data, header in _batches(source):
        replay.follow(data, header)
    replay.close()
    same_files(files_in(replay.directory), files_in(source))


@pytest.mark.parametrize(
    "where", [partition for partition in PARTITIONS if "snappy" not in partition.topic], ids=str
)
def test_a_leader_writes_kafkas_files(
    where: TopicPartition, kafka_written_logs: KafkaWrittenLogs, tmp_path: Path
) -> None:
    """S1, P6: our producer's batches, validated and stamped by our leader, are Kafka's."""
    source = kafka_written_logs.directory(where)
    replay = Replay(where, tmp_path / str(where), written_at(source))
    for data, header in _batches(source):
        replay.lead(data, header)
    replay.close()
    same_files(files_in(replay.directory), files_in(source))


@pytest.mark.parametrize("partition", [0, 1])
def test_a_leader_writes_kafkas_files_except_for_snappy_data(
    partition: int, kafka_written_logs: KafkaWrittenLogs, tmp_path: Path
) -> None:
    """P6: two snappy libraries produce different bytes; everything else is equal."""
    where = TopicPartition("codec-snappy", partition)
    source = kafka_written_logs.directory(where)
    replay = Replay(where, tmp_path / str(where), written_at(source))
    for data, header in _batches(source):
        replay.lead(data, header)
    replay.close()
    for (ours, our_header), (theirs, their_header) in zip(
        _batches(replay.directory), _batches(source), strict=True
    ):
        same = {"batch_length": 0, "crc": 0}
        assert our_header._replace(**same) == their_header._replace(**same)
        unpacked = [
            bytes(buffer[start:end])
            for buffer, start, end in (
                record_bytes(ours, 0, our_header),
                record_bytes(theirs, 0, their_header),
            )
        ]
        assert unpacked[0] == unpacked[1]
    assert epochs_in(files_in(replay.directory)) == epochs_in(files_in(source))


@pytest.mark.parametrize("topic", REBUILT)
def test_both_rebuild_the_same_indexes(
    topic: str,
    to_rebuild: Mapping[str, Path],
    recovered: ServedLogs,
    kafka_written_logs: KafkaWrittenLogs,
    tmp_path: Path,
) -> None:
    """S7: after all indexes were deleted, also for old message formats."""
    where = TopicPartition(topic, 0)
    directory = copy_of(to_rebuild[topic], tmp_path)
    assert list(directory.glob("*index")) == []
    config = kafka_config("codec-none")
    clock = ManualClock(written_at(recovered.data / str(where)))
    cleaned = read_checkpoint(kafka_written_logs.data / "cleaner-offset-checkpoint")
    source = where._replace(topic=topic.removeprefix("rebuilt-"))
    log = load_log(
        OsDisk(), str(directory), where, config, clock, cleaned_to=cleaned.get(source, 0)
    )
    log.close()
    ours, theirs = files_in(directory), files_in(recovered.data / str(where))
    assert epochs_in(theirs) == _with_epoch(epochs_in(ours), log.log_end_offset)
    for files in (ours, theirs):
        files.pop("leader-epoch-checkpoint", None)
    assert any(len(data) > 0 for name, data in ours.items() if name.endswith("index")) or (
        topic.startswith("old-v0-") and topic != "old-v0-none"  # three entries, without timestamps
    )
    same_files(ours, theirs)


def test_every_log_without_indexes_is_rebuilt(to_rebuild: Mapping[str, Path]) -> None:
    assert sorted(to_rebuild) == sorted(REBUILT)


def _with_epoch(epochs: list[tuple[int, int]], end_offset: int) -> list[tuple[int, int]]:
    """Adds the epoch that Kafka stores when it becomes leader, unless the log has it."""
    is_known = epochs and epochs[-1][0] == KAFKA_EPOCH
    return epochs if is_known else [*epochs, (KAFKA_EPOCH, end_offset)]


def test_checkpoints_and_metadata_files_are_kafkas(kafka_written_logs: KafkaWrittenLogs) -> None:
    """S1: checkpoints, clean shutdown file, `partition.metadata` and `meta.properties`."""
    root = kafka_written_logs.data
    for name in SMALL_FILES:
        path = root / f"{name}-offset-checkpoint"
        offsets = checkpoint_files.decode_offsets(path.read_bytes(), str(path))
        assert checkpoint_files.encode_offsets(offsets) == path.read_bytes()
    stopped = (root / ".kafka_cleanshutdown").read_bytes()
    epoch = checkpoint_files.decode_clean_shutdown(stopped)
    assert epoch is not None
    assert checkpoint_files.encode_clean_shutdown(epoch) == stopped
    for path in root.glob("*/partition.metadata"):
        metadata = checkpoint_files.decode_partition_metadata(path.read_bytes(), str(path))
        assert checkpoint_files.encode_partition_metadata(metadata) == path.read_bytes()
    for path in root.glob("*/leader-epoch-checkpoint"):
        epochs = checkpoint_files.decode_leader_epochs(path.read_bytes(), str(path))
        assert checkpoint_files.encode_leader_epochs(epochs) == path.read_bytes()


def test_meta_properties_are_kafkas(kafka_written_logs: KafkaWrittenLogs) -> None:
    """S1: the same properties; Kafka's file is unordered and has the date."""
    path = kafka_written_logs.data / "meta.properties"
    properties = checkpoint_files.decode_meta_properties(path.read_bytes(), str(path))
    ours = checkpoint_files.encode_meta_properties(properties).decode().splitlines()
    theirs = path.read_text().splitlines()
    assert sorted(line for line in ours if line[0] != "#") == sorted(
        line for line in theirs if line[0] != "#"
    )
