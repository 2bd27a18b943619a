"""The files of both mapped indexes (S1, S2), on a real disk and on one that crashes."""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from penstock.storage.disk import Disk, OsDisk
from penstock.storage.index.mapped_index import CorruptIndexError
from penstock.storage.index.offset_index import OffsetIndex
from penstock.storage.index.time_index import TimeIndex
from tests.support.storage.crash_disk import CrashDisk, CrashMapping, CrashMode, SimulatedCrash

BASE = 100
PATH = "/00000000000000000100.index"
Index = OffsetIndex | TimeIndex
Kind = type[OffsetIndex] | type[TimeIndex]


def fill(index: Index, count: int) -> None:
    """Entries at offsets 100, 110, 120, …"""
    for n in range(index.entries, index.entries + count):
        if isinstance(index, OffsetIndex):
            index.append(BASE + n * 10, n * 4096)
        else:
            index.maybe_append(1_000 + n, BASE + n * 10, skip_full_check=True)


def listed(index: Index) -> list[tuple[int, int]]:
    return [index.entry(n) for n in range(index.entries)]


@pytest.fixture(params=[OffsetIndex, TimeIndex])
def kind(request: pytest.FixtureRequest) -> Kind:
    result: Kind = request.param
    return result


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


def test_a_new_index_has_its_full_size_in_whole_entries(kind: Kind, disk: CrashDisk) -> None:
    """Kafka: `segment.index.bytes` rounded down to a multiple of the entry size."""
    index = kind(disk, PATH, BASE, 1003)
    assert disk.size(PATH) == index.length == {8: 1000, 12: 996}[kind.entry_size]
    assert index.max_entries == {8: 125, 12: 83}[kind.entry_size]
    assert (index.entries, index.size_in_bytes, index.is_full) == (0, 0, False)
    assert index.last_offset == BASE


def test_an_index_without_room_for_an_entry_is_refused(kind: Kind, disk: CrashDisk) -> None:
    with pytest.raises(ValueError, match=r"raise segment\.index\.bytes"):
        kind(disk, PATH, BASE, 7)
    assert not disk.exists(PATH)


def test_trim_cuts_the_empty_slots_and_resize_brings_them_back(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 3)
    before = listed(index)
    index.trim()
    assert disk.size(PATH) == index.size_in_bytes == 3 * kind.entry_size
    assert index.is_full
    assert listed(index) == before
    assert index.resize(1003)
    assert not index.resize(1003)
    assert index.max_entries > 3
    fill(index, 2)
    assert listed(index)[:3] == before
    assert index.last_offset == BASE + 40


def test_resize_never_loses_entries(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 3)
    with pytest.raises(ValueError, match="3 entries"):
        index.resize(2 * kind.entry_size)
    assert index.entries == 3


def test_a_closed_index_opens_with_its_entries(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 5)
    before = listed(index)
    index.close()
    again = kind(disk, PATH, BASE, 1003)
    assert (again.entries, again.last_offset) == (5, BASE + 40)
    assert listed(again) == before
    again.sanity_check()


def test_an_index_closed_empty_opens_empty(kind: Kind, disk: CrashDisk) -> None:
    kind(disk, PATH, BASE, 1003).close()
    assert disk.size(PATH) == 0
    index = kind(disk, PATH, BASE, 1003)
    assert (index.entries, index.max_entries, index.last_offset) == (0, 0, BASE)
    assert index.lookup(BASE + 5)[1 if kind is TimeIndex else 0] == BASE
    index.sanity_check()
    index.flush()
    index.resize(1003)
    fill(index, 1)
    assert index.entries == 1


def test_a_sealed_index_is_mapped_when_it_is_first_looked_into(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 5)
    index.close()
    maps = disk.fail("map", "*", errno.EIO, after=1)
    again = kind(disk, PATH, BASE, 1003)
    assert (again.entries, again.is_full, again.size_in_bytes) == (5, True, 5 * kind.entry_size)
    again.flush()
    again.trim()
    assert maps.calls == 0
    assert again.last_offset == BASE + 40
    assert again.lookup(BASE)
    assert maps.calls == 1


def test_after_a_crash_the_size_counts_as_entries_until_a_reset(
    kind: Kind, disk: CrashDisk
) -> None:
    """As in Kafka: the file does not tell; recovery resets indexes that were not closed."""
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 5)
    result = kind(disk.image(CrashMode.WRITTEN), PATH, BASE, 1003)
    assert result.entries == result.max_entries == 1000 // kind.entry_size
    result.reset()
    assert (result.entries, result.length) == (0, index.length)
    fill(result, 5)
    assert listed(result) == listed(index)


def test_reset_gives_a_trimmed_index_its_room_back(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 5)
    index.trim()
    index.reset()
    assert (index.entries, index.last_offset) == (0, BASE)
    fill(index, 7)
    assert index.entries == 7


@pytest.mark.parametrize(
    ("offset", "remaining"), [(0, 0), (100, 0), (101, 1), (109, 1), (110, 1), (111, 2), (999, 5)]
)
def test_truncate_to_drops_the_offset_and_all_above(
    kind: Kind, disk: CrashDisk, offset: int, remaining: int
) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 5)
    before = listed(index)
    index.truncate_to(offset)
    assert listed(index) == before[:remaining]
    assert index.last_offset == (BASE + (remaining - 1) * 10 if remaining else BASE)
    fill(index, 5 - remaining)
    assert listed(index) == before


def test_truncate_drops_all(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 5)
    index.truncate()
    assert index.entries == 0
    assert index.length == disk.size(PATH) >= 996


def test_a_length_with_a_partial_entry_is_corrupt(kind: Kind, disk: CrashDisk) -> None:
    disk.open(PATH, create=True).write_at(bytes(kind.entry_size + 3), 0)
    index = kind(disk, PATH, 0, 1003)
    with pytest.raises(CorruptIndexError, match=f"not a multiple of {kind.entry_size}"):
        index.sanity_check()
    index.reset()
    index.sanity_check()


def test_entries_out_of_range_are_refused(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 2)
    for n in (-1, 2):
        with pytest.raises(IndexError, match="which has 2"):
            index.entry(n)


def test_a_read_only_index_leaves_its_file_alone(kind: Kind, disk: CrashDisk) -> None:
    with pytest.raises(FileNotFoundError):
        kind(disk, PATH, BASE, 1003, writable=False)
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 3)
    index.trim()
    operations = disk.operations
    reader = kind(disk, PATH, BASE, 1003, writable=False)
    assert listed(reader) == listed(index)
    with pytest.raises(ValueError, match="for reading only"):
        fill(reader, 1)
    reader.close()
    assert disk.operations == operations


def test_rename_follows_a_file_that_was_renamed_already(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 1)
    index.rename_to(PATH + ".swap")
    assert disk.names("/") == [PATH[1:] + ".swap"]
    disk.rename(PATH + ".swap", PATH)
    index.rename_to(PATH)
    assert index.path == PATH
    fill(index, 1)
    index.close()
    assert disk.size(PATH) == 2 * kind.entry_size
    disk.remove(PATH)
    with pytest.raises(FileNotFoundError):
        index.rename_to("/x")


def test_delete_removes_the_file_for_good(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 1)
    index.delete()
    index.delete()
    assert index.entries == 0
    assert index.lookup(BASE)
    assert not disk.exists(PATH)


def test_close_handle_keeps_the_file_as_it_is(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    fill(index, 2)
    index.close_handle()
    index.close_handle()
    assert disk.size(PATH) == index.length > 900
    fill(index, 1)
    assert index.entries == 3


def test_blocks_are_reserved_in_growing_steps_before_they_are_written(kind: Kind) -> None:
    size = 300 << 10
    reserved: list[int] = []

    class Watched(CrashMapping):
        def reserve(self, path: str, size: int) -> None:
            reserved.append(size)
            super().reserve(path, size)

    class WatchedDisk(CrashDisk):
        def map(self, path: str, size: int, *, reserve: int = 0) -> CrashMapping:
            mapping = super().map(path, size)
            mapping.__class__ = Watched
            if reserve:
                mapping.reserve(path, reserve)
            return mapping

    index = kind(WatchedDisk(), PATH, BASE, size)
    fill(index, index.max_entries)
    index.close()
    full = size - size % kind.entry_size
    assert reserved == [4096, 12288, 28672, 61440, 126976, 192512, 258048, full]


def test_a_full_disk_is_an_error_and_no_signal(kind: Kind, disk: CrashDisk) -> None:
    """Earlier entries stay readable, and it continues once there is space."""
    index = kind(disk, PATH, BASE, 16384)
    disk.fail("reserve", PATH, errno.ENOSPC, after=1)
    count = 4096 // kind.entry_size
    fill(index, count)
    before = listed(index)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            fill(index, 1)
    assert listed(index) == before
    disk.heal()
    fill(index, 1)
    assert index.entries == count + 1
    index.close()


def test_a_full_index_is_refused(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 3 * kind.entry_size)
    fill(index, 3)
    with pytest.raises(ValueError, match="is full: it has 3 entries"):
        fill(index, 1)
    assert index.entries == 3


@pytest.mark.parametrize("sealed", [False, True])
def test_flushed_records_survive(kind: Kind, disk: CrashDisk, sealed: bool) -> None:
    """S7: also if the file was closed between the append and the flush."""
    index = kind(disk, PATH, BASE, 1003)
    disk.sync_directory("/")
    fill(index, 5)
    if sealed:
        index.close()
    index.flush()
    result = kind(disk.image(CrashMode.DURABLE), PATH, BASE, 1003)
    assert listed(result)[:5] == listed(index)
    assert result.entries == (5 if sealed else result.max_entries)


def test_a_failed_flush_is_tried_again(kind: Kind, disk: CrashDisk) -> None:
    index = kind(disk, PATH, BASE, 1003)
    disk.sync_directory("/")
    fill(index, 1)
    disk.fail("sync", "*", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        index.flush()
    disk.heal()
    index.flush()
    assert listed(kind(disk.image(CrashMode.DURABLE), PATH, BASE, 1003))[0] == index.entry(0)


@pytest.mark.parametrize("act", ["trim", "close_handle", "append"])
def test_a_flush_on_another_thread_may_meet_any_change(kind: Kind, act: str) -> None:
    """The change happens at the moment the disk syncs."""

    class Busy(CrashDisk):
        def __init__(self) -> None:
            super().__init__()
            self.concurrent_work: Callable[[], object] | None = None

        def step(self, operation: str, path: str) -> None:
            super().step(operation, path)
            if operation == "sync" and self.concurrent_work is not None:
                act, self.concurrent_work = self.concurrent_work, None
                act()

    disk = Busy()
    index = kind(disk, PATH, BASE, 1003)
    disk.sync_directory("/")
    fill(index, 3)
    disk.concurrent_work = {
        "trim": index.trim,
        "close_handle": index.close_handle,
        "append": lambda: fill(index, 1),
    }[act]
    index.flush()
    index.flush()
    durable = kind(disk.image(CrashMode.DURABLE), PATH, BASE, 1003)
    assert listed(durable)[: index.entries] == listed(index)
    assert durable.length == index.length


def test_a_rebuild_fixes_what_any_crash_leaves(kind: Kind) -> None:
    """S7: after any crash the file can be opened, reset and appended to."""

    def work(disk: Disk) -> None:
        index = kind(disk, PATH, BASE, 9000)
        fill(index, 600)
        index.flush()
        index.truncate_to(BASE + 500)
        index.trim()
        index.resize(9000)
        fill(index, 10)
        index.close()

    whole = CrashDisk()
    work(whole)
    for crash_at in range(whole.operations + 1):
        disk = CrashDisk(crash_at=crash_at)
        with suppress(SimulatedCrash):
            work(disk)
        for seed in range(10):
            image = disk.image(CrashMode.TORN, Random(seed))
            index = kind(image, PATH, BASE, 9000)
            index.reset()
            fill(index, 600)
            assert index.last_offset == BASE + 5990
            index.close()


def test_on_a_real_disk(kind: Kind, tmp_path: Path) -> None:
    """Memory-mapped (S2): an append is in the file at once, and the file can be cut under it."""
    path = str(tmp_path / "a.index")
    index = kind(OsDisk(), path, BASE, 10 << 20)
    fill(index, 3)
    size = 3 * kind.entry_size
    content = Path(path).read_bytes()
    assert len(content) > 10_000_000
    index.flush()
    index.trim()
    assert Path(path).read_bytes() == content[:size]
    index.flush()
    index.rename_to(path + ".deleted")
    assert index.last_offset == BASE + 20
    index.close()
    again = kind(OsDisk(), path + ".deleted", BASE, 10 << 20)
    assert listed(again) == listed(index)
    again.delete()
    index.close_handle()
    assert list(tmp_path.iterdir()) == []
