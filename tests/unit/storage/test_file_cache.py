"""Files that are open only while they are used: descriptors, eviction, threads, unsynced data."""

import errno
import os
import threading
from pathlib import Path

import pytest

from penstock.storage.disk import OsDisk
from penstock.storage.file_cache import CachedFile
from tests.support.storage.crash_disk import CrashDisk


def open_paths(directory: Path) -> list[str]:
    """Returns the names of the files in `directory` that this process has open."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith(f"{directory}/"):
            names.append(target.removeprefix(f"{directory}/"))
    return sorted(names)


@pytest.fixture
def disk() -> OsDisk:
    return OsDisk(max_open_files=2)


def written_file(disk: OsDisk, path: Path, content: bytes) -> CachedFile:
    path.write_bytes(content)
    return CachedFile(disk, str(path))


def test_the_least_recently_used_file_is_closed(disk: OsDisk, tmp_path: Path) -> None:
    files = [written_file(disk, tmp_path / f"{n}", b"%d" % n) for n in range(4)]
    assert open_paths(tmp_path) == []
    for n in (0, 1, 0, 2, 3):
        assert files[n].read_at(0, 1) == b"%d" % n
        assert len(open_paths(tmp_path)) <= 2
    assert "3" in open_paths(tmp_path)
    for n in range(4):
        assert files[n].read_at(0, 1) == b"%d" % n


def test_a_file_that_is_used_again_and_again_stays_open(disk: OsDisk, tmp_path: Path) -> None:
    busy = written_file(disk, tmp_path / "busy", b"busy")
    busy.read_at(0, 1)
    handle = busy.handle
    for n in range(20):
        busy.read_at(0, 1)
        written_file(disk, tmp_path / f"{n}", b"x").read_at(0, 1)
    assert busy.handle is handle


def test_a_file_with_unsynced_writes_stays_open_until_it_is_synced(
    disk: OsDisk, tmp_path: Path
) -> None:
    """The kernel may report the error of a write-back only to descriptors that were open then."""
    written = written_file(disk, tmp_path / "written", b"")
    written.write_at(b"data", 0)
    other_files = [written_file(disk, tmp_path / f"{n}", b"%d" % n) for n in range(5)]
    for other_file in other_files:
        other_file.read_at(0, 1)
    assert "written" in open_paths(tmp_path)
    assert disk.file_cache.needs_flush
    written.sync()
    for other_file in other_files:
        other_file.read_at(0, 1)
        other_file.read_at(0, 1)
    assert "written" not in open_paths(tmp_path)


def test_with_unsynced_files_only_reads_continue_and_writes_are_refused(
    disk: OsDisk, tmp_path: Path
) -> None:
    files = [written_file(disk, tmp_path / f"{n}", b"%d" % n) for n in range(4)]
    for file in files[:2]:
        file.write_at(b"data", 0)
    assert files[2].read_at(0, 1) == b"2"
    assert open_paths(tmp_path) == ["0", "1"]
    with pytest.raises(OSError, match="have unsynced data") as raised:
        files[3].write_at(b"data", 0)
    assert raised.value.errno == errno.EMFILE
    assert (tmp_path / "3").read_bytes() == b"3"
    files[0].sync()
    files[3].write_at(b"data", 0)
    assert open_paths(tmp_path) == ["1", "3"]


def test_a_failed_sync_leaves_the_file_unsynced() -> None:
    disk = CrashDisk()
    file = CachedFile(disk, "/file", create=True)
    file.write_at(b"data", 0)
    disk.fail("sync", "/file", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    assert file.is_unsynced
    assert not file.release()
    disk.heal()
    file.sync()
    assert file.release()


def test_a_file_that_is_in_use_is_closed_after_that_use(disk: OsDisk, tmp_path: Path) -> None:
    file = written_file(disk, tmp_path / "pinned", b"pinned")
    pinned = file.pin()
    for n in range(5):
        written_file(disk, tmp_path / f"{n}", b"%d" % n).read_at(0, 1)
    assert file.handle is None
    assert os.pread(pinned.fileno(), 6, 0) == b"pinned"
    del pinned
    assert "pinned" not in open_paths(tmp_path)


def test_a_closed_file_is_not_opened_again(disk: OsDisk, tmp_path: Path) -> None:
    file = written_file(disk, tmp_path / "x", b"x")
    pinned = file.pin()
    file.close()
    assert os.pread(pinned.fileno(), 1, 0) == b"x"
    del pinned
    assert open_paths(tmp_path) == []
    with pytest.raises(ValueError, match="closed"):
        file.pin()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_at(0, 1)
    with pytest.raises(ValueError, match="pinned"):
        file.fileno()


def test_a_renamed_file_is_found_under_its_new_name(disk: OsDisk, tmp_path: Path) -> None:
    file = written_file(disk, tmp_path / "old", b"content")
    file.read_at(0, 1)
    assert file.release()
    file.path = str(tmp_path / "new")
    (tmp_path / "old").rename(file.path)
    assert file.read_at(0, 7) == b"content"


def test_another_file_under_the_same_name_is_never_read(disk: OsDisk, tmp_path: Path) -> None:
    """A topic that is created again has files of the same names."""
    file = written_file(disk, tmp_path / "same", b"old")
    file.read_at(0, 1)
    assert file.release()
    (tmp_path / "same").rename(tmp_path / "elsewhere")
    (tmp_path / "same").write_bytes(b"new")
    with pytest.raises(FileNotFoundError, match="replaced by another"):
        file.read_at(0, 3)
    file.path = str(tmp_path / "elsewhere")
    assert file.read_at(0, 3) == b"old"


def test_a_lack_of_descriptors_closes_idle_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(max_open_files=100)
    files = [written_file(disk, tmp_path / f"{n}", b"%d" % n) for n in range(20)]
    for file in files:
        file.read_at(0, 1)
    allowed = len(os.listdir("/proc/self/fd"))
    os_open = os.open

    def limited_open(path: str, flags: int, mode: int = 0o777) -> int:
        if len(open_paths(tmp_path)) >= 20:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return os_open(path, flags, mode)

    monkeypatch.setattr(os, "open", limited_open)
    assert written_file(disk, tmp_path / "more", b"more").read_at(0, 4) == b"more"
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) < allowed


def test_threads_share_few_descriptors(tmp_path: Path) -> None:
    """Each thread reads the right file while the others close and open them all the time."""
    disk = OsDisk(max_open_files=3)
    files = [written_file(disk, tmp_path / f"{n}", bytes([n]) * 1000) for n in range(10)]
    wrong: list[object] = []

    def read(first: int) -> None:
        try:
            for step in range(2000):
                n = (first + step * 7) % 10
                if files[n].read_at(10, 500) != bytes([n]) * 500:
                    wrong.append(n)
        except Exception as error:  # noqa: BLE001 - the test reports it
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(open_paths(tmp_path)) <= 3


def test_writes_and_syncs_of_two_threads_never_lose_an_open_file(tmp_path: Path) -> None:
    disk = OsDisk(max_open_files=2)
    file = written_file(disk, tmp_path / "log", b"")
    other_files = [written_file(disk, tmp_path / f"{n}", b"x") for n in range(4)]
    stop = threading.Event()

    def sync_and_evict() -> None:
        while not stop.is_set():
            file.sync()
            for other_file in other_files:
                other_file.read_at(0, 1)

    thread = threading.Thread(target=sync_and_evict)
    thread.start()
    try:
        for n in range(3000):
            file.write_at(b"%08d" % n, 8 * n)
            assert file.handle is not None or not file.is_unsynced
    finally:
        stop.set()
        thread.join()
    assert (tmp_path / "log").read_bytes() == b"".join(b"%08d" % n for n in range(3000))
