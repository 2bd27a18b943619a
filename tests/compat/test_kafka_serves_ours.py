"""A real broker opens the logs that we wrote, after a clean stop and after a crash (S1, S7)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.clock import ManualClock
from penstock.core.ids import TopicPartition
from penstock.storage.disk import OsDisk
from penstock.storage.manager.log_manager import LogManager
from tests.support.kafka.broker import CLUSTER_ID
from tests.support.kafka.consumed_records import consume
from tests.support.kafka.log_exchange import KAFKA_EPOCH, GivenBack, opened, renamed
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
GIVEN_BACK = ("append-time", "codec-zstd", "compacted", "transaction-open", "transactions")


def _answers(served: ServedLogs, where: TopicPartition) -> ServedPartition:
    """What Kafka says."""
    responses = served.partitions[where]
    if where == NO_TIMESTAMPS:
        # The latest timestamp that it finds here is -1, in the first record. We find none.
        assert responses.max_timestamp == FoundOffset(0, -1)
        return replace(responses, max_timestamp=None)
    return responses


def _asked(
    where: TopicPartition, logs: PenstockWrittenLogs, folder: Path, tmp_path: Path
) -> ServedPartition:
    """What our log says itself."""
    root = copy_of(folder, tmp_path, where)
    manager = LogManager(OsDisk(), [str(root)], ManualClock(NOW))
    manager.startup(CONFIGS.__getitem__, node_id=NODE, cluster_id=CLUSTER_ID)
    log = manager.get(where)
    assert log is not None
    log.update_high_watermark(log.log_end_offset)
    responses = consume(log, logs.times(where) if where in logs.notes else ())
    manager.shutdown()
    return responses


@pytest.mark.parametrize("where", NOT_COMPACTED, ids=str)
def test_kafka_serves_what_we_wrote(
    where: TopicPartition,
    served: ServedLogs,
    penstock_written_logs: PenstockWrittenLogs,
    tmp_path: Path,
) -> None:
    """S1: records under both isolation levels, first, last and stable offset, offsets by time."""
    expected = penstock_written_logs.expected(where)
    assert _answers(served, where) == expected
    assert _asked(where, penstock_written_logs, penstock_written_logs.data, tmp_path) == expected


@pytest.mark.parametrize("where", NOT_COMPACTED, ids=str)
def test_kafka_recovers_what_we_wrote(
    where: TopicPartition,
    recovered: ServedLogs,
    penstock_written_logs: PenstockWrittenLogs,
    tmp_path: Path,
) -> None:
    """S7: after a crash it finds the same in our files as we do."""
    expected = penstock_written_logs.expected(where, crashed=True)
    assert _answers(recovered, where) == expected
    assert _asked(where, penstock_written_logs, penstock_written_logs.crashed, tmp_path) == expected


def test_kafka_serves_what_we_compacted(
    served: ServedLogs,
    recovered: ServedLogs,
    penstock_written_logs: PenstockWrittenLogs,
    tmp_path: Path,
) -> None:
    """S5: as it is, and recovered from a crash."""
    ours = penstock_written_logs
    expected = _asked(COMPACTED, ours, ours.data, tmp_path / "data")
    assert len(expected.committed) < len(expected.uncommitted)
    assert served.partitions[COMPACTED] == expected
    assert recovered.partitions[COMPACTED] == expected
    assert _asked(COMPACTED, ours, ours.crashed, tmp_path / "crashed") == expected


@pytest.mark.parametrize("where", PARTITIONS, ids=str)
def test_kafka_leaves_our_files_as_they_are(
    where: TopicPartition, served: ServedLogs, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S1: after a clean stop there is nothing to mend, to rebuild or to write anew."""
    ours = files_in(penstock_written_logs.data / str(where))
    theirs = files_in(served.data / str(where))
    end = served.partitions[where].high_watermark
    if where != COMPACTED:
        assert epochs_in(ours) == penstock_written_logs.notes[where].epochs
    if where.topic not in HIGH_EPOCHS:
        # Kafka notes its own epoch, in which it has written nothing.
        assert epochs_in(theirs) == [*epochs_in(ours), (KAFKA_EPOCH, end)]
    for files in (ours, theirs):
        files.pop("leader-epoch-checkpoint", None)
    for name in _of_no_use(ours, served.partitions[where].first_offset):
        del ours[name]
    assert theirs == ours


def _of_no_use(files: Files, first_offset: int) -> list[str]:
    """Snapshots that every start removes, ours too.

    They are not above the log start offset, or an earlier stop in the middle of a segment left
    them: no segment starts there.
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
    """When Kafka ran: that decides which producers have been idle for too long."""
    return int((served.data / "meta.properties").stat().st_mtime * 1000)


def _about_logs(served: ServedLogs, *levels: str) -> list[str]:
    """Lines of Kafka's log at these levels, but for one that every controller writes."""
    marks = tuple(f" {level} " for level in levels)
    lines = [line[12:] for line in served.broker_log if line[12:].startswith(marks)]
    return [line for line in lines if "Performing controller activation" not in line]


def _expected_warnings(line: str) -> bool:
    # Kafka's leader epoch is lower than the epochs in these two: it was started only twice.
    high = tuple(f" WARN LeaderEpochFileCache: [LeaderEpochCache {name}-0]" for name in HIGH_EPOCHS)
    # The logs that it compacts have records without a key.
    keyless = "invalid messages during compaction" in line
    return line.startswith(high) or keyless


def test_kafka_warns_of_nothing_after_a_clean_stop(served: ServedLogs) -> None:
    """S1: it believes our marker of a clean stop, our checkpoints and our indexes."""
    warnings = _about_logs(served, "WARN", "ERROR", "FATAL")
    assert [line for line in warnings if not _expected_warnings(line)] == []
    text = "\n".join(line for line in served.broker_log if "__cluster_metadata" not in line)
    assert "since clean shutdown file was found" in text
    assert "Loading producer state from snapshot file" in text
    for sign in ("Recovering unflushed segment", "rebuilding index", "orrupt"):
        assert sign not in text


def test_kafka_warns_of_the_torn_write_alone_after_a_crash(
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


@pytest.mark.parametrize("topic", GIVEN_BACK)
def test_kafka_serves_its_own_logs_after_us(
    topic: str, served: ServedLogs, given_back: Mapping[bool, GivenBack]
) -> None:
    """S1: Kafka wrote, we wrote on, Kafka serves the whole."""
    where = TopicPartition(topic, 0)
    assert served.partitions[renamed(where)] == given_back[False].expected[where]


@pytest.mark.parametrize("topic", GIVEN_BACK)
def test_kafka_recovers_its_own_logs_after_us(
    topic: str, recovered: ServedLogs, given_back: Mapping[bool, GivenBack]
) -> None:
    """S7: Kafka crashed, we recovered and wrote on, Kafka recovers that and serves the whole."""
    where = TopicPartition(topic, 0)
    assert recovered.partitions[renamed(where)] == given_back[True].expected[where]


def test_every_log_that_changed_hands_is_checked(given_back: Mapping[bool, GivenBack]) -> None:
    for crashed in (False, True):
        assert sorted(where.topic for where in given_back[crashed].expected) == sorted(GIVEN_BACK)


def test_we_serve_what_we_gave_back(given_back: Mapping[bool, GivenBack], tmp_path: Path) -> None:
    """The same answers from our own log."""
    with opened(copy_of(given_back[False].folder, tmp_path)) as manager:
        for where, expected in given_back[False].expected.items():
            log = manager.get(where)
            assert log is not None
            assert consume(log) == expected
