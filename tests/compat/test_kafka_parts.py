"""Tests of the harness: a real Kafka writes, its tools read, and both detect damage."""

import re
import shutil
from pathlib import Path

import pytest

from penstock.core.ids import TopicPartition
from tests.support.kafka import broker as kafka
from tests.support.kafka.broker import KafkaBroker, KafkaParts, MissingPartError, dump_log_segments
from tests.support.kafka.log_exchange import MOVED
from tests.support.kafka.logs import (
    KafkaRecord,
    KafkaWrittenLogs,
    ServedLogs,
    WrittenRecord,
    read_checkpoint,
)

CODEC_TOPICS = [f"codec-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")]
PLAIN_TOPICS = [*CODEC_TOPICS, "append-time", "big", "not-idempotent", "transaction-open"]


def test_kafka_wrote_every_kind_of_file(kafka_written_logs: KafkaWrittenLogs) -> None:
    """S1: every kind of file that Kafka's log directories can contain exists."""
    top = {path.name for path in kafka_written_logs.data.iterdir() if path.is_file()}
    assert top >= {
        ".kafka_cleanshutdown",
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    assert len(kafka_written_logs.files(".log")) > 60
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot", ".log.deleted"):
        assert kafka_written_logs.files(suffix), suffix
    directory = kafka_written_logs.directory(TopicPartition("codec-none", 0))
    assert (directory / "partition.metadata").exists()
    epochs = (directory / "leader-epoch-checkpoint").read_text().splitlines()
    assert len(epochs[2:]) == 2, "the restart began a second leader epoch"


def test_the_crashed_copy_has_no_clean_shutdown_file(
    kafka_written_logs: KafkaWrittenLogs,
) -> None:
    """S7: the logs are as after an unclean shutdown."""
    assert not (kafka_written_logs.crashed / ".kafka_cleanshutdown").exists()
    for path in kafka_written_logs.files(".log"):
        crashed = kafka_written_logs.crashed / path.relative_to(kafka_written_logs.data)
        if not path.parent.name.startswith("__"):
            assert crashed.read_bytes() == path.read_bytes(), path
    active = kafka_written_logs.crashed / "codec-none-0"
    assert max(path.stat().st_size for path in active.glob("*.index")) == 65536, "preallocated"


@pytest.mark.parametrize("topic", PLAIN_TOPICS)
def test_kafka_serves_what_it_accepted(topic: str, kafka_written_logs: KafkaWrittenLogs) -> None:
    partitions = {entry.where for entry in kafka_written_logs.written if entry.where.topic == topic}
    assert partitions
    for where in partitions:
        accepted = [entry.record for entry in kafka_written_logs.written if entry.where == where]
        assert kafka_written_logs.served[where].uncommitted == accepted


@pytest.mark.parametrize("partition", [0, 1])
def test_aborted_records_are_not_served_to_read_committed(
    partition: int, kafka_written_logs: KafkaWrittenLogs
) -> None:
    where = TopicPartition("transactions", partition)
    written = [entry for entry in kafka_written_logs.written if entry.where == where]
    served = kafka_written_logs.served[where]
    assert {entry.outcome for entry in written} == {"committed", "aborted"}
    assert served.uncommitted == [entry.record for entry in written]
    assert served.committed == [entry.record for entry in written if entry.outcome == "committed"]
    assert served.last_stable_offset == served.high_watermark == len(written) + 24


def test_an_open_transaction_holds_the_last_stable_offset(
    kafka_written_logs: KafkaWrittenLogs,
) -> None:
    served = kafka_written_logs.served[TopicPartition("transaction-open", 0)]
    assert (served.first_offset, served.last_stable_offset, served.high_watermark) == (0, 10, 30)
    assert [record.offset for record in served.committed] == list(range(10))


def test_deleted_records_advance_the_log_start_offset(kafka_written_logs: KafkaWrittenLogs) -> None:
    """S4: the log start offset checkpoint reflects DeleteRecords."""
    where = TopicPartition("records-deleted", 0)
    served = kafka_written_logs.served[where]
    assert (served.first_offset, served.uncommitted[0].offset) == (260, 260)
    checkpoint = read_checkpoint(kafka_written_logs.data / "log-start-offset-checkpoint")
    assert checkpoint == {where: 260}


@pytest.mark.parametrize("topic", ["compacted", "compacted-lz4", "compacted-no-tombstones"])
def test_kafka_compacted_all_but_the_active_segment(
    topic: str, kafka_written_logs: KafkaWrittenLogs
) -> None:
    """S5: older records of a key exist only in the active segment."""
    where = TopicPartition(topic, 0)
    written = [entry.record for entry in kafka_written_logs.written if entry.where == where]
    served = kafka_written_logs.served[where].uncommitted
    assert len(served) < len(written) / 2
    newest: dict[bytes | None, KafkaRecord] = {record.key: record for record in written}
    missing = {record.key for record in newest.values() if record not in served}
    deleted_keys = {b"gone-%d" % i for i in range(5)}
    assert all(newest[key].value is None for key in deleted_keys)
    assert missing == (deleted_keys if topic == "compacted-no-tombstones" else set())


def test_offsets_for_timestamps_are_served(kafka_written_logs: KafkaWrittenLogs) -> None:
    served = kafka_written_logs.served[TopicPartition("codec-zstd", 1)]
    responses = served.offsets_for_timestamps
    assert len(responses) >= 6
    assert responses[0] == (0, served.uncommitted[0].timestamp)
    assert responses[max(responses)] is None
    assert served.max_timestamp == max(
        (record.offset, record.timestamp) for record in served.uncommitted
    )


@pytest.mark.long
def test_dump_reads_every_log(kafka_written_logs: KafkaWrittenLogs) -> None:
    """S1: every record that Kafka serves is in the dump of its files."""
    dump = dump_log_segments(kafka_written_logs.files(".log"), "--deep-iteration")
    assert dump.complaints == []
    with_gaps = {path.parent.name.removesuffix("-0") for path in dump.gaps}
    assert {name for name in with_gaps if not name.startswith(("compacted", "__"))} == set()
    assert with_gaps >= {"compacted", "compacted-lz4"}
    offsets: dict[str, set[int]] = {}
    for path, lines in dump.files.items():
        result = (re.match(r"\| offset: (\d+) ", line) for line in lines)
        offsets.setdefault(path.parent.name, set()).update(int(item[1]) for item in result if item)
    for where, served in kafka_written_logs.served.items():
        assert offsets[str(where)] >= {record.offset for record in served.uncommitted}


@pytest.mark.long
def test_dump_reads_every_other_file(kafka_written_logs: KafkaWrittenLogs) -> None:
    """S1, S2: sanity of the indexes, and the contents of transaction indexes and snapshots."""
    indexes = kafka_written_logs.files(".index") + kafka_written_logs.files(".timeindex")
    checked = dump_log_segments(indexes, "--index-sanity-check")
    assert checked.complaints == []
    assert len(checked.files) == len(indexes)
    for path, lines in checked.files.items():
        assert re.search(r"passed sanity check|is empty", "\n".join(lines)), path

    snapshots_and_txn_indexes = kafka_written_logs.files(".txnindex") + kafka_written_logs.files(
        ".snapshot"
    )
    dump = dump_log_segments(indexes + snapshots_and_txn_indexes)
    # Kafka's cleaner keeps a producer's last batch without records, and its timestamp in the index;
    # the tool then finds no record with that timestamp.
    unexplained = [
        complaint for complaint in dump.complaints if not complaint.endswith("log timestamp: -1")
    ]
    assert unexplained == []
    assert all("/compacted-transactions-0/" in complaint for complaint in dump.complaints)

    for partition in (0, 1):
        directory = kafka_written_logs.directory(TopicPartition("transactions", partition))
        aborted = [line for path in directory.glob("*.txnindex") for line in dump.files[path][1:]]
        assert len(aborted) == 8
    assert "currentTxnFirstOffset: OptionalLong[10]" in dump.text


@pytest.mark.long
def test_dump_decodes_coordinator_topics(kafka_written_logs: KafkaWrittenLogs) -> None:
    def logs(topic: str) -> list[Path]:
        return sorted(kafka_written_logs.directory(TopicPartition(topic, 0)).glob("*.log"))

    offsets = dump_log_segments(logs("__consumer_offsets"), "--offsets-decoder")
    assert '"group":"readers","topic":"codec-none","partition":1' in offsets.text
    states = dump_log_segments(logs("__transaction_state"), "--transaction-log-decoder")
    assert '"transactionalId":"left-open"' in states.text
    assert offsets.complaints == states.complaints == []


@pytest.mark.long
def test_dump_reports_damaged_files(kafka_written_logs: KafkaWrittenLogs, tmp_path: Path) -> None:
    """An empty list of errors is meaningful only if damage is reported."""
    source = kafka_written_logs.directory(TopicPartition("codec-none", 0))
    log = min(source.glob("*.log"))
    for name in ("flipped", "torn", "index"):
        (tmp_path / name).mkdir()
        for path in source.glob(f"{log.stem}.*"):
            shutil.copy(path, tmp_path / name)

    flipped = bytearray(log.read_bytes())
    flipped[-1] ^= 1
    (tmp_path / "flipped" / log.name).write_bytes(flipped)
    (tmp_path / "torn" / log.name).write_bytes(log.read_bytes()[:-1])
    index = log.with_suffix(".index").read_bytes()
    wrong = (int.from_bytes(index[:4]) + 1).to_bytes(4) + index[4:]
    (tmp_path / "index" / log.with_suffix(".index").name).write_bytes(wrong)

    logs = [tmp_path / "flipped" / log.name, tmp_path / "torn" / log.name]
    complaints = dump_log_segments(logs).complaints
    assert ["isvalid: false" in line for line in complaints] == [True, False]
    assert re.match(r"Found \d+ invalid bytes at the end of", complaints[1])
    indexes = [tmp_path / "index" / log.with_suffix(".index").name]
    assert any("Mismatches in" in line for line in dump_log_segments(indexes).complaints)


@pytest.mark.long
def test_dump_reads_the_old_formats(
    old_format_logs: tuple[Path, list[WrittenRecord]],
) -> None:
    directory, written = old_format_logs
    dump = dump_log_segments(sorted(directory.glob("*/*.log")), "--print-data-log")
    assert dump.complaints == []
    assert {entry.where.topic for entry in written} >= {"v0-none", "v0-lz4", "v1-gzip", "v1-snappy"}
    for where in {entry.where for entry in written}:
        lines = "\n".join(dump.files[directory / str(where) / f"{0:020}.log"])
        values = [entry.record.value for entry in written if entry.where == where]
        assert len(values) == 111
        assert re.findall(r"payload: (.*)", lines) == [value.decode() for value in values if value]


def test_kafka_serves_copied_log_directories(
    kafka_written_logs: KafkaWrittenLogs, served: ServedLogs, recovered: ServedLogs
) -> None:
    """S1, S7: a broker that did not write them opens the directories, with and without recovery."""
    for how in (served, recovered):
        for moved, source in MOVED.items():
            assert how.partitions[moved] == kafka_written_logs.served[source]
        recovering = [
            line
            for line in how.broker_log
            if "Recovering unflushed segment" in line and "partition=moved" in line
        ]
        assert bool(recovering) == (how is recovered)


@pytest.mark.long
def test_a_killed_broker_can_be_restarted(kafka_parts: KafkaParts, tmp_path: Path) -> None:
    # The controller accepts the broker once the session of the killed one has expired.
    settings = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
    with KafkaBroker(kafka_parts, tmp_path, settings) as broker:
        broker.kill()
        assert not (broker.data / ".kafka_cleanshutdown").exists()
        broker.start()
        assert broker.log_lines("ERROR", "FATAL") == []
        broker.stop()
    assert (broker.data / ".kafka_cleanshutdown").exists()


def test_a_missing_part_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tools" / "kafka").mkdir(parents=True)
    shutil.copy(kafka.ROOT / "tools" / "kafka" / "pom.xml", tmp_path / "tools" / "kafka")
    monkeypatch.setattr(kafka, "ROOT", tmp_path)
    with pytest.raises(MissingPartError, match=r"Kafka's jars .* are missing: run make setup"):
        KafkaParts.find()
