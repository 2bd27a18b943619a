"""A real broker opens the logs that we wrote, after a clean stop and after a crash (S1, S7)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.ids import TopicPartition
from penstock.storage.disk import OsDisk
from penstock.storage.manager.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.kafka.broker import CLUSTER_ID
from tests.support.kafka.consumed_records import consume
from tests.support.kafka.log_exchange import KAFKA_EPOCH, ContinuedLogs, opened, renamed
from tests.support.kafka.logs import FoundOffset, ServedLogs, ServedPartition
from tests.support.kafka.penstock_logs import (
    COMPACTED,
    CONFIGS,
    HIGH_EPOCHS,
    NODE,
    NOW,
    TORN,
    PenstockWrittenLogs,
)
from tests.support.storage.written_files import Files, copy_of, epochs_in, files_in, same_files

PARTITIONS = sorted(TopicPartition(topic, 0) for topic in CONFIGS)
NOT_COMPACTED = [where for where in PARTITIONS if where != COMPACTED]
NO_TIMESTAMPS = TopicPartition("no-timestamps", 0)
CONTINUED_TOPICS = ("append-time", "codec-zstd", "compacted", "transaction-open", "transactions")
CONTROLLER_LINES = (
    "Performing controller activation",
    " ERROR ControllerApis: ",  # a request to a controller that is still becoming active
)


def _served_by_kafka(served: ServedLogs, where: TopicPartition) -> ServedPartition:
    """Returns the partition as Kafka serves it."""
    responses = served.partitions[where]
    if where == NO_TIMESTAMPS:
        # Kafka's max timestamp here is -1, of the first record. We return none.
        assert responses.max_timestamp == FoundOffset(0, -1)
        return replace(responses, max_timestamp=None)
    return responses


def _served_by_us(
    where: TopicPartition, logs: PenstockWrittenLogs, directory: Path, tmp_path: Path
) -> ServedPartition:
    """Returns the partition as our log serves it."""
    root = copy_of(directory, tmp_path, where)
    manager = LogManager(OsDisk(), [str(root)], ManualClock(NOW))
    manager.startup(CONFIGS.__getitem__, node_id=NODE, cluster_id=CLUSTER_ID)
    log = manager.get(where)
    assert log is not None
    log.update_high_watermark(log.log_end_offset)
    responses = consume(log, logs.times(where) if where in logs.notes else ())
    manager.shutdown()
    return responses


@pytest.mark.parametrize("where", NOT_COMPACTED, ids=str)
def test_kafka_serves_our_logs(
    where: TopicPartition,
    served: ServedLogs,
    penstock_written_logs: PenstockWrittenLogs,
    tmp_path: Path,
) -> None:
    """S1: records under both isolation levels, first, last and stable offset, offsets by time."""
    expected = penstock_written_logs.expected(where)
    assert _served_by_kafka(served, where) == expected
    assert (
        _served_by_us(where, penstock_written_logs, penstock_written_logs.data, tmp_path)
        == expected
    )


@pytest.mark.parametrize("where", NOT_COMPACTED, ids=str)
def test_kafka_recovers_our_logs(
    where: TopicPartition,
    recovered: ServedLogs,
    penstock_written_logs: PenstockWrittenLogs,
    tmp_path: Path,
) -> None:
    """S7: after a crash, Kafka recovers the same records from our files as we do."""
    expected = penstock_written_logs.expected(where, crashed=True)
    assert _served_by_kafka(recovered, where) == expected
    assert (
        _served_by_us(where, penstock_written_logs, penstock_written_logs.crashed, tmp_path)
        == expected
    )


def test_kafka_serves_our_compacted_logs(
    served: ServedLogs,
    recovered: ServedLogs,
    penstock_written_logs: PenstockWrittenLogs,
    tmp_path: Path,
) -> None:
    """S5: after a clean stop and after a crash."""
    ours = penstock_written_logs
    expected = _served_by_us(COMPACTED, ours, ours.data, tmp_path / "data")
    assert len(expected.committed) < len(expected.uncommitted)
    assert served.partitions[COMPACTED] == expected
    assert recovered.partitions[COMPACTED] == expected
    assert _served_by_us(COMPACTED, ours, ours.crashed, tmp_path / "crashed") == expected


@pytest.mark.parametrize("where", PARTITIONS, ids=str)
def test_kafka_does_not_change_our_files(
    where: TopicPartition, served: ServedLogs, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S1: after a clean stop, no file is repaired, rebuilt or rewritten."""
    ours = files_in(penstock_written_logs.data / str(where))
    theirs = files_in(served.data / str(where))
    end = served.partitions[where].high_watermark
    if where != COMPACTED:
        assert epochs_in(ours) == penstock_written_logs.notes[where].epochs
    if where.topic not in HIGH_EPOCHS:
        # Kafka adds its own leader epoch, in which it has written nothing.
        assert epochs_in(theirs) == [*epochs_in(ours), (KAFKA_EPOCH, end)]
    for files in (ours, theirs):
        files.pop("leader-epoch-checkpoint", None)
    for name in _obsolete_snapshots(ours, served.partitions[where].first_offset):
        del ours[name]
    assert theirs == ours


def _obsolete_snapshots(files: Files, first_offset: int) -> list[str]:
    """Returns the snapshots that both brokers remove at startup.

    They are not above the log start offset, or an earlier shutdown wrote them in the middle of a
    segment.
    """
    snapshots = sorted(name for name in files if name.endswith(".snapshot"))
    return [
        name
        for name in snapshots[:-1]
        if int(name[:20]) <= first_offset or name.replace(".snapshot", ".log") not in files
    ]


@pytest.mark.parametrize("where", PARTITIONS, ids=str)
def test_both_recover_to_the_same_files(
    where: TopicPartition,
    recovered: ServedLogs,
    penstock_written_logs: PenstockWrittenLogs,
    tmp_path: Path,
) -> None:
    """S7: records, indexes, transaction index and snapshots are the same, byte for byte."""
    root = copy_of(penstock_written_logs.crashed, tmp_path, where)
    manager = LogManager(OsDisk(), [str(root)], ManualClock(_now_of(recovered)))
    manager.startup(CONFIGS.__getitem__, node_id=NODE, cluster_id=CLUSTER_ID)
    manager.shutdown()
    ours = files_in(root / str(where))
    theirs = files_in(recovered.data / str(where))
    end = recovered.partitions[where].high_watermark
    if where.topic not in HIGH_EPOCHS:
        assert epochs_in(theirs) == [*epochs_in(ours), (KAFKA_EPOCH, end)]
    for files in (ours, theirs):
        files.pop("leader-epoch-checkpoint", None)
    same_files(ours, theirs)


def _now_of(served: ServedLogs) -> int:
    """Returns Kafka's time, which determines the producers that have expired."""
    return int((served.data / "meta.properties").stat().st_mtime * 1000)


def _about_logs(served: ServedLogs, *levels: str) -> list[str]:
    """Returns the log lines of Kafka at these levels, except those about its controller."""
    marks = tuple(f" {level} " for level in levels)
    lines = [line[12:] for line in served.broker_log if line[12:].startswith(marks)]
    return [line for line in lines if not any(text in line for text in CONTROLLER_LINES)]


def _expected_warnings(line: str) -> bool:
    # Kafka's leader epoch is lower than the epochs in these two logs: it was started only twice.
    high = tuple(f" WARN LeaderEpochFileCache: [LeaderEpochCache {name}-0]" for name in HIGH_EPOCHS)
    # The logs that Kafka compacts have records without a key.
    keyless = "invalid messages during compaction" in line
    return line.startswith(high) or keyless


def test_kafka_logs_no_warning_after_a_clean_stop(served: ServedLogs) -> None:
    """S1: it accepts our clean shutdown file, checkpoints and indexes."""
    warnings = _about_logs(served, "WARN", "ERROR", "FATAL")
    assert [line for line in warnings if not _expected_warnings(line)] == []
    text = "\n".join(line for line in served.broker_log if "__cluster_metadata" not in line)
    assert "since clean shutdown file was found" in text
    assert "Loading producer state from snapshot file" in text
    for sign in ("Recovering unflushed segment", "rebuilding index", "orrupt"):
        assert sign not in text


def test_kafka_logs_a_warning_only_for_the_torn_write_after_a_crash(
    recovered: ServedLogs, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S7."""
    warnings = _about_logs(recovered, "WARN", "ERROR", "FATAL")
    about_ours = [
        line
        for line in warnings
        if not _expected_warnings(line)
        and "partition=rebuilt-" not in line
        and "partition=old-" not in line
    ]
    (torn,) = about_ours
    end = penstock_written_logs.expected(TORN, crashed=True).high_watermark
    assert "[LogLoader partition=torn-0," in torn
    assert torn.endswith(f"truncating to offset {end}")


@pytest.mark.parametrize("topic", CONTINUED_TOPICS)
def test_kafka_serves_its_own_logs_after_us(
    topic: str, served: ServedLogs, continued_logs: Mapping[bool, ContinuedLogs]
) -> None:
    """S1: Kafka wrote, we appended, Kafka serves all records."""
    where = TopicPartition(topic, 0)
    assert served.partitions[renamed(where)] == continued_logs[False].expected[where]


@pytest.mark.parametrize("topic", CONTINUED_TOPICS)
def test_kafka_recovers_its_own_logs_after_us(
    topic: str, recovered: ServedLogs, continued_logs: Mapping[bool, ContinuedLogs]
) -> None:
    """S7: Kafka crashed, we recovered and appended, Kafka recovers and serves all records."""
    where = TopicPartition(topic, 0)
    assert recovered.partitions[renamed(where)] == continued_logs[True].expected[where]


def test_every_continued_log_is_checked(continued_logs: Mapping[bool, ContinuedLogs]) -> None:
    for crashed in (False, True):
        assert sorted(where.topic for where in continued_logs[crashed].expected) == sorted(
            CONTINUED_TOPICS
        )


def test_we_serve_the_continued_logs(
    continued_logs: Mapping[bool, ContinuedLogs], tmp_path: Path
) -> None:
    """Our log serves the same records and offsets."""
    with opened(copy_of(continued_logs[False].directory, tmp_path)) as manager:
        for where, expected in continued_logs[False].expected.items():
            log = manager.get(where)
            assert log is not None
            assert consume(log) == expected
