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
    """The output of Kafka's tool for all files, with each of its modes."""

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

    def dump_all(directory: Path) -> Dumps:
        indexes = ours.files(*INDEXES)
        return Dumps(
            deep=dump_log_segments(ours.files(*FILES), "--deep-iteration"),
            crashed=dump_log_segments(_after_crash(ours), "--deep-iteration"),
            sanity=dump_log_segments(indexes, "--index-sanity-check"),
            verified=dump_log_segments(indexes, "--verify-index-only"),
        )

    return once_per_run(tmp_path_factory, "dumps-of-ours", dump_all)


def _after_crash(ours: PenstockWrittenLogs) -> list[Path]:
    """Returns the files that a crash leaves, without those that only a clean stop completes.

    Indexes of active segments are preallocated. The tool reads the unused space as entries, and
    fails if a truncation or a torn write removed records that entries point to.
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


def test_kafkas_dump_reports_no_error(
    dumps: Dumps, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S1, S2: CRCs, offsets, every index entry against the log, transaction indexes, snapshots."""
    every = penstock_written_logs.files(*FILES)
    assert sorted(dumps.deep.files) == every
    assert {path.suffix for path in every} == set(FILES)
    assert dumps.deep.complaints == []
    assert {path.parent.name for path in dumps.deep.gaps} == {str(COMPACTED)}


def test_indexes_pass_a_brokers_sanity_check(
    dumps: Dumps, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S2: nothing is rebuilt after a clean stop."""
    assert dumps.sanity.complaints == dumps.verified.complaints == []
    assert sorted(dumps.sanity.files) == penstock_written_logs.files(*INDEXES)
    for path, lines in dumps.sanity.files.items():
        # An offset index without entries is valid: a small segment of Kafka has one too.
        is_empty = path.suffix == ".index" and not path.stat().st_size
        assert lines[1:] == [f"{path} {'is empty' if is_empty else 'passed sanity check'}."]


def test_kafka_reads_the_files_after_a_crash(
    dumps: Dumps, penstock_written_logs: PenstockWrittenLogs
) -> None:
    """S7: all batches are complete except for the torn one."""
    torn_size = penstock_written_logs.notes[TORN].batches[-1].size - TORN_BYTES
    name = max((penstock_written_logs.crashed / str(TORN)).glob("*.log")).name
    assert dumps.crashed.complaints == [f"Found {torn_size} invalid bytes at the end of {name}"]


@pytest.mark.parametrize("where", NOT_COMPACTED, ids=str)
def test_every_field_is_dumped_as_written(
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
def test_both_dump_tools_print_the_same_lines(where: TopicPartition, dumps: Dumps) -> None:
    """S1, S2: `penstock dump-log` prints the same lines for every file."""
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


def test_the_last_snapshot_has_the_last_batch_of_each_producer(
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
            producer_state = expected.setdefault(str(batch.producer_id), {"coordinatorEpoch": "-1"})
            if producer_state.get("producerEpoch") != str(batch.producer_epoch):
                producer_state = expected[str(batch.producer_id)] = {
                    "coordinatorEpoch": producer_state["coordinatorEpoch"]
                }
            producer_state |= {
                "producerId": str(batch.producer_id),
                "producerEpoch": str(batch.producer_epoch),
                "lastTimestamp": str(batch.max_timestamp),
            }
            if batch.marker is not None:
                producer_state["coordinatorEpoch"] = str(batch.marker.coordinator_epoch)
                continue
            producer_state |= {
                "firstSequence": str(batch.base_sequence),
                "lastSequence": str(batch.last_sequence),
                "lastOffset": str(batch.next_offset - 1),
                "offsetDelta": str(len(batch.records) - 1),
            }
        for producer_id, producer_state in expected.items():
            if "lastOffset" in producer_state:
                producer_state["timestamp"] = producer_state[
                    "lastTimestamp"
                ]  # the file stores one value for both
            first = notes.open_transactions.get(int(producer_id))
            producer_state["currentTxnFirstOffset"] = "none" if first is None else str(first)
        snapshots = _of(where, dumps.deep.files, f"{notes.next_offset:020}.snapshot")
        for path in snapshots:
            lines = kafka_lines(dumps.deep.files[path])
            assert {row(line)["producerId"]: row(line) for line in lines} == expected
        assert bool(snapshots) == bool(notes.next_offset), "a clean stop leaves one at the end"
        producers += len(expected)
    assert producers > 20
