"""The disk that forgets: what a crash may leave, and what it must not."""

import errno
import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from penstock.storage.disk import replace_file
from tests.support.storage.crash_disk import CrashDisk, CrashMode, SimulatedCrash

SEEDS = 200


def put(disk: CrashDisk, path: str, data: bytes, *, sync: bool = False) -> None:
    file = disk.open(path, create=True)
    file.write_at(data, 0)
    if sync:
        file.sync()
    file.close()


def contents(disk: CrashDisk, path: str, mode: CrashMode = CrashMode.TORN) -> set[bytes | None]:
    """All that a file may be after a crash, as far as the seeds show it; None: not there."""
    result: set[bytes | None] = set()
    for seed in range(SEEDS):
        image = disk.image(mode, Random(seed))
        result.add(image.read_file(path) if image.exists(path) else None)
    return result


def names(disk: CrashDisk, directory: str) -> set[tuple[str, ...]]:
    return {
        tuple(disk.image(CrashMode.TORN, Random(seed)).names(directory)) for seed in range(SEEDS)
    }


def with_file(content: bytes) -> CrashDisk:
    disk = CrashDisk()
    put(disk, "/a", content)
    disk.make_durable()
    return disk


def test_what_was_not_synced_is_not_durable() -> None:
    disk = with_file(b"old")
    put(disk, "/a", b"NEWER")
    assert contents(disk, "/a", CrashMode.DURABLE) == {b"old"}
    assert contents(disk, "/a", CrashMode.WRITTEN) == {b"NEWER"}
    assert disk.read_file("/a") == b"NEWER"


def test_what_was_synced_is_safe_in_every_image() -> None:
    disk = with_file(b"old")
    put(disk, "/a", b"NEWER", sync=True)
    for mode in CrashMode:
        assert contents(disk, "/a", mode) == {b"NEWER"}


def test_a_new_name_needs_its_directory_synced() -> None:
    disk = CrashDisk()
    put(disk, "/a", b"x", sync=True)
    assert contents(disk, "/a", CrashMode.DURABLE) == {None}
    assert contents(disk, "/a") == {None, b"x"}
    disk.sync_directory("/")
    for mode in CrashMode:
        assert contents(disk, "/a", mode) == {b"x"}


def test_a_synced_name_does_not_make_the_bytes_durable() -> None:
    disk = CrashDisk()
    put(disk, "/a", b"x" * 1000)
    disk.sync_directory("/")
    assert contents(disk, "/a", CrashMode.DURABLE) == {b""}


def test_a_torn_append_keeps_a_part_or_leaves_zeros() -> None:
    old = b"o" * 700
    disk = with_file(old)
    file = disk.open("/a")
    file.write_at(b"n" * 1500, 700)
    result = contents(disk, "/a")
    assert {old, old + b"n" * 1500} < result
    assert None not in result
    surviving = [content for content in result if content is not None]
    assert all(content.startswith(old) and set(content) <= set(b"on\0") for content in surviving)
    assert any(old < content < old + b"n" * 1500 and b"\0" not in content for content in surviving)
    assert any(b"\0" in content for content in surviving), "sectors may be missing"
    assert any(b"\0n" in content for content in surviving), "a later sector may be there alone"


def test_a_torn_overwrite_mixes_whole_sectors_or_a_prefix() -> None:
    disk = with_file(b"o" * 2048)
    disk.open("/a").write_at(b"n" * 2048, 0)
    for content in contents(disk, "/a"):
        assert content is not None
        assert len(content) == 2048
        sectors = {content[at : at + 512] for at in range(0, 2048, 512)}
        prefix = content.rstrip(b"o")
        assert sectors <= {b"o" * 512, b"n" * 512} or set(prefix) == set(b"n")


def test_writes_of_a_prefix_are_kept_in_their_order() -> None:
    disk = with_file(b"")
    file = disk.open("/a")
    for value in range(4):
        file.write_at(bytes([65 + value]), value)
    assert {b"", b"A", b"AB", b"ABC", b"ABCD"} <= contents(disk, "/a")


def test_a_truncation_may_or_may_not_have_happened() -> None:
    disk = with_file(b"abcdef")
    disk.open("/a").truncate(2)
    result = contents(disk, "/a")
    assert {b"ab", b"abcdef"} <= result
    assert all(content is not None and b"abcdef".startswith(content) for content in result)


def test_names_change_in_their_order() -> None:
    disk = CrashDisk()
    disk.make_directory("/f")
    put(disk, "/f/a", b"")
    put(disk, "/f/b", b"")
    disk.make_durable()
    disk.rename("/f/a", "/f/c")
    disk.remove("/f/b")
    put(disk, "/f/d", b"")
    assert names(disk, "/f") == {("a", "b"), ("b", "c"), ("c",), ("c", "d")}
    disk.sync_directory("/f")
    assert names(disk, "/f") == {("c", "d")}


def test_directories_lose_their_changes_each_on_its_own() -> None:
    disk = CrashDisk()
    disk.make_directory("/f")
    disk.make_directory("/g")
    disk.make_durable()
    put(disk, "/f/a", b"", sync=True)
    put(disk, "/g/b", b"", sync=True)
    images = [disk.image(CrashMode.TORN, Random(seed)) for seed in range(SEEDS)]
    states = {(image.exists("/f/a"), image.exists("/g/b")) for image in images}
    assert states == {(False, False), (False, True), (True, False), (True, True)}


def test_pages_of_a_mapping_survive_in_any_mixture() -> None:
    disk = CrashDisk()
    mapping = disk.map("/m", 3 * 4096)
    disk.make_durable()
    mapping.reserve("/m", 3 * 4096)
    for page in range(3):
        struct.pack_into(">i", mapping.buffer, page * 4096 + 8, 7)
    states = set()
    for content in contents(disk, "/m"):
        assert content is not None
        assert len(content) == 3 * 4096
        states.add(tuple(content[page * 4096 + 11] for page in range(3)))
    assert len(states) == 8
    assert contents(disk, "/m", CrashMode.DURABLE) == {bytes(3 * 4096)}
    disk.open("/m").sync()
    assert len(contents(disk, "/m")) == 1, "a sync of the file covers what was mapped"
    struct.pack_into(">i", mapping.buffer, 0, 7)
    assert len(contents(disk, "/m")) == 2, "what is written after a sync is not durable again"
    mapping.close()
    disk.open("/m").sync()
    assert len(contents(disk, "/m")) == 1, "a sync of the file covers what was mapped"


def test_writing_into_a_hole_of_a_mapping_is_found_out() -> None:
    disk = CrashDisk()
    mapping = disk.map("/m", 8192)
    mapping.reserve("/m", 4096)
    struct.pack_into(">i", mapping.buffer, 4092, 7)
    struct.pack_into(">i", mapping.buffer, 4096, 7)
    with pytest.raises(AssertionError, match="above the 4096 bytes reserved"):
        mapping.close()


def test_a_crash_stops_everything_from_its_operation_on() -> None:
    disk = CrashDisk(crash_at=3)
    put(disk, "/a", b"1", sync=True)
    assert disk.operations == 3
    with pytest.raises(SimulatedCrash, match="operation 3: sync_directory /"):
        disk.sync_directory("/")
    with pytest.raises(SimulatedCrash):
        put(disk, "/b", b"1")
    assert disk.crashed
    assert disk.operations == 3
    assert disk.names("/") == ["a"]
    assert not issubclass(SimulatedCrash, Exception)


def test_every_operation_counts_once() -> None:
    disk = CrashDisk()
    steps: list[tuple[str, Callable[[], object]]] = [
        ("create directories", lambda: disk.make_directory("/f/g")),
        ("create", lambda: disk.open("/f/a", create=True)),
        ("write", lambda: disk.open("/f/a").write_at(b"xy", 0)),
        ("truncate", lambda: disk.open("/f/a").truncate(1)),
        ("reserve", lambda: disk.open("/f/a").reserve(3)),
        ("sync", lambda: disk.open("/f/a").sync()),
        ("rename", lambda: disk.rename("/f/a", "/f/b")),
        ("sync_directory", lambda: disk.sync_directory("/f")),
        ("map", lambda: disk.map("/f/b", 4).close()),
        ("remove", lambda: disk.remove("/f/b")),
        ("nothing", lambda: disk.remove("/f/b")),
        ("remove directory", lambda: disk.remove_directory("/f")),
    ]
    counted: dict[str, int] = {}
    for name, run in steps:
        before = disk.operations
        run()
        counted[name] = disk.operations - before
    assert counted == {name: 1 for name, _ in steps} | {
        "create directories": 2,
        "nothing": 0,
        "remove directory": 2,
    }


def test_replace_file_survives_a_crash_anywhere() -> None:
    """S7: the old or the new content, never a mixture, and the new one once it has returned."""

    def work(disk: CrashDisk) -> None:
        replace_file(disk, "/a", b"N" * 2000)

    whole = with_file(b"o" * 1000)
    before = whole.operations
    work(whole)
    for crash_at in range(before, whole.operations + 1):
        disk = with_file(b"o" * 1000)
        disk.crash_at = crash_at
        with suppress(SimulatedCrash):
            work(disk)
        for mode in CrashMode:
            assert contents(disk, "/a", mode) <= {b"o" * 1000, b"N" * 2000}
    assert contents(disk, "/a") == {b"N" * 2000}


def test_images_are_the_same_for_the_same_seed_and_leave_the_disk_alone() -> None:
    disk = with_file(b"o" * 3000)
    put(disk, "/a", b"n" * 5000)
    put(disk, "/b", b"b" * 100)
    for seed in range(20):
        first = disk.image(CrashMode.TORN, Random(seed))
        again = disk.image(CrashMode.TORN, Random(seed))
        assert first.names("/") == again.names("/")
        assert first.read_file("/a") == again.read_file("/a")
        put(first, "/a", b"!" * 10_000)
    assert disk.read_file("/a") == b"n" * 5000
    assert contents(disk, "/a", CrashMode.DURABLE) == {b"o" * 3000}


def test_an_image_starts_durable_and_unlocked() -> None:
    disk = CrashDisk()
    put(disk, "/a", b"x")
    assert disk.lock("/.lock") is not None
    image = disk.image(CrashMode.WRITTEN)
    assert contents(image, "/a") == {b"x"}
    assert image.operations == 0
    assert image.lock("/.lock") is not None


def test_faults_strike_the_operation_and_path_they_name() -> None:
    disk = CrashDisk()
    put(disk, "/a.log", b"")
    put(disk, "/a.index", b"")
    fault = disk.fail("write", "*.log", errno.ENOSPC, after=1)
    log = disk.open("/a.log")
    log.write_at(b"fits", 0)
    with pytest.raises(OSError, match=r"/a\.log") as caught:
        log.write_at(b"does not", 4)
    assert caught.value.errno == errno.ENOSPC
    assert log.read_at(0, 100) == b"fits"
    disk.open("/a.index").write_at(b"x", 0)
    assert fault.calls == 2
    disk.heal()
    log.write_at(b"does", 4)
    assert log.size() == 8


def test_a_failing_write_may_store_a_part() -> None:
    disk = CrashDisk()
    disk.fail("write", "*", errno.ENOSPC, partial=3)
    with pytest.raises(OSError, match="No space left"):
        put(disk, "/a", b"abcdef")
    assert disk.read_file("/a") == b"abc"


@pytest.mark.parametrize(
    ("operation", "run"),
    [
        ("open", lambda disk: disk.open("/f/a")),
        ("create", lambda disk: disk.open("/f/new", create=True)),
        ("map", lambda disk: disk.map("/f/a", 8)),
        ("read", lambda disk: disk.read_file("/f/a")),
        ("truncate", lambda disk: disk.open("/f/a").truncate(0)),
        ("reserve", lambda disk: disk.map("/f/a", 8).reserve("/f/a", 8)),
        ("sync", lambda disk: disk.open("/f/a").sync()),
        ("rename", lambda disk: disk.rename("/f/a", "/f/b")),
        ("remove", lambda disk: disk.remove("/f/a")),
        ("sync_directory", lambda disk: disk.sync_directory("/f")),
    ],
)
def test_each_operation_can_fail(operation: str, run: Callable[[CrashDisk], object]) -> None:
    disk = CrashDisk()
    disk.make_directory("/f")
    put(disk, "/f/a", b"12345678")
    disk.fail(operation, "/f*", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        run(disk)
    disk.heal()
    assert disk.read_file("/f/a") == b"12345678"


def test_a_fault_that_names_no_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="'fsync' is none of create, map, names, open"):
        CrashDisk().fail("fsync", "*", errno.EIO)
