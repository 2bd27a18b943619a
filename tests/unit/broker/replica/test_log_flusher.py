"""Flushes on threads: one at a time for each log, shared by all waiters (S6)."""

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from penstock.broker.replica.log_flusher import LogFlusher
from penstock.broker.workers import Workers
from penstock.core.errors import KafkaStorageError
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.storage.log.flush_task import FlushTask
from penstock.storage.log.log import Log
from tests.support.storage.gated_disk import GatedDisk
from tests.support.storage.logs import LogDirectory

Work = Callable[[LogFlusher], Coroutine[None, None, None]]


@pytest.fixture
def disk() -> Iterator[GatedDisk]:
    disk = GatedDisk()
    yield disk
    disk.gate.set()


@pytest.fixture
def log(tmp_path: Path, disk: GatedDisk) -> Iterator[Log]:
    with LogDirectory(tmp_path, disk=disk) as directory:
        directory.open()
        yield directory.log


def append(log: Log) -> None:
    log.append_as_leader(build_batch([Record(0, 1_700_000_000_000, None, b"v")]), 0)


def run(work: Work) -> None:
    workers = Workers()
    try:
        asyncio.run(work(LogFlusher(workers)))
    finally:
        workers.close()


async def wait_for_flush(disk: GatedDisk) -> None:
    """Waits until a flush has reached the disk and is held there."""
    await asyncio.to_thread(disk.reached.wait, 10)
    assert disk.reached.is_set()
    disk.reached.clear()


def test_a_flush_makes_the_log_durable(log: Log, disk: GatedDisk) -> None:
    async def work(flusher: LogFlusher) -> None:
        append(log)
        done = flusher.flush(log)
        await wait_for_flush(disk)
        assert not done.done()
        assert log.local.recovery_point == 0
        disk.gate.set()
        await done
        assert log.local.recovery_point == 1

    run(work)


def test_a_flush_of_a_durable_log_is_done_immediately(log: Log, disk: GatedDisk) -> None:
    async def work(flusher: LogFlusher) -> None:
        disk.gate.set()
        append(log)
        await flusher.flush(log)
        assert flusher.flush(log).done()

    run(work)


def test_calls_during_a_flush_share_the_next_flush(log: Log, disk: GatedDisk) -> None:
    """The running flush may have begun before later records were appended."""

    async def work(flusher: LogFlusher) -> None:
        append(log)
        first = flusher.flush(log)
        await wait_for_flush(disk)
        append(log)
        second, third = flusher.flush(log), flusher.flush(log)
        assert second is third
        assert second is not first
        disk.gate.set()
        await first
        assert log.local.recovery_point == 1
        await second
        assert log.local.recovery_point == 2
        await flusher.wait_idle()

    run(work)


def test_a_failed_flush_fails_all_waiters(
    log: Log, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(flusher: LogFlusher) -> None:
        append(log)
        first = flusher.flush(log)
        await wait_for_flush(disk)
        append(log)
        second = flusher.flush(log)
        disk.gate.set()
        for flush in (first, second):
            with pytest.raises(KafkaStorageError):
                await flush
        assert log.failure is not None
        with pytest.raises(KafkaStorageError):
            append(log)

    run_task = FlushTask.run

    def failing(task: FlushTask) -> None:
        run_task(task)
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(FlushTask, "run", failing)
    run(work)


def test_a_log_that_is_deleted_during_a_flush_is_not_logged_as_a_failure(
    log: Log, disk: GatedDisk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory has been renamed by then; only the waiters receive the error."""

    async def work(flusher: LogFlusher) -> None:
        append(log)
        done = flusher.flush(log)
        log.guard.stop(KafkaStorageError("t-0 was deleted"))
        disk.gate.set()
        with pytest.raises(KafkaStorageError, match="was deleted"):
            await done

    def fail(task: FlushTask) -> None:
        raise FileNotFoundError(errno.ENOENT, "no such directory")

    monkeypatch.setattr(FlushTask, "run", fail)
    run(work)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_wait_idle_waits_for_the_running_flush(log: Log, disk: GatedDisk) -> None:
    async def work(flusher: LogFlusher) -> None:
        append(log)
        flusher.flush(log)
        await wait_for_flush(disk)
        idle = asyncio.create_task(flusher.wait_idle())
        await asyncio.sleep(0)
        assert not idle.done()
        disk.gate.set()
        await idle
        assert log.local.recovery_point == 1

    run(work)


def test_a_flush_of_a_log_that_is_being_moved_flushes_its_successor(
    log: Log, disk: GatedDisk, tmp_path: Path
) -> None:
    """S1: the flush waits for the move, then flushes the log that has the records now."""
    disk.gate.set()

    async def work(flusher: LogFlusher) -> None:
        append(log)
        with LogDirectory(tmp_path / "other") as directory:
            successor = directory.open()
            append(successor)
            with log.local.lock_files():
                done = flusher.flush(log)
                await asyncio.sleep(0)
                assert not done.done()
                log.successor = successor
            await done
            assert (log.recovery_point, successor.recovery_point) == (0, 1)

    run(work)
