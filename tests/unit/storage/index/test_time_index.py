"""The time index (S1, S2): Kafka's bytes, and lookups compared with a sorted list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.index.mapped_index import CorruptIndexError, InvalidOffsetError
from penstock.storage.index.time_index import TimeIndex
from tests.support.storage.crash_disk import CrashDisk

PATH = "/00000000000000000100.timeindex"
BASE = 100

KAFKA = bytes.fromhex("0000018bcfe56800000000000000018bcfe5687b00000028000001a3185c50007fffffff")
"""Written by TimeIndex of Kafka 4.3.1, base offset 100, trimmed: the appends below."""

KAFKA_APPENDS = [
    (1700000000000, 100),
    (1700000000123, 140),
    (1700000000123, 150),
    (1800000000000, 2147483747),
]


def make(entries: list[tuple[int, int]], base: int = BASE) -> TimeIndex:
    index = TimeIndex(CrashDisk(), PATH, base, 12 * (len(entries) + 2))
    for timestamp, offset in entries:
        index.maybe_append(timestamp, offset)
    return index


def test_writes_the_bytes_that_kafka_writes() -> None:
    """A timestamp that is not larger than the last one creates no entry."""
    disk = CrashDisk()
    index = TimeIndex(disk, PATH, BASE, 1003)
    for timestamp, offset in KAFKA_APPENDS:
        index.maybe_append(timestamp, offset)
    index.close()
    assert disk.read_file(PATH) == KAFKA


def test_reads_the_bytes_that_kafka_wrote() -> None:
    disk = CrashDisk()
    disk.open(PATH, create=True).write_at(KAFKA, 0)
    index = TimeIndex(disk, PATH, BASE, 1003)
    assert [index.entry(n) for n in range(index.entries)] == [
        KAFKA_APPENDS[0],
        KAFKA_APPENDS[1],
        KAFKA_APPENDS[3],
    ]
    assert index.last_entry == KAFKA_APPENDS[3]
    index.sanity_check()


def test_an_empty_index_knows_no_time() -> None:
    index = make([])
    assert index.last_entry == index.lookup(0) == index.lookup(2**62) == (-1, BASE)


def test_records_without_timestamp_make_no_entry() -> None:
    index = make([(-1, 100), (-1, 200)])
    assert index.entries == 0
    index.maybe_append(0, 300)
    assert index.last_entry == (0, 300)


def test_neither_time_nor_offset_decreases() -> None:
    index = make([(1000, 150)])
    with pytest.raises(InvalidOffsetError, match="offset 149 is before 150"):
        index.maybe_append(2000, 149)
    with pytest.raises(ValueError, match="timestamp 999 is below 1000"):
        index.maybe_append(999, 160)
    index.maybe_append(1000, 170)
    index.maybe_append(1001, 150)
    assert [index.entry(n) for n in range(index.entries)] == [(1000, 150), (1001, 150)]


@pytest.mark.parametrize(
    ("timestamp", "offset", "what"),
    [(1000, BASE + 2**31, "offset"), (1000, BASE - 1, "offset"), (2**63, BASE, "timestamp")],
)
def test_numbers_that_do_not_fit_are_refused(timestamp: int, offset: int, what: str) -> None:
    index = make([])
    with pytest.raises(ValueError, match=what):
        index.maybe_append(timestamp, offset)
    assert index.entries == 0


def test_the_last_slot_is_for_the_roll() -> None:
    """Kafka: an index is full with one slot left, which a roll or a close may use."""
    index = TimeIndex(CrashDisk(), PATH, BASE, 36)
    index.maybe_append(1, 100)
    assert not index.is_full
    index.maybe_append(2, 101)
    assert index.is_full
    with pytest.raises(ValueError, match="is full"):
        index.maybe_append(3, 102)
    index.maybe_append(3, 102, skip_full_check=True)
    assert index.last_entry == (3, 102)
    with pytest.raises(ValueError, match="is full"):
        index.maybe_append(4, 103, skip_full_check=True)
    index.maybe_append(3, 103, skip_full_check=True)
    assert index.entries == 3


def test_truncate_drops_every_entry_of_an_offset() -> None:
    index = make([(1, 100), (2, 150), (3, 150), (4, 150), (5, 160)])
    index.truncate_to(150)
    assert index.last_entry == (1, 100)


def test_corrupt_ends_are_detected() -> None:
    for content, message in [
        ("00000000000003e8 00000000 00000000000003e7 00000001", "timestamp 999, below its first"),
        ("00000000000003e8 ffffffff", "offset 99, below its base offset"),
    ]:
        disk = CrashDisk()
        disk.open(PATH, create=True).write_at(bytes.fromhex(content), 0)
        with pytest.raises(CorruptIndexError, match=message):
            TimeIndex(disk, PATH, BASE, 1003).sanity_check()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=60),
    st.lists(st.integers(-5, 200), min_size=1, max_size=20),
    st.integers(0, 2**33),
)
def test_lookups_match_a_sorted_list(
    steps: list[tuple[int, int]], requested: list[int], base: int
) -> None:
    entries: list[tuple[int, int]] = []
    timestamp, offset = -1, base
    appends: list[tuple[int, int]] = []
    for time_step, offset_step in steps:
        offset += offset_step
        if time_step:
            entries.append((timestamp + time_step, offset))
        timestamp += time_step
        appends.append((timestamp, offset))
    index = make(appends, base)
    assert [index.entry(n) for n in range(index.entries)] == entries
    for target in requested:
        below = [entry for entry in entries if entry[0] <= target]
        assert index.lookup(target) == (below[-1] if below else (-1, base))
    index.truncate_to(base + requested[0])
    remaining = [entry for entry in entries if entry[1] < base + requested[0]]
    assert [index.entry(n) for n in range(index.entries)] == remaining
    assert index.last_entry == (remaining[-1] if remaining else (-1, base))


def test_lookups_are_the_same_in_the_warm_end_and_before_it() -> None:
    for count in (682, 683, 684, 685, 3000):
        index = make([(1000 + n * 2, BASE + n) for n in range(count)])
        for n in range(count):
            assert index.lookup(1000 + n * 2) == (1000 + n * 2, BASE + n)
            assert index.lookup(1001 + n * 2) == (1000 + n * 2, BASE + n)
        assert index.lookup(999) == (-1, BASE)
