"""Kafka's DumpLogSegments reads every file of every log that we write, without complaint (S1)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.cli.dump.segment import SegmentOptions
from penstock.core.ids import TopicPartition
from tests.support.kafka.broker import Dump, KafkaParts, dump_log_segments
from tests.support.kafka.dump_lines import Row, batch_row, kafka_lines, our_lines, record_rows, row
from tests.support.kafka.once import once_per_run
from tests.support.kafka.penstock_logs import (
    COMPACTED,
    CONFIGS,
    TORN,
    TORN_BYTES,
    PenstockWrittenLogs,
)

FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
INDEXES = (".index", ".timeindex")
PARTITIONS = sorted(TopicPartition(topic, 0) for topic in CONFIGS)
NOT_COMPACTED = [where for where in PARTITIONS if where != COMPACTED]


@dataclass(frozen=True)
class Dumps:
    """What Kafka's tool said of all files, asked in every way."""

    deep: Dump
    crashed: Dump
    sanity: Dump
    verified: Dump


@pytest.fixture(scope="module")
def dumps(
    kafka_parts: KafkaParts,
    penstock_written_logs: PenstockWrittenLogs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Dumps:
    ours = penstock_written_logs

    def ask(folder: Path) -> Dumps:
        indexes = ours.files(*INDEXES)
        return Dumps(
            deep=dump_log_segments(ours.files(*FILES), "--deep-iteration"),
            crashed=dump_log_segments(_after_crash(ours), "--deep-iteration"),
            sanity=dump_log_segments(indexes, "--index-sanity-check"),
            verified=dump_log_segments(indexes, "--verify-index-only"),
        )

    return once_per_run(tmp_path_factory, "dumps-of-ours", ask)


def _after_crash(ours: PenstockWrittenLogs) -> list[Path]:
    """What a crash leaves, without the indexes that only a clean stop completes.

    Those of active segments are of their full size. The tool takes what is behind their entries
    for entries, and fails where a truncation or a torn write took records that they name.
    """
    active = {
        max(directory.glob("*.log")).with_suffix("") for directory in ours.crashed.glob("*-0")
    }
    return [
        path
        for path in ours.files(*FILES, crashed=True)
        if not (path.name.endswith(INDEXES) and path.with_suffix("") in active)
    ]


def _of(where: TopicPartition, files: Mapping[Path, list[str]], suffix: str) -> Iterable[Path]:
    return sorted(p for p in files if p.parent.name == str(where) and p.name.endswith(suffix))


def test_kafka_has_no_complaint(dumps: Dumps, penstock_written_logs: PenstockWrittenLogs) -> None:
    """S1, S2: CRCs, offsets, every index entry against the log, transaction indexes, snapshots."""
    every = penstock_written_logs.files(*FILES)
    assert sorted(dumps.deep.files) == every
    assert {path.suffix for path in every} == set(FILES)
    assert dumps.deep.complaints == []
    assert {path.parent.name for path in dumps.deep.gaps} == {str(COMPACTED)}


def test_indexes_pass_the_check_that_a_broker_makes_at_start(
    dumps: Dumps, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S2: nothing is rebuilt after a clean stop."""
    assert dumps.sanity.complaints == dumps.verified.complaints == []
    assert sorted(dumps.sanity.files) == penstock_written_logs.files(*INDEXES)
    for path, lines in dumps.sanity.files.items():
        # An offset index without entries is all right: so is Kafka's, of a small segment.
        is_empty = path.suffix == ".index" and not path.stat().st_size
        assert lines[1:] == [f"{path} {'is empty' if is_empty else 'passed sanity check'}."]


def test_kafka_reads_what_a_crash_leaves(
    dumps: Dumps, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S7: all of it is whole, but for the batch that was torn."""
    left = penstock_written_logs.notes[TORN].batches[-1].size - TORN_BYTES
    name = max((penstock_written_logs.crashed / str(TORN)).glob("*.log")).name
    assert dumps.crashed.complaints == [f"Found {left} invalid bytes at the end of {name}"]


@pytest.mark.parametrize("where", NOT_COMPACTED, ids=str)
def test_every_field_is_what_was_written(
    where: TopicPartition, dumps: Dumps, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S1: batches and records field by field: offsets, times, sequences, codecs, positions."""
    batches = iter(penstock_written_logs.notes[where].batches)
    for path in _of(where, dumps.deep.files, ".log"):
        position = 0
        waiting: list[Row] = []
        for line in kafka_lines(dumps.deep.files[path]):
            result = row(line)
            if "baseOffset" not in result:
                assert result == waiting.pop(0)
                continue
            assert waiting == []
            batch = next(batches)
            assert result == batch_row(batch, result, position)
            position += int(result["size"])
            waiting = record_rows(batch)
        assert waiting == []
        assert position == path.stat().st_size
    assert next(batches, None) is None


@pytest.mark.parametrize("where", PARTITIONS, ids=str)
def test_kafka_reads_what_we_read(where: TopicPartition, dumps: Dumps) -> None:
    """S1, S2: `penstock dump-log` shows the same lines, of every file."""
    entries = 0
    for path in _of(where, dumps.deep.files, ""):
        printed = kafka_lines(dumps.deep.files[path])
        if printed == [f"{path} is empty."]:
            printed = []
        assert our_lines(path, SegmentOptions(records=True)) == printed
        entries += len(printed)
    assert entries > 0 or where.topic == "empty"


def test_aborted_transactions_are_in_the_index(
    dumps: Dumps, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S1, P4: the transaction index names every abort once, in the segment of its marker."""
    any_aborted = 0
    for where in NOT_COMPACTED:
        batches = penstock_written_logs.notes[where].batches
        aborts: dict[int, tuple[int, int]] = {}
        started: dict[int, int] = {}
        for batch in batches:
            if batch.marker is None and batch.transactional:
                started.setdefault(batch.producer_id, batch.base_offset)
            elif batch.marker is not None:
                first = started.pop(batch.producer_id, None)
                if first is not None and not batch.marker.commit:
                    aborts[batch.base_offset] = (batch.producer_id, first)
        result = {}
        bases = [int(path.stem) for path in _of(where, dumps.deep.files, ".log")]
        for path in _of(where, dumps.deep.files, ".txnindex"):
            for entry in map(row, kafka_lines(dumps.deep.files[path])):
                last = int(entry["lastOffset"])
                assert max(base for base in bases if base <= last) == int(path.stem)
                result[last] = (int(entry["producerId"]), int(entry["firstOffset"]))
        assert result == aborts
        any_aborted += len(aborts)
    assert any_aborted > 20


def test_the_last_snapshot_tells_the_last_batch_of_each_producer(
    dumps: Dumps, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S1, P3: epochs, sequences, offsets and open transactions, as Kafka reads them."""
    producers = 0
    for where in NOT_COMPACTED:
        notes = penstock_written_logs.notes[where]
        expected: dict[str, Row] = {}
        for batch in notes.batches:
            if batch.producer_id < 0:
                continue
            known = expected.setdefault(str(batch.producer_id), {"coordinatorEpoch": "-1"})
            if known.get("producerEpoch") != str(batch.producer_epoch):
                known = expected[str(batch.producer_id)] = {
                    "coordinatorEpoch": known["coordinatorEpoch"]
                }
            known |= {
                "producerId": str(batch.producer_id),
                "producerEpoch": str(batch.producer_epoch),
                "lastTimestamp": str(batch.max_timestamp),
            }
            if batch.marker is not None:
                known["coordinatorEpoch"] = str(batch.marker.coordinator_epoch)
                continue
            known |= {
                "firstSequence": str(batch.base_sequence),
                "lastSequence": str(batch.last_sequence),
                "lastOffset": str(batch.next_offset - 1),
                "offsetDelta": str(len(batch.records) - 1),
            }
        for producer_id, known in expected.items():
            if "lastOffset" in known:
                known["timestamp"] = known["lastTimestamp"]  # there is one in the file for both
            first = notes.open_transactions.get(int(producer_id))
            known["currentTxnFirstOffset"] = "none" if first is None else str(first)
        snapshots = _of(where, dumps.deep.files, f"{notes.next_offset:020}.snapshot")
        for path in snapshots:
            lines = kafka_lines(dumps.deep.files[path])
            assert {row(line)["producerId"]: row(line) for line in lines} == expected
        assert bool(snapshots) == bool(notes.next_offset), "a clean stop leaves one at the end"
        producers += len(expected)
    assert producers > 20
