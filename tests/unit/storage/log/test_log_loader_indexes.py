"""Indexes that are missing or wrong when a log is opened (S2, S7)."""

from pathlib import Path

import pytest

from penstock.core.errors import KafkaError
from penstock.records.append_policy import AppendOrigin
from penstock.storage.log.log import Log
from penstock.storage.log.timestamp_search import offset_for_timestamp
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.timestamp_scan import TimestampAndOffset
from tests.support.storage.logs import (
    NOW,
    LogDirectory,
    batch,
    marker,
    offsets,
)
from tests.support.storage.stopped_logs import SMALL, contents, fill, stopped


def index_files(directory: LogDirectory) -> dict[str, bytes]:
    return contents(directory, ".index", ".timeindex", ".txnindex")


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_index_is_rebuilt(tmp_path: Path, kind: str, clean: bool) -> None:
    """S2, S7: of a sealed segment, flushed or not, to the same bytes."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 35, clean=True)
        before = index_files(directory)
        directory.file(10, kind).unlink()
        log = directory.open(clean=clean, recovery_point=35)
        assert offsets(log) == list(range(35))
        for n in range(35):
            record = offset_for_timestamp(log, NOW + 10 * n)
            assert record == TimestampAndOffset(NOW + 10 * n, n, 0)
        directory.close()
        assert index_files(directory) == before


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage", [b"\xff" * 24, b"\x80\0\0", b"\xff" * 23], ids=["entries", "few bytes", "length"]
)
def test_a_corrupt_index_is_rebuilt(tmp_path: Path, kind: str, damage: bytes) -> None:
    """S2, S7: a length or a last entry that cannot be right."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 35, clean=True)
        before = index_files(directory)
        directory.file(10, kind).write_bytes(damage)
        log = directory.open(clean=True, recovery_point=35)
        assert offsets(log) == list(range(35))
        directory.close()
        assert index_files(directory) == before


def test_every_index_is_rebuilt_after_a_crash(tmp_path: Path) -> None:
    """S7: whatever the files contain from the recovery point on."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 35, clean=True)
        before = index_files(directory)
        for name in before:
            (directory.path / name).write_bytes(b"\x7f" * 1200)
        log = directory.open()
        assert offsets(log) == list(range(35))
        directory.close()
        assert index_files(directory) == before


def test_an_index_without_a_log_file_is_removed(tmp_path: Path) -> None:
    """S7: a crash in the middle of a deletion."""
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 15, clean=True)
        for kind in (".index", ".timeindex", ".txnindex"):
            directory.file(77, kind).write_bytes(b"\0" * 40)
        log = directory.open(clean=True, recovery_point=15)
        assert list(directory.sizes(".index")) == [0, 10]
        assert directory.names(".txnindex") == []
        assert log.log_end_offset == 15


def aborted_log(directory: LogDirectory) -> Log:
    log = directory.open()
    for sequence in range(3):
        sent = batch(b"t", producer_id=7, sequence=sequence, transactional=True)
        log.append_as_leader(sent, 0)
        log.append_as_leader(marker(7, commit=False), 0, origin=AppendOrigin.COORDINATOR)
        fill(log, 10)
    return log


def test_a_missing_transaction_index_is_rebuilt_after_a_crash(tmp_path: Path) -> None:
    """P4, S7: aborted records must not be shown as committed."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = aborted_log(directory)
        before = log.aborted_transactions(0, 36)
        files = contents(directory, ".txnindex")
        directory.crash()
        for name in files:
            (directory.path / name).unlink()
        log = directory.open()
        assert log.aborted_transactions(0, 36) == before
        assert contents(directory, ".txnindex") == files


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [b"\0" * 33, b"\0\7" + b"\0" * 32], ids=["torn", "version"])
def test_a_corrupt_transaction_index_is_rebuilt(tmp_path: Path, damage: bytes, clean: bool) -> None:
    """P4, S7: a torn entry, a version that is not known."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = aborted_log(directory)
        before = log.aborted_transactions(0, 36)
        files = contents(directory, ".txnindex")
        directory.close()
        for name in files:
            (directory.path / name).write_bytes(damage)
        log = directory.open(clean=clean, recovery_point=36)
        assert log.aborted_transactions(0, 36) == before
        assert contents(directory, ".txnindex") == files


def test_a_rebuild_of_one_segment_keeps_the_producers(tmp_path: Path) -> None:
    """P3, S7: though it starts from an older snapshot, the state is that of the whole log."""
    with LogDirectory(tmp_path, SMALL) as directory:
        log = directory.open()
        for n in range(30):
            log.append_as_leader(batch(b"v" * 40, producer_id=7, sequence=n), 0)
        bases = log.local.segments.base_offsets
        directory.close()
        directory.file(bases[1], ".index").unlink()
        log = directory.open(clean=True, recovery_point=30)
        assert log.append_as_leader(batch(b"v" * 40, producer_id=7, sequence=29), 0).is_duplicate
        with pytest.raises(KafkaError):
            log.append_as_leader(batch(b"v", producer_id=7, sequence=31), 0)
        assert log.append_as_leader(batch(b"v", producer_id=7, sequence=30), 0).first_offset == 30


def test_segment_index_bytes_may_be_lowered(tmp_path: Path) -> None:
    with LogDirectory(tmp_path, SMALL) as directory:
        stopped(directory, 35, clean=True)
        directory.config = LogConfig(
            segment_bytes=1000, segment_index_bytes=24, index_interval_bytes=0
        )
        for clean in (True, False):
            log = directory.open(clean=clean, recovery_point=35 if clean else 0)
            assert offsets(log)[:35] == list(range(35))
            fill(log, 2)
            directory.close()
