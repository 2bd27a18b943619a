"""One contract for every disk: the operating system's and the one that crashes in tests."""

import errno
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.storage.disk import Disk, OsDisk, replace_file
from tests.support.storage.crash_disk import CrashDisk


class Place:
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
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "os":
        return Place(OsDisk(), str(tmp_path))
    disk = CrashDisk()
    disk.make_directory("/work")
    return Place(disk, "/work")


def test_a_file_is_created_only_with_create(place: Place) -> None:
    path = place.path("a")
    with pytest.raises(FileNotFoundError):
        place.disk.open(path)
    place.disk.open(path, create=True).close()
    assert place.disk.exists(path)
    assert place.disk.size(path) == 0
    place.put("a", b"kept")
    place.disk.open(path, create=True).close()
    assert place.disk.read_file(path) == b"kept"


def test_writes_go_to_their_position(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
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
    assert place.disk.read_file(place.path("a")) == b"Jelloworld"


def test_a_gap_reads_as_zeros(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.write_at(b"x", 3)
    assert file.read_at(0, 9) == b"\0\0\0x"
    file.close()


def test_truncate_cuts_and_grows_with_zeros(place: Place) -> None:
    path = place.put("a", b"abcdef")
    file = place.disk.open(path)
    file.truncate(2)
    assert place.disk.read_file(path) == b"ab"
    file.truncate(4)
    assert place.disk.read_file(path) == b"ab\0\0"
    file.close()


def test_reserve_grows_but_never_cuts(place: Place) -> None:
    path = place.put("a", b"abc")
    file = place.disk.open(path)
    file.reserve(8)
    assert place.disk.read_file(path) == b"abc\0\0\0\0\0"
    file.reserve(2)
    assert file.size() == 8
    file.close()


def test_a_closed_file_is_refused_and_may_be_closed_again(place: Place) -> None:
    file = place.disk.open(place.path("a"), create=True)
    file.close()
    file.close()
    with pytest.raises(OSError) as caught:
        file.write_at(b"x", 0)
    assert caught.value.errno == errno.EBADF


def test_an_open_file_survives_its_name(place: Place) -> None:
    path = place.put("a", b"abc")
    file = place.disk.open(path)
    place.disk.rename(path, place.path("b"))
    file.write_at(b"X", 0)
    assert place.disk.read_file(place.path("b")) == b"Xbc"
    place.disk.remove(place.path("b"))
    assert file.read_at(0, 3) == b"Xbc"
    file.close()


def test_a_mapping_creates_and_grows_a_file_and_writes_through(place: Place) -> None:
    path = place.path("a")
    mapping = place.disk.map(path, 16)
    assert place.disk.size(path) == 16
    assert len(mapping.buffer) == 16
    mapping.reserve(path, 8)
    struct.pack_into(">q", mapping.buffer, 0, 258)
    assert place.disk.read_file(path) == bytes(6) + b"\1\2" + bytes(8)
    mapping.close()
    mapping.close()
    again = place.disk.map(path, 24)
    assert struct.unpack_from(">q", again.buffer, 0) == (258,)
    assert place.disk.size(path) == 24
    again.close()


def test_a_mapping_sees_writes_to_its_file(place: Place) -> None:
    path = place.put("a", bytes(8))
    mapping = place.disk.map(path, 8)
    mapping.reserve(path, 8)
    file = place.disk.open(path)
    file.write_at(b"\7", 3)
    assert mapping.buffer[3] == 7
    file.close()
    mapping.close()


def test_names_are_sorted(place: Place) -> None:
    place.put("b", b"")
    place.put("a", b"12")
    place.disk.make_directory(place.path("c/d"))
    place.disk.make_directory(place.path("c"))
    assert place.disk.names(place.directory) == ["a", "b", "c"]
    assert place.disk.names(place.path("c")) == ["d"]
    assert place.disk.is_directory(place.path("c"))
    assert not place.disk.is_directory(place.path("a"))
    assert not place.disk.is_directory(place.path("none"))
    assert not place.disk.exists(place.path("a/x"))
    assert place.disk.size(place.path("a")) == 2
    with pytest.raises(FileNotFoundError):
        place.disk.names(place.path("none"))
    with pytest.raises(NotADirectoryError):
        place.disk.names(place.path("a"))


def test_a_directory_is_not_a_file(place: Place) -> None:
    place.disk.make_directory(place.path("c"))
    path = place.put("a", b"")
    with pytest.raises(IsADirectoryError):
        place.disk.open(place.path("c"))
    with pytest.raises(IsADirectoryError):
        place.disk.read_file(place.path("c"))
    with pytest.raises(FileExistsError):
        place.disk.make_directory(path)


@pytest.mark.parametrize("call", ["size", "read_file", "modified_ms", "sync_directory"])
def test_missing_keys_are_not_found(place: Place, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(place.disk, call)(place.path("none"))


def test_a_file_needs_its_directory(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.path("none/a"), create=True)


def test_rename_replaces_a_file(place: Place) -> None:
    place.put("a", b"new")
    place.put("b", b"old")
    place.disk.rename(place.path("a"), place.path("b"))
    assert place.disk.names(place.directory) == ["b"]
    assert place.disk.read_file(place.path("b")) == b"new"
    with pytest.raises(FileNotFoundError):
        place.disk.rename(place.path("a"), place.path("c"))


def test_rename_moves_a_directory_with_its_content(place: Place) -> None:
    place.disk.make_directory(place.path("t-0"))
    place.put("t-0/a", b"x")
    place.disk.rename(place.path("t-0"), place.path("t-0-delete"))
    assert place.disk.read_file(place.path("t-0-delete/a")) == b"x"
    assert not place.disk.exists(place.path("t-0"))


def test_rename_between_directories(place: Place) -> None:
    place.disk.make_directory(place.path("x"))
    place.put("a", b"1")
    place.disk.rename(place.path("a"), place.path("x/b"))
    assert place.disk.names(place.directory) == ["x"]
    assert place.disk.read_file(place.path("x/b")) == b"1"


def test_rename_refuses_to_mix_files_and_directories(place: Place) -> None:
    path = place.put("a", b"")
    place.disk.make_directory(place.path("full/x"))
    place.disk.make_directory(place.path("other"))
    with pytest.raises(IsADirectoryError):
        place.disk.rename(path, place.path("other"))
    with pytest.raises(NotADirectoryError):
        place.disk.rename(place.path("other"), path)
    with pytest.raises(OSError) as caught:
        place.disk.rename(place.path("other"), place.path("full"))
    assert caught.value.errno == errno.ENOTEMPTY


def test_remove_ignores_a_missing_file(place: Place) -> None:
    path = place.put("a", b"")
    place.disk.remove(path)
    place.disk.remove(path)
    assert place.disk.names(place.directory) == []
    place.disk.make_directory(place.path("c"))
    with pytest.raises(IsADirectoryError):
        place.disk.remove(place.path("c"))


def test_remove_directory_removes_its_content(place: Place) -> None:
    place.disk.make_directory(place.path("c/d"))
    place.put("c/d/a", b"x")
    place.put("c/b", b"x")
    place.disk.remove_directory(place.path("c"))
    place.disk.remove_directory(place.path("c"))
    assert place.disk.names(place.directory) == []
    path = place.put("a", b"")
    with pytest.raises(NotADirectoryError):
        place.disk.remove_directory(path)


def test_the_time_of_a_file_can_be_set(place: Place) -> None:
    path = place.put("a", b"")
    place.disk.set_modified_ms(path, 1_600_000_000_123)
    assert place.disk.modified_ms(path) == 1_600_000_000_123
    place.put("a", b"x")
    assert place.disk.modified_ms(path) > 1_600_000_000_123


def test_a_lock_is_held_once(place: Place) -> None:
    path = place.path(".lock")
    lock = place.disk.lock(path)
    assert lock is not None
    assert place.disk.lock(path) is None
    lock.release()
    again = place.disk.lock(path)
    assert again is not None
    again.release()
    assert place.disk.exists(path)


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


def test_replace_file_leaves_no_trace_but_the_new_content(place: Place) -> None:
    path = place.put("a", b"a longer content than the next")
    place.put("a.tmp", b"left by a crash, and longer than anything else here")
    replace_file(place.disk, path, b"short")
    assert place.disk.read_file(path) == b"short"
    assert place.disk.names(place.directory) == ["a"]


def test_only_a_real_file_has_a_descriptor(tmp_path: Path) -> None:
    """S6: `os.sendfile` needs one; code that may meet another disk reads instead."""
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    assert file.pin().fileno() > 2
    file.close()
    disk = CrashDisk()
    with pytest.raises(OSError, match="/a"):
        disk.open("/a", create=True).pin()
