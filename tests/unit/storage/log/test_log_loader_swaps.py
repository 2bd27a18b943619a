"""Compaction that was interrupted, and the gaps it leaves (S5, S7)."""

import shutil
from pathlib import Path

import pytest

from penstock.records.batch import split
from penstock.storage.disk import OsDisk
from penstock.storage.log.timestamp_search import offset_for_timestamp
from penstock.storage.segment.log_segment import LogSegment
from penstock.storage.segment.timestamp_scan import TimestampAndOffset
from tests.support.storage.logs import (
    NOW,
    LogDirectory,
    filler,
    offsets,
)
from tests.support.storage.stopped_logs import COMPACT, SMALL, flip, stopped


def cleaned_segment(
    directory: LogDirectory, base_offset: int, *remaining: int, suffix: str
) -> None:
    """Writes the records of `remaining` as compaction does, in files with a suffix."""
    segment = LogSegment(
        OsDisk(), str(directory.path), base_offset, SMALL, NOW, create=True, suffix=suffix
    )
    for offset in remaining:
        data = filler(100, base_offset=offset, timestamp=NOW + 10 * offset)
        segment.append(data, [header for _, header in split(data)])
    segment.close()


def interrupted(directory: LogDirectory, *, suffix: str) -> None:
    """Returns a log of 35 records with its first two segments compacted into one, not yet
    swapped."""
    directory.config = COMPACT
    stopped(directory, 0, clean=True)
    directory.open(clean=True)
    for offset in range(35):
        data = filler(100, base_offset=offset, timestamp=NOW + 10 * offset)
        directory.log.append_as_follower(data)
    directory.close()
    cleaned_segment(directory, 0, 1, 14, 19, suffix=suffix)


OLD = list(range(35))
NEW = [1, 14, 19, *range(20, 35)]


@pytest.mark.parametrize("clean", [True, False])
def test_cleaned_files_are_worthless(tmp_path: Path, clean: bool) -> None:
    """S5: the old segments are whole, the new one may not be."""
    with LogDirectory(tmp_path) as directory:
        interrupted(directory, suffix=".cleaned")
        assert offsets(directory.open(clean=clean, recovery_point=35)) == OLD
        assert directory.names(".cleaned") == []


@pytest.mark.parametrize("kinds", [(".log",), (".log", ".index"), (".index", ".timeindex")])
def test_a_swap_is_undone_while_a_cleaned_file_is_left(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    """S5: some files were renamed, some were not."""
    with LogDirectory(tmp_path) as directory:
        interrupted(directory, suffix=".cleaned")
        for kind in kinds:
            directory.file(0, f"{kind}.cleaned").rename(directory.file(0, f"{kind}.swap"))
        assert offsets(directory.open(clean=True, recovery_point=35)) == OLD
        assert directory.names(".cleaned") == directory.names(".swap") == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_swap_is_completed(tmp_path: Path, clean: bool) -> None:
    """S5: the new segment is complete, so the old ones are removed."""
    with LogDirectory(tmp_path) as directory:
        interrupted(directory, suffix=".swap")
        log = directory.open(clean=clean, recovery_point=35)
        assert offsets(log) == NEW
        assert list(directory.sizes()) == [0, 20, 30]
        assert directory.names(".swap") == []


@pytest.mark.parametrize("done", [1, 2, 3, 4, 5, 6])
def test_a_swap_is_completed_after_some_old_files_went(tmp_path: Path, done: int) -> None:
    """S5: the old segments are renamed one file after the other."""
    with LogDirectory(tmp_path) as directory:
        interrupted(directory, suffix=".swap")
        old = [
            directory.file(base, kind)
            for base in (0, 10)
            for kind in (".log", ".index", ".timeindex")
        ]
        for path in old[:done]:
            path.rename(f"{path}.deleted")
        assert offsets(directory.open(clean=True, recovery_point=35)) == NEW
        assert directory.names(".swap") == directory.names(".deleted") == []


@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_swap_is_completed_after_some_new_files_are_in_place(tmp_path: Path, done: int) -> None:
    """S5: the new segment gets its names one file after the other, the log first."""
    with LogDirectory(tmp_path) as directory:
        interrupted(directory, suffix=".swap")
        for base in (0, 10):
            for kind in (".log", ".index", ".timeindex"):
                directory.file(base, kind).unlink()
        for kind in (".log", ".index", ".timeindex")[:done]:
            directory.file(0, f"{kind}.swap").rename(directory.file(0, kind))
        log = directory.open(clean=True, recovery_point=35)
        assert offsets(log) == NEW
        assert directory.names(".swap") == []


def test_a_swap_whose_index_is_missing(tmp_path: Path) -> None:
    """S5, S7: it is rebuilt, and no other file with a suffix is created."""
    with LogDirectory(tmp_path) as directory:
        interrupted(directory, suffix=".swap")
        directory.file(0, ".index.swap").unlink()
        directory.file(0, ".timeindex.swap").unlink()
        log = directory.open(clean=True, recovery_point=35)
        assert offsets(log) == NEW
        assert directory.names(".swap") == []
        assert offset_for_timestamp(log, NOW + 20) == TimestampAndOffset(NOW + 140, 14, -1)


def test_several_segments_are_swapped_together(tmp_path: Path) -> None:
    """S5: while the first of them is .cleaned, none counts; once it is .swap, all do."""
    with LogDirectory(tmp_path) as directory:
        interrupted(directory, suffix=".cleaned")
        cleaned_segment(directory, 12, 14, 19, suffix=".swap")
        backup = directory.path.with_name("backup")
        shutil.copytree(directory.path, backup)
        assert offsets(directory.open(clean=True, recovery_point=35)) == OLD
        assert directory.names(".swap") == []
        directory.crash()
        shutil.rmtree(directory.path)
        backup.rename(directory.path)
        for kind in (".log", ".index", ".timeindex"):
            directory.file(0, f"{kind}.cleaned").unlink()
        cleaned_segment(directory, 0, 1, 2, suffix=".swap")
        assert offsets(directory.open(clean=True, recovery_point=35)) == [1, 2, *NEW[1:]]


def test_a_compacted_segment_without_records(tmp_path: Path) -> None:
    """S5: no record of the old ones was kept."""
    with LogDirectory(tmp_path) as directory:
        interrupted(directory, suffix=".cleaned")
        for kind in (".log", ".index", ".timeindex"):
            directory.file(0, f"{kind}.cleaned").unlink()
        cleaned_segment(directory, 0, suffix=".swap")
        result = offsets(directory.open(clean=True, recovery_point=35))
        assert result == list(range(10, 35)), "only the segment with its name can be identified"


def test_deleted_files_are_removed(tmp_path: Path) -> None:
    """S4: their delay ends with the process."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 15, clean=True)
        for kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            directory.file(5, f"{kind}.deleted").write_bytes(b"whatever")
        assert offsets(directory.open(clean=True, recovery_point=15)) == list(range(15))
        assert directory.names(".deleted") == []


def compacted(directory: LogDirectory) -> None:
    """Returns a log whose first two segments were compacted into one that ends before the third."""
    interrupted(directory, suffix=".cleaned")
    for kind in (".log", ".index", ".timeindex"):
        directory.file(0, f"{kind}.cleaned").unlink()
    cleaned_segment(directory, 0, 1, 14, suffix=".swap")
    assert offsets(directory.open(clean=True, recovery_point=35)) == [1, 14, *range(20, 35)]
    directory.crash()


def test_gaps_of_kafkas_compaction_are_not_a_loss(tmp_path: Path) -> None:
    """S1, S5, S7: Kafka does not store the recovery point first, but has a cleaner checkpoint."""
    with LogDirectory(tmp_path) as directory:
        compacted(directory)
        log = directory.open(recovery_point=0, cleaned_to=20)
        assert offsets(log) == [1, 14, *range(20, 35)]


def test_damage_before_a_gap_of_compaction_is_a_loss(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as directory:
        compacted(directory)
        flip(directory.file(0), 150)
        assert offsets(directory.open(recovery_point=0, cleaned_to=20)) == [1]
