"""The offset index (S1, S2): Kafka's bytes, and lookups compared with a sorted list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.index.mapped_index import CorruptIndexError, InvalidOffsetError
from penstock.storage.index.offset_index import OffsetIndex
from tests.support.storage.crash_disk import CrashDisk

PATH = "/00000000000000000100.index"
BASE = 100

KAFKA = bytes.fromhex("0000000000000000000000070000107e7fffffff7fffffff")
"""Written by OffsetIndex of Kafka 4.3.1, base offset 100, trimmed."""

KAFKA_ENTRIES = [(100, 0), (107, 4222), (2147483747, 2147483647)]


def make(entries: list[tuple[int, int]], base: int = BASE) -> OffsetIndex:
    index = OffsetIndex(CrashDisk(), PATH, base, 8 * max(len(entries) + 1, 1))
    for offset, position in entries:
        index.append(offset, position)
    return index


def test_writes_the_bytes_that_kafka_writes() -> None:
    disk = CrashDisk()
    index = OffsetIndex(disk, PATH, BASE, 1003)
    for offset, position in KAFKA_ENTRIES:
        index.append(offset, position)
    index.close()
    assert disk.read_file(PATH) == KAFKA


def test_reads_the_bytes_that_kafka_wrote() -> None:
    disk = CrashDisk()
    disk.open(PATH, create=True).write_at(KAFKA, 0)
    index = OffsetIndex(disk, PATH, BASE, 1003)
    assert [index.entry(n) for n in range(index.entries)] == KAFKA_ENTRIES
    assert index.last_offset == 2147483747
    index.sanity_check()


def test_an_empty_index_points_to_the_start() -> None:
    index = make([])
    assert index.lookup(BASE) == index.lookup(BASE + 1000) == (BASE, 0)
    assert index.lookup_position(5000) == (BASE, 0)
    assert index.fetch_upper_bound(0, 100) is None


def test_entries_below_the_first_one_point_to_the_start() -> None:
    index = make([(150, 4096)])
    assert index.lookup(149) == (BASE, 0)
    assert index.lookup(0) == (BASE, 0)
    assert index.lookup(150) == (150, 4096)


@pytest.mark.parametrize("offset", [99, 100, 149, 150])
def test_offsets_must_increase_from_the_base(offset: int) -> None:
    index = make([(150, 4096)])
    with pytest.raises(InvalidOffsetError, match=f"offset {offset} is not after 150"):
        index.append(offset, 9000)
    assert index.entries == 1


def test_the_first_entry_may_be_the_base_offset_and_not_below() -> None:
    index = make([])
    with pytest.raises(InvalidOffsetError):
        index.append(BASE - 1, 0)
    index.append(BASE, 0)
    assert index.entry(0) == (BASE, 0)


@pytest.mark.parametrize(("offset", "position"), [(BASE + 2**31, 0), (BASE + 1, 2**31)])
def test_numbers_that_do_not_fit_into_four_bytes_are_refused(offset: int, position: int) -> None:
    index = make([])
    with pytest.raises(InvalidOffsetError, match="out of range"):
        index.append(offset, position)
    assert index.entries == 0
    index.append(BASE + 1, 0)


def test_an_index_is_appended_to_after_it_was_opened() -> None:
    disk = CrashDisk()
    disk.open(PATH, create=True).write_at(KAFKA[:16], 0)
    index = OffsetIndex(disk, PATH, BASE, 1003)
    index.resize(1003)
    with pytest.raises(InvalidOffsetError):
        index.append(107, 5000)
    index.append(108, 5000)
    assert index.lookup(110) == (108, 5000)


def test_a_negative_last_entry_is_corrupt() -> None:
    disk = CrashDisk()
    disk.open(PATH, create=True).write_at(bytes.fromhex("ffffffff00000000"), 0)
    with pytest.raises(CorruptIndexError, match="offset 99, below its base offset 100"):
        OffsetIndex(disk, PATH, BASE, 1003).sanity_check()


@given(
    st.lists(st.integers(1, 50), max_size=60),
    st.lists(st.integers(-10, 3100), min_size=1, max_size=20),
    st.integers(0, 2**33),
)
def test_lookups_match_a_sorted_list(steps: list[int], requested: list[int], base: int) -> None:
    entries: list[tuple[int, int]] = []
    offset, position = base - 1, 0
    for step in steps:
        offset += step
        entries.append((offset, position))
        position += step * 3
    index = make(entries, base)
    for relative in requested:
        below = [entry for entry in entries if entry[0] <= base + relative]
        assert index.lookup(base + relative) == (below[-1] if below else (base, 0))
        before = [entry for entry in entries if entry[1] <= relative]
        assert index.lookup_position(relative) == (before[-1] if before else (base, 0))
        behind = [entry for entry in entries if entry[1] >= relative + 7]
        assert index.fetch_upper_bound(relative, 7) == (behind[0] if behind else None)
    index.truncate_to(base + requested[0])
    remaining = [entry for entry in entries if entry[0] < base + requested[0]]
    assert [index.entry(n) for n in range(index.entries)] == remaining
    assert index.last_offset == (remaining[-1][0] if remaining else base)


@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 1026, 2050, 5000])
def test_lookups_are_the_same_in_the_warm_end_and_before_it(count: int) -> None:
    """The search looks at the last 8 KiB first: both sides of that border, and all in between."""
    index = make([(BASE + n * 3, n * 5) for n in range(count)])
    for n in range(count):
        assert index.lookup(BASE + n * 3) == (BASE + n * 3, n * 5)
        assert index.lookup(BASE + n * 3 + 2) == (BASE + n * 3, n * 5)
        assert index.lookup_position(n * 5 + 4) == (BASE + n * 3, n * 5)
    assert index.lookup(BASE - 1) == (BASE, 0)
    index.truncate_to(BASE + count)
    assert index.entries == -(-count // 3)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50), st.integers(0, 50), st.booleans())
def test_extend_is_the_same_as_several_appends(
    steps: list[int], appended: int, is_trimmed: bool
) -> None:
    entries = [(BASE + sum(steps[: n + 1]), 10 * n) for n in range(len(steps))]
    expected = make(entries)
    index = OffsetIndex(CrashDisk(), PATH, BASE, 8 * (len(entries) + 1))
    for offset, position in entries[:appended]:
        index.append(offset, position)
    if is_trimmed:
        index.close_handle()
    if remaining := entries[appended:]:
        offsets, positions = zip(*remaining, strict=True)
        index.extend(offsets, positions)
    assert [index.entry(n) for n in range(index.entries)] == [
        expected.entry(n) for n in range(expected.entries)
    ]
    assert index.last_offset == expected.last_offset


def test_extend_refuses_offsets_that_do_not_increase_or_do_not_fit() -> None:
    index = make([(150, 0)])
    with pytest.raises(InvalidOffsetError, match="not after 150"):
        index.extend([150, 151], [1, 2])
    with pytest.raises(InvalidOffsetError, match="out of range"):
        index.extend([BASE + 2**31], [1])
    assert index.entries == 1
