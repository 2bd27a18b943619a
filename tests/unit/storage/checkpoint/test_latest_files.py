"""Small files that several threads write: the last content stays (S7)."""

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.storage.checkpoint.latest_files import LatestFiles
from penstock.storage.disk import OsDisk
from tests.support.storage.crash_disk import CrashDisk, CrashMode


@pytest.fixture
def disk() -> CrashDisk:
    disk = CrashDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


def test_written_content_is_durable(disk: CrashDisk) -> None:
    files = LatestFiles(disk)
    task = files.begin_write({"/d/a": b"1", "/d/b": b"2"})
    assert not files.is_durable
    task.run()
    assert task.error is None
    assert files.is_durable
    image = disk.image(CrashMode.DURABLE)
    assert [image.read_file("/d/a"), image.read_file("/d/b")] == [b"1", b"2"]
    assert image.names("/d") == ["a", "b"]


def test_older_content_does_not_replace_newer_content(disk: CrashDisk) -> None:
    files = LatestFiles(disk)
    older, newer = files.begin_write({"/d/a": b"old"}), files.begin_write({"/d/a": b"new"})
    newer.write()
    before = disk.operations
    older.write()
    assert disk.operations == before
    assert disk.read_file("/d/a") == b"new"


def test_an_error_is_kept_and_the_next_one_writes(disk: CrashDisk) -> None:
    files = LatestFiles(disk)
    disk.fail("sync", "/d/*", errno.EIO)
    task = files.begin_write({"/d/a": b"1"})
    task.run()
    assert task.error is not None
    assert not files.is_durable
    with pytest.raises(OSError, match="Input/output"):
        task.write()
    disk.heal()
    files.begin_write({"/d/a": b"2"}).write()
    assert disk.read_file("/d/a") == b"2"


def test_threads_that_write_at_the_same_time(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    files = LatestFiles(OsDisk())
    contents = [b"%02d" % n * 100 for n in range(40)]
    tasks = [files.begin_write({path: content}) for content in contents]
    together = threading.Barrier(4)

    def write(worker: int) -> None:
        together.wait(60)
        for n in range(worker, 40, 4):
            tasks[n].write()
            assert Path(path).read_bytes() >= contents[n], "nothing newer is lost"

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, worker) for worker in range(4)]:
            done.result(10)
    assert Path(path).read_bytes() == b"39" * 100
