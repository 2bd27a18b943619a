"""Our broker opens log directories of a real Kafka, after a clean stop and kill -9 (S1, S7)."""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.cli.dump.decoders import Decoder, decode_consumer_offsets, decode_transaction_state
from penstock.cli.dump.items import ERROR, PROBLEM
from penstock.cli.dump.paths import DumpOptions, dump
from penstock.cli.dump.segment import SegmentOptions
from penstock.core.ids import TopicPartition
from penstock.storage.log.log import Log
from penstock.storage.manager.log_manager import LogManager
from penstock.storage.producer.append_info import ProducerStateEntry
from tests.support.clock import ManualClock
from tests.support.kafka.broker import Dump, KafkaParts, dump_log_segments
from tests.support.kafka.consumed_records import consume
from tests.support.kafka.dump_lines import Row, kafka_lines, our_lines, row
from tests.support.kafka.log_exchange import SOON_AFTER, opened
from tests.support.kafka.logs import (
    FoundOffset,
    KafkaWrittenLogs,
    ServedPartition,
    read_checkpoint,
)
from tests.support.kafka.once import once_per_run
from tests.support.storage.logs import read_all
from tests.support.storage.written_files import copy_of, epochs_in, files_in

FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
TEXT = ("codec-", "append-time", "compacted", "not-idempotent", "records-deleted", "transaction")
"""Topics whose keys and values are text, so that a dump can print them."""

DELETED = TopicPartition("records-deleted", 0)


@dataclass(frozen=True)
class Dumps:
    """The output of Kafka's tool for its own files."""

    every: Dump
    with_data: Dump
    offsets: Dump
    transactions: Dump


@pytest.fixture(scope="module")
def dumps(
    kafka_parts: KafkaParts,
    kafka_written_logs: KafkaWrittenLogs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Dumps:
    kafka = kafka_written_logs

    def logs(*topics: str) -> list[Path]:
        return [path for path in kafka.files(".log") if path.parent.name.startswith(topics)]

    def dump_all(directory: Path) -> Dumps:
        every = [path for suffix in FILES for path in kafka.files(suffix)]
        return Dumps(
            every=dump_log_segments(every, "--deep-iteration"),
            with_data=dump_log_segments(logs(*TEXT), "--print-data-log"),
            offsets=dump_log_segments(logs("__consumer_offsets"), "--offsets-decoder"),
            transactions=dump_log_segments(logs("__transaction"), "--transaction-log-decoder"),
        )

    return once_per_run(tmp_path_factory, "dumps-of-kafka", dump_all)


def _every(manager: LogManager, kafka: KafkaWrittenLogs) -> Iterator[tuple[Log, ServedPartition]]:
    for where, served in kafka.served.items():
        log = manager.get(where)
        assert log is not None
        yield log, served


def _expected(log: Log, served: ServedPartition) -> ServedPartition:
    """Returns the partition as Kafka serves it, with the offsets for timestamps that Kafka misses.

    Kafka searches only the first segment that is late enough. All of its records may be below the
    log start offset, or compaction may have emptied it: without timestamps, the file's modification
    time counts.
    """
    if log.partition != DELETED and not log.config.compact:
        return served
    records = read_all(log)
    responses = dict(served.offsets_for_timestamps)
    for timestamp in [timestamp for timestamp, result in responses.items() if result is None]:
        late = [record for record in records if record.timestamp >= timestamp]
        if late:
            responses[timestamp] = FoundOffset(late[0].offset, late[0].timestamp)
    return replace(served, offsets_for_timestamps=responses)


def test_we_serve_kafkas_logs(
    kafka_written_logs: KafkaWrittenLogs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S1, S2: every record under both isolation levels, every offset, every offset by time."""
    with opened(copy_of(kafka_written_logs.data, tmp_path)) as manager:
        for log, served in _every(manager, kafka_written_logs):
            assert consume(log, served.offsets_for_timestamps) == _expected(log, served), log
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [], "no index and no checkpoint of Kafka's is doubted"


def test_we_recover_kafkas_logs(kafka_written_logs: KafkaWrittenLogs, tmp_path: Path) -> None:
    """S7: after kill -9 no record is missing, although no index was complete."""
    with opened(copy_of(kafka_written_logs.crashed, tmp_path)) as manager:
        for log, served in _every(manager, kafka_written_logs):
            assert log.high_watermark <= served.high_watermark
            log.update_high_watermark(log.log_end_offset)
            if log.partition == DELETED:
                # Kafka writes it once a minute. The file had the offset of its first shutdown.
                assert log.log_start_offset == 130
                log.increment_log_start_offset(served.first_offset)
            assert consume(log, served.offsets_for_timestamps) == _expected(log, served), log


def test_we_use_and_rewrite_kafkas_checkpoints(
    kafka_written_logs: KafkaWrittenLogs, tmp_path: Path
) -> None:
    """S1: high watermarks, recovery points, log start offsets and leader epochs are the same after
    our shutdown."""
    kafka = kafka_written_logs
    names = [f"{name}-offset-checkpoint" for name in ("recovery-point", "replication", "log-start")]
    recovery_points, high_watermarks, starts = (read_checkpoint(kafka.data / n) for n in names)
    assert len(recovery_points) == len(high_watermarks) > 20
    directory = copy_of(kafka.data, tmp_path)
    with opened(directory) as manager:
        for log in manager:
            assert log.recovery_point == recovery_points[log.partition]
            assert log.high_watermark == high_watermarks[log.partition]
            assert log.log_start_offset == starts.get(log.partition, 0)
            epochs = epochs_in(files_in(kafka.directory(log.partition)))
            assert [tuple(entry) for entry in log.epochs.entries()] == epochs
            assert log.topic_id is not None
    for name in [*names, "cleaner-offset-checkpoint"]:
        assert read_checkpoint(directory / name) == read_checkpoint(kafka.data / name)


def _rows(entries: dict[int, ProducerStateEntry]) -> dict[str, Row]:
    """Returns the producers as Kafka's tool prints them."""
    rows: dict[str, Row] = {}
    for entry in entries.values():
        first = entry.current_txn_first_offset
        result: dict[str, int] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "lastTimestamp": entry.last_timestamp,
        }
        if entry.batches:
            last = entry.batches[-1]
            result |= {
                "firstSequence": last.first_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.offset_delta,
                "timestamp": entry.last_timestamp,
            }
        rows[str(entry.producer_id)] = {
            **{name: str(value) for name, value in result.items()},
            "currentTxnFirstOffset": "none" if first is None else str(first),
        }
    return rows


def _last_snapshot(directory: Path, dumps: Dumps) -> dict[str, Row]:
    last = max(directory.glob("*.snapshot"))
    rows = map(row, kafka_lines(dumps.every.files[last]))
    return {result["producerId"]: result for result in rows}


def test_we_restore_kafkas_producer_state(
    kafka_written_logs: KafkaWrittenLogs, dumps: Dumps, tmp_path: Path
) -> None:
    """P3: from its snapshots after a clean stop, from its records after a crash."""
    kafka = kafka_written_logs
    for root in (kafka.data, kafka.crashed):
        producers = 0
        with opened(copy_of(root, tmp_path / root.name), ManualClock(SOON_AFTER)) as manager:
            for log in manager:
                result = _rows(dict(log.producers.active_producers()))
                assert result == _last_snapshot(kafka.directory(log.partition), dumps), log
                producers += len(result)
        assert producers > 20


def test_we_restore_kafkas_aborted_transactions(
    kafka_written_logs: KafkaWrittenLogs, dumps: Dumps, tmp_path: Path
) -> None:
    """P4: from its transaction indexes after a clean stop, from its markers after a crash."""
    kafka = kafka_written_logs
    fields = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    for root in (kafka.data, kafka.crashed):
        aborted = 0
        with opened(copy_of(root, tmp_path / root.name)) as manager:
            for log in manager:
                if log.config.compact and root == kafka.crashed:
                    # Records and markers are missing then; test_same_bytes covers it.
                    continue
                rows = [
                    row(line)
                    for path in sorted(kafka.directory(log.partition).glob("*.txnindex"))
                    for line in kafka_lines(dumps.every.files[path])
                ]
                expected = [tuple(int(result[name]) for name in fields) for result in rows]
                txns = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
                assert [tuple(txn) for txn in txns] == expected, log
                aborted += len(txns)
        assert aborted >= 16


def test_both_dump_tools_print_the_same_lines(dumps: Dumps) -> None:
    """S1: `penstock dump-log` and DumpLogSegments print the same lines of all its files."""
    kinds: dict[str, int] = {}
    for path, lines in dumps.every.files.items():
        printed = kafka_lines(lines)
        if printed == [f"{path} is empty."]:
            printed = []
        assert our_lines(path, SegmentOptions(records=True)) == printed, path
        kinds[path.suffix] = kinds.get(path.suffix, 0) + len(printed)
    assert sorted(kinds) == sorted(FILES)
    assert min(kinds.values()) > 16


def test_our_dump_reports_no_error_in_kafkas_files(
    kafka_written_logs: KafkaWrittenLogs, dumps: Dumps
) -> None:
    """S1, S2: Kafka's tool reports one false error.

    Kafka's cleaner keeps a producer's last batch without records, and its timestamp in the index;
    the tool then looks for a record with that timestamp.
    """
    directories = {str(path.parent) for path in dumps.every.files}
    result = dump([str(kafka_written_logs.data), *directories], DumpOptions(SegmentOptions(True)))
    assert [item for item in result if item.item.kind in (PROBLEM, ERROR)] == []
    for complaint in dumps.every.complaints:
        assert "/compacted-transactions-0/" in complaint
        assert complaint.endswith("log timestamp: -1")


def test_both_dump_tools_print_the_same_data(dumps: Dumps) -> None:
    """S1: keys and values. We print whole headers, Kafka's tool only their names."""
    for path, lines in dumps.with_data.files.items():
        ours = our_lines(path, SegmentOptions(records=True, data=True))
        without = [re.sub(r" headers: \[\{.*?\}\]", "", line) for line in ours]
        assert without == kafka_lines(lines), path


@pytest.mark.parametrize(
    ("topic", "decoder"),
    [
        ("__consumer_offsets", decode_consumer_offsets),
        ("__transaction_state", decode_transaction_state),
    ],
)
def test_we_decode_kafkas_coordinator_topics(topic: str, decoder: Decoder, dumps: Dumps) -> None:
    result = dumps.offsets if topic == "__consumer_offsets" else dumps.transactions
    options = SegmentOptions(records=True, data=True, decoder=decoder)
    for path, lines in result.files.items():
        # Kafka's tool prints versions as text.
        printed = [re.sub(r'"(type|version)":"(\d+)"', r'"\1":\2', line) for line in lines]
        assert our_lines(path, options) == kafka_lines(printed)
        assert len(printed) > 4
