"""Flushes on threads: one at a time for each log, shared by all who wait (S6)."""

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
    made = GatedDisk()
    yield made
    made.gate.set()


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


async def reached(disk: GatedDisk) -> None:
    """A flush has got to the disk and waits there."""
    await asyncio.to_thread(disk.reached.wait, 10)
    assert disk.reached.is_set()
    disk.reached.clear()


def test_what_is_in_the_log_becomes_durable(log: Log, disk: GatedDisk) -> None:
    async def work(flusher: LogFlusher) -> None:
        append(log)
        done = flusher.flush(log)
        await reached(disk)
        assert not done.done()
        assert log.local.recovery_point == 0
        disk.gate.set()
        await done
        assert log.local.recovery_point == 1

    run(work)


def test_where_everything_is_durable_nobody_waits(log: Log, disk: GatedDisk) -> None:
    async def work(flusher: LogFlusher) -> None:
        disk.gate.set()
        append(log)
        await flusher.flush(log)
        assert flusher.flush(log).done()

    run(work)


def test_who_comes_while_a_flush_runs_shares_the_next(log: Log, disk: GatedDisk) -> None:
    """The running one may have begun before the later records came: it does not cover them."""

    async def work(flusher: LogFlusher) -> None:
        append(log)
        first = flusher.flush(log)
        await reached(disk)
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


def test_a_flush_that_fails_fails_all_who_wait(
    log: Log, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(flusher: LogFlusher) -> None:
        append(log)
        first = flusher.flush(log)
        await reached(disk)
        append(log)
        second = flusher.flush(log)
        disk.gate.set()
        for item in (first, second):
            with pytest.raises(KafkaStorageError):
                await item
        assert log.failure is not None
        with pytest.raises(KafkaStorageError):
            append(log)

    run_task = FlushTask.run

    def failing(task: FlushTask) -> None:
        run_task(task)
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(FlushTask, "run", failing)
    run(work)


def test_a_log_that_is_deleted_meanwhile_is_no_failure(
    log: Log, disk: GatedDisk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder has another name by then; whoever waits is told, and nobody else."""

    async def work(flusher: LogFlusher) -> None:
        append(log)
        done = flusher.flush(log)
        log.guard.stop(KafkaStorageError("t-0 was deleted"))
        disk.gate.set()
        with pytest.raises(KafkaStorageError, match="was deleted"):
            await done

    def gone(task: FlushTask) -> None:
        raise FileNotFoundError(errno.ENOENT, "no such folder")

    monkeypatch.setattr(FlushTask, "run", gone)
    run(work)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_settle_waits_for_what_is_under_way(log: Log, disk: GatedDisk) -> None:
    async def work(flusher: LogFlusher) -> None:
        append(log)
        flusher.flush(log)
        await reached(disk)
        settling = asyncio.create_task(flusher.wait_idle())
        await asyncio.sleep(0)
        assert not settling.done()
        disk.gate.set()
        await settling
        assert log.local.recovery_point == 1

    run(work)


def test_a_log_that_is_held_and_then_moved(log: Log, disk: GatedDisk, tmp_path: Path) -> None:
    """S1: the flush waits, and is then one of the log that has the records now."""
    disk.gate.set()

    async def work(flusher: LogFlusher) -> None:
        append(log)
        with LogDirectory(tmp_path / "other") as directory:
            new = directory.open()
            append(new)
            with log.local.lock_files():
                done = flusher.flush(log)
                await asyncio.sleep(0)
                assert not done.done()
                log.successor = new
            await done
            assert (log.recovery_point, new.recovery_point) == (0, 1)

    run(work)
