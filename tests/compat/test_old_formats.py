"""Logs of the message formats v0 and v1, written by Kafka's own code, read by us (S1)."""

import re
import shutil
from pathlib import Path

import pytest

from penstock.cli.dump.segment import SegmentOptions
from penstock.core.ids import TopicPartition
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import load_log
from penstock.storage.log_config import LogConfig
from tests.support.clock import ManualClock
from tests.support.kafka.broker import dump_log_segments
from tests.support.kafka.consumed_records import consume
from tests.support.kafka.dump_lines import kafka_lines, our_lines
from tests.support.kafka.log_exchange import written_at
from tests.support.kafka.logs import KafkaRecord, ServedLogs, WrittenRecord
from tests.support.kafka.penstock_logs import SMALL
from tests.support.storage.log_writer import LogWriter, Notes

TOPICS = [
    *(f"{v}-{codec}" for v in ("v0", "v1") for codec in ("none", "gzip", "snappy", "lz4")),
    "v1-append-time",
]
OldLogs = tuple[Path, list[WrittenRecord]]


def _open(
    topic: str, old: OldLogs, tmp_path: Path, config: LogConfig = SMALL
) -> tuple[Log, list[KafkaRecord]]:
    directory, written = old
    where = TopicPartition(topic, 0)
    copied = tmp_path / str(where)
    shutil.copytree(directory / str(where), copied)
    log = load_log(OsDisk(), str(copied), where, config, ManualClock(written_at(copied)))
    log.update_high_watermark(log.log_end_offset)
    return log, [entry.record for entry in written if entry.where == where]


def test_every_old_log_is_covered(old_format_logs: OldLogs) -> None:
    assert {format_log.where.topic for format_log in old_format_logs[1]} == set(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_old_records_are_read(topic: str, old_format_logs: OldLogs, tmp_path: Path) -> None:
    """S1: with offset, key, value and, if the format has one, timestamp."""
    log, written = _open(topic, old_format_logs, tmp_path)
    served = consume(log)
    assert served.uncommitted == served.committed == written
    assert (served.first_offset, served.high_watermark) == (0, len(written))
    kinds = {"v0": "NoTimestampType", "v1": "CreateTime"}
    kind = "LogAppendTime" if topic.endswith("append-time") else kinds[topic[:2]]
    assert set(served.timestamp_types.values()) == {kind}
    assert set(served.leader_epochs.values()) == {-1}
    log.close()


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_serves_the_same_records(
    topic: str, old_format_logs: OldLogs, recovered: ServedLogs, tmp_path: Path
) -> None:
    """S1, S7: both brokers must recover the logs."""
    log, _ = _open(topic, old_format_logs, tmp_path)
    assert consume(log) == recovered.partitions[TopicPartition(f"old-{topic}", 0)]
    log.close()


def test_both_dump_tools_print_the_same_lines(old_format_logs: OldLogs) -> None:
    """S1: except for the CRC of each record, which Kafka's tool prints in addition."""
    dump = dump_log_segments(sorted(old_format_logs[0].glob("*/*.log")), "--print-data-log")
    assert dump.complaints == []
    for path, lines in dump.files.items():
        printed = [re.sub(r" isValid: true crc: \d+", "", line) for line in kafka_lines(lines)]
        assert our_lines(path, SegmentOptions(records=True, data=True)) == printed
    assert len(dump.files) == len(TOPICS)


@pytest.mark.parametrize("topic", ["v0-gzip", "v1-none"])
def test_v2_batches_are_appended_to_old_logs(
    topic: str, old_format_logs: OldLogs, tmp_path: Path
) -> None:
    """S1, S7: both formats are recovered after a crash."""
    log, written = _open(topic, old_format_logs, tmp_path)
    clock = ManualClock()
    notes = Notes(first_offset=log.log_end_offset)
    writer = LogWriter(log, clock, notes, epoch=4, seed=1)
    for _ in range(5):
        writer.send(writer.shapes(4))
    expected = written + notes.served().uncommitted
    assert consume(log).uncommitted == expected
    log.local.close_handlers()
    log = load_log(OsDisk(), log.directory, log.partition, SMALL, clock)
    log.update_high_watermark(log.log_end_offset)
    assert consume(log).uncommitted == expected
    assert [tuple(entry) for entry in log.epochs.entries()] == [(4, len(written))]
    log.close()
