"""One contract for every disk: the operating system's and the one that crashes in tests."""

import errno
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.storage.disk import Disk, OsDisk, replace_file
from tests.support.storage.crash_disk import CrashDisk


class DiskDirectory:
    """A disk with an empty directory to work in."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def put(self, name: str, data: bytes) -> str:
        file = self.disk.open(self.path(name), create=True)
        file.write_at(data, 0)
        file.close()
        return self.path(name)


@pytest.fixture(params=["os", "crash"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> DiskDirectory:
    if request.param == "os":
        return DiskDirectory(OsDisk(), str(tmp_path))
    disk = CrashDisk()
    disk.make_directory("/work")
    return DiskDirectory(disk, "/work")


def test_a_file_is_created_only_with_create(location: DiskDirectory) -> None:
    path = location.path("a")
    with pytest.raises(FileNotFoundError):
        location.disk.open(path)
    location.disk.open(path, create=True).close()
    assert location.disk.exists(path)
    assert location.disk.size(path) == 0
    location.put("a", b"kept")
    location.disk.open(path, create=True).close()
    assert location.disk.read_file(path) == b"kept"


def test_writes_go_to_their_position(location: DiskDirectory) -> None:
    file = location.disk.open(location.path("a"), create=True)
    file.write_at(b"hello", 0)
    file.write_at(memoryview(b"..world")[2:], 5)
    file.write_at(bytearray(b"J"), 0)
    file.write_at(b"", 100)
    assert file.size() == 10
    assert file.read_at(0, 10) == b"Jelloworld"
    assert file.read_at(8, 10) == b"ld"
    assert file.read_at(10, 1) == b""
    assert file.read_at(1000, 1) == b""
    file.sync()
    file.close()
    assert location.disk.read_file(location.path("a")) == b"Jelloworld"


def test_a_gap_reads_as_zeros(location: DiskDirectory) -> None:
    file = location.disk.open(location.path("a"), create=True)
    file.write_at(b"x", 3)
    assert file.read_at(0, 9) == b"\0\0\0x"
    file.close()


def test_truncate_cuts_and_grows_with_zeros(location: DiskDirectory) -> None:
    path = location.put("a", b"abcdef")
    file = location.disk.open(path)
    file.truncate(2)
    assert location.disk.read_file(path) == b"ab"
    file.truncate(4)
    assert location.disk.read_file(path) == b"ab\0\0"
    file.close()


def test_reserve_grows_but_never_cuts(location: DiskDirectory) -> None:
    path = location.put("a", b"abc")
    file = location.disk.open(path)
    file.reserve(8)
    assert location.disk.read_file(path) == b"abc\0\0\0\0\0"
    file.reserve(2)
    assert file.size() == 8
    file.close()


def test_a_closed_file_is_refused_and_may_be_closed_again(location: DiskDirectory) -> None:
    file = location.disk.open(location.path("a"), create=True)
    file.close()
    file.close()
    with pytest.raises(OSError) as caught:
        file.write_at(b"x", 0)
    assert caught.value.errno == errno.EBADF


def test_an_open_file_survives_its_name(location: DiskDirectory) -> None:
    path = location.put("a", b"abc")
    file = location.disk.open(path)
    location.disk.rename(path, location.path("b"))
    file.write_at(b"X", 0)
    assert location.disk.read_file(location.path("b")) == b"Xbc"
    location.disk.remove(location.path("b"))
    assert file.read_at(0, 3) == b"Xbc"
    file.close()


def test_a_mapping_creates_and_grows_a_file_and_writes_through(location: DiskDirectory) -> None:
    path = location.path("a")
    mapping = location.disk.map(path, 16)
    assert location.disk.size(path) == 16
    assert len(mapping.buffer) == 16
    mapping.reserve(path, 8)
    struct.pack_into(">q", mapping.buffer, 0, 258)
    assert location.disk.read_file(path) == bytes(6) + b"\1\2" + bytes(8)
    mapping.close()
    mapping.close()
    again = location.disk.map(path, 24)
    assert struct.unpack_from(">q", again.buffer, 0) == (258,)
    assert location.disk.size(path) == 24
    again.close()


def test_a_mapping_sees_writes_to_its_file(location: DiskDirectory) -> None:
    path = location.put("a", bytes(8))
    mapping = location.disk.map(path, 8)
    mapping.reserve(path, 8)
    file = location.disk.open(path)
    file.write_at(b"\7", 3)
    assert mapping.buffer[3] == 7
    file.close()
    mapping.close()


def test_names_are_sorted(location: DiskDirectory) -> None:
    location.put("b", b"")
    location.put("a", b"12")
    location.disk.make_directory(location.path("c/d"))
    location.disk.make_directory(location.path("c"))
    assert location.disk.names(location.directory) == ["a", "b", "c"]
    assert location.disk.names(location.path("c")) == ["d"]
    assert location.disk.is_directory(location.path("c"))
    assert not location.disk.is_directory(location.path("a"))
    assert not location.disk.is_directory(location.path("none"))
    assert not location.disk.exists(location.path("a/x"))
    assert location.disk.size(location.path("a")) == 2
    with pytest.raises(FileNotFoundError):
        location.disk.names(location.path("none"))
    with pytest.raises(NotADirectoryError):
        location.disk.names(location.path("a"))


def test_a_directory_is_not_a_file(location: DiskDirectory) -> None:
    location.disk.make_directory(location.path("c"))
    path = location.put("a", b"")
    with pytest.raises(IsADirectoryError):
        location.disk.open(location.path("c"))
    with pytest.raises(IsADirectoryError):
        location.disk.read_file(location.path("c"))
    with pytest.raises(FileExistsError):
        location.disk.make_directory(path)


@pytest.mark.parametrize("call", ["size", "read_file", "modified_ms", "sync_directory"])
def test_missing_keys_are_not_found(location: DiskDirectory, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(location.disk, call)(location.path("none"))


def test_a_file_needs_its_directory(location: DiskDirectory) -> None:
    with pytest.raises(FileNotFoundError):
        location.disk.open(location.path("none/a"), create=True)


def test_rename_replaces_a_file(location: DiskDirectory) -> None:
    location.put("a", b"new")
    location.put("b", b"old")
    location.disk.rename(location.path("a"), location.path("b"))
    assert location.disk.names(location.directory) == ["b"]
    assert location.disk.read_file(location.path("b")) == b"new"
    with pytest.raises(FileNotFoundError):
        location.disk.rename(location.path("a"), location.path("c"))


def test_rename_moves_a_directory_with_its_content(location: DiskDirectory) -> None:
    location.disk.make_directory(location.path("t-0"))
    location.put("t-0/a", b"x")
    location.disk.rename(location.path("t-0"), location.path("t-0-delete"))
    assert location.disk.read_file(location.path("t-0-delete/a")) == b"x"
    assert not location.disk.exists(location.path("t-0"))


def test_rename_between_directories(location: DiskDirectory) -> None:
    location.disk.make_directory(location.path("x"))
    location.put("a", b"1")
    location.disk.rename(location.path("a"), location.path("x/b"))
    assert location.disk.names(location.directory) == ["x"]
    assert location.disk.read_file(location.path("x/b")) == b"1"


def test_rename_refuses_to_mix_files_and_directories(location: DiskDirectory) -> None:
    path = location.put("a", b"")
    location.disk.make_directory(location.path("full/x"))
    location.disk.make_directory(location.path("other"))
    with pytest.raises(IsADirectoryError):
        location.disk.rename(path, location.path("other"))
    with pytest.raises(NotADirectoryError):
        location.disk.rename(location.path("other"), path)
    with pytest.raises(OSError) as caught:
        location.disk.rename(location.path("other"), location.path("full"))
    assert caught.value.errno == errno.ENOTEMPTY


def test_remove_ignores_a_missing_file(location: DiskDirectory) -> None:
    path = location.put("a", b"")
    location.disk.remove(path)
    location.disk.remove(path)
    assert location.disk.names(location.directory) == []
    location.disk.make_directory(location.path("c"))
    with pytest.raises(IsADirectoryError):
        location.disk.remove(location.path("c"))


def test_remove_directory_removes_its_content(location: DiskDirectory) -> None:
    location.disk.make_directory(location.path("c/d"))
    location.put("c/d/a", b"x")
    location.put("c/b", b"x")
    location.disk.remove_directory(location.path("c"))
    location.disk.remove_directory(location.path("c"))
    assert location.disk.names(location.directory) == []
    path = location.put("a", b"")
    with pytest.raises(NotADirectoryError):
        location.disk.remove_directory(path)


def test_the_time_of_a_file_can_be_set(location: DiskDirectory) -> None:
    path = location.put("a", b"")
    location.disk.set_modified_ms(path, 1_600_000_000_123)
    assert location.disk.modified_ms(path) == 1_600_000_000_123
    location.put("a", b"x")
    assert location.disk.modified_ms(path) > 1_600_000_000_123


def test_a_lock_is_held_once(location: DiskDirectory) -> None:
    path = location.path(".lock")
    lock = location.disk.lock(path)
    assert lock is not None
    assert location.disk.lock(path) is None
    lock.release()
    again = location.disk.lock(path)
    assert again is not None
    again.release()
    assert location.disk.exists(path)


def test_a_lock_keeps_out_programs_with_locks_of_the_other_kind(tmp_path: Path) -> None:
    """S1: Apache Kafka locks its directories with POSIX record locks, which Java's are."""
    path = str(tmp_path / ".lock")
    take = (
        "import fcntl, sys\n"
        "try:\n"
        "    fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError:\n"
        "    sys.exit(3)\n"
    )

    def other_program() -> int:
        return subprocess.run([sys.executable, "-c", take, path], check=False).returncode

    lock = OsDisk().lock(path)
    assert lock is not None
    assert other_program() == 3
    lock.release()
    assert other_program() == 0


def test_replace_file_leaves_no_trace_but_the_new_content(location: DiskDirectory) -> None:
    path = location.put("a", b"a longer content than the next")
    location.put("a.tmp", b"left by a crash, and longer than anything else here")
    replace_file(location.disk, path, b"short")
    assert location.disk.read_file(path) == b"short"
    assert location.disk.names(location.directory) == ["a"]


def test_only_a_real_file_has_a_descriptor(tmp_path: Path) -> None:
    """S6: `os.sendfile` needs one; code that may meet another disk reads instead."""
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    assert file.pin().fileno() > 2
    file.close()
    disk = CrashDisk()
    with pytest.raises(OSError, match="/a"):
        disk.open("/a", create=True).pin()
