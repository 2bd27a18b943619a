"""The leader epoch cache (R4): Kafka's file, and its rules against a plain model.

`assign`, both truncations and both look-ups were compared with LeaderEpochFileCache of Kafka 4.3.1
on random histories.
"""

import errno
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.checkpoint.checkpoint_files import EpochEntry
from penstock.storage.checkpoint.leader_epoch_cache import LeaderEpochCache
from tests.support.storage.crash_disk import CrashDisk, CrashMode, SimulatedCrash

DIRECTORY = "/orders-3"
PATH = DIRECTORY + "/leader-epoch-checkpoint"


def new_disk() -> CrashDisk:
    disk = CrashDisk()
    disk.make_directory(DIRECTORY)
    disk.make_durable()
    return disk


def make(*entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(new_disk(), DIRECTORY)
    for epoch, start in entries:
        cache.assign(epoch, start)
    return cache


def test_epochs_are_kept_in_the_file() -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, DIRECTORY)
    assert not disk.exists(PATH)
    cache.assign(0, 0)
    cache.assign(3, 150)
    assert disk.read_file(PATH) == b"0\n2\n0 0\n3 150\n"
    assert disk.names(DIRECTORY) == ["leader-epoch-checkpoint"]
    again = LeaderEpochCache(disk, DIRECTORY)
    assert again.entries() == [EpochEntry(0, 0), EpochEntry(3, 150)]


def test_the_latest_the_one_before_and_the_earliest() -> None:
    cache = make()
    assert (cache.latest_entry, cache.latest_epoch) == (None, None)
    assert cache.earliest_entry is None
    cache = make((2, 10))
    assert cache.latest_epoch == 2
    cache.assign(5, 20)
    assert cache.latest_entry == (5, 20)
    assert cache.earliest_entry == (2, 10)


def test_the_same_epoch_again_costs_nothing() -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, DIRECTORY)
    cache.assign(2, 10)
    operations = disk.operations
    cache.assign(2, 10)
    cache.assign(2, 11)
    assert disk.operations == operations
    assert cache.entries() == [(2, 10)]


@pytest.mark.parametrize(
    ("new", "remaining"),
    [
        ((4, 30), [(1, 10), (3, 20), (4, 30)]),
        ((4, 20), [(1, 10), (4, 20)]),
        ((4, 15), [(1, 10), (4, 15)]),
        ((4, 10), [(4, 10)]),
        ((3, 15), [(1, 10), (3, 15)]),
        ((2, 30), [(1, 10), (2, 30)]),
        ((1, 30), [(1, 30)]),
        ((0, 5), [(0, 5)]),
    ],
)
def test_a_new_entry_removes_contradicting_entries(
    new: tuple[int, int], remaining: list[tuple[int, int]]
) -> None:
    cache = make((1, 10), (3, 20))
    cache.assign(*new)
    assert cache.entries() == remaining


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(epoch: int, start: int) -> None:
    with pytest.raises(ValueError, match=f"epoch {epoch} cannot start at {start}"):
        make().assign(epoch, start)


def test_many_are_assigned_with_one_write() -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, DIRECTORY)
    cache.assign_all([])
    assert disk.operations == new_disk().operations
    cache.assign_all([EpochEntry(1, 0), EpochEntry(2, 7), EpochEntry(3, 7)])
    assert cache.entries() == [(1, 0), (3, 7)]
    assert disk.read_file(PATH) == b"0\n2\n1 0\n3 7\n"


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),  # a follower that knows none
        (0, (0, 10)),  # older than all known
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),  # between two known ones
        (4, (4, 30)),
        (7, (7, 99)),  # the latest ends with the log
        (8, (-1, -1)),  # not known yet
    ],
)
def test_the_end_offset_of_an_epoch(epoch: int, expected: tuple[int, int]) -> None:
    """R4: the offset that a returning follower truncates to."""
    assert make((2, 10), (4, 20), (7, 30)).end_offset_for(epoch, 99) == expected


def test_an_empty_cache_knows_no_end() -> None:
    for epoch in (-1, 0, 5):
        assert make().end_offset_for(epoch, 99) == (-1, -1)


def test_the_epoch_of_an_offset() -> None:
    cache = make((2, 10), (4, 20))
    expected = {9: None, 10: 2, 19: 2, 20: 4, 1000: 4}
    assert {offset: cache.epoch_for_offset(offset) for offset in expected} == expected
    assert make().epoch_for_offset(5) is None


@pytest.mark.parametrize(
    ("end", "remaining"),
    [
        (-1, [(2, 10), (4, 20), (7, 30)]),
        (31, [(2, 10), (4, 20), (7, 30)]),
        (30, [(2, 10), (4, 20)]),
        (11, [(2, 10)]),
        (10, []),
        (0, []),
    ],
)
def test_truncation_from_the_end(end: int, remaining: list[tuple[int, int]]) -> None:
    cache = make((2, 10), (4, 20), (7, 30))
    cache.truncate_from_end(end)
    assert cache.entries() == remaining


@pytest.mark.parametrize(
    ("start", "remaining"),
    [
        (0, [(2, 10), (4, 20), (7, 30)]),
        (10, [(2, 10), (4, 20), (7, 30)]),
        (11, [(2, 11), (4, 20), (7, 30)]),
        (20, [(4, 20), (7, 30)]),
        (29, [(4, 29), (7, 30)]),
        (99, [(7, 99)]),
    ],
)
def test_truncation_from_the_start(start: int, remaining: list[tuple[int, int]]) -> None:
    cache = make((2, 10), (4, 20), (7, 30))
    cache.truncate_from_start(start)
    assert cache.entries() == remaining


def test_clear_empties_the_file() -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, DIRECTORY)
    cache.assign(2, 10)
    cache.clear()
    assert cache.entries() == []
    assert cache.is_stale
    cache.flush()
    assert not cache.is_stale
    assert disk.read_file(PATH) == b"0\n0\n"
    assert LeaderEpochCache(disk, DIRECTORY).entries() == []


def test_an_assigned_epoch_survives_every_crash() -> None:
    """R4, S7: the file has all epochs that were assigned, or also the one being assigned."""
    assigned = [(0, 0), (1, 10), (4, 25)]

    def work(disk: CrashDisk, done: list[tuple[int, int]]) -> None:
        cache = LeaderEpochCache(disk, DIRECTORY)
        for epoch, start in assigned:
            cache.assign(epoch, start)
            done.append((epoch, start))

    whole = new_disk()
    before = whole.operations
    work(whole, [])
    for crash_at in range(before, whole.operations + 1):
        disk = new_disk()
        disk.crash_at = crash_at
        done: list[tuple[int, int]] = []
        with suppress(SimulatedCrash):
            work(disk, done)
        for seed in range(20):
            result = LeaderEpochCache(disk.image(CrashMode.TORN, Random(seed)), DIRECTORY).entries()
            assert result in (done, assigned[: len(done) + 1])


def test_a_truncation_that_a_crash_undid_is_done_again_on_load() -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, DIRECTORY)
    cache.assign(2, 10)
    cache.assign(4, 20)
    disk.fail("rename", "*", errno.EIO)
    cache.truncate_from_end(15)
    with pytest.raises(OSError, match="Input/output"):
        cache.flush()
    again = LeaderEpochCache(disk.image(CrashMode.DURABLE), DIRECTORY)
    assert again.entries() == [(2, 10), (4, 20)]
    again.truncate_from_end(15)
    assert again.entries() == [(2, 10)]


def test_a_file_out_of_order_is_put_right() -> None:
    """As Kafka does on load: later lines win."""
    disk = new_disk()
    disk.open(PATH, create=True).write_at(b"0\n3\n1 10\n2 5\n3 7\n", 0)
    assert LeaderEpochCache(disk, DIRECTORY).entries() == [(2, 5), (3, 7)]


def test_a_malformed_file_is_named_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """Loading the log finds the epochs in the batches."""
    disk = new_disk()
    disk.open(PATH, create=True).write_at(b"0\n1\n1 x\n", 0)
    cache = LeaderEpochCache(disk, DIRECTORY)
    assert cache.entries() == []
    assert cache.is_stale
    assert f"{PATH}, line 3: '1 x' is not of the form" in caplog.text


LOG_END = 41

operations = st.one_of(
    st.tuples(st.just("assign"), st.integers(0, 8), st.integers(0, LOG_END - 1)),
    st.tuples(st.just("end"), st.integers(0, LOG_END), st.just(0)),
    st.tuples(st.just("start"), st.integers(0, LOG_END - 1), st.just(0)),
)


@given(st.lists(operations, max_size=30))
def test_invariants_after_any_history(history: list[tuple[str, int, int]]) -> None:
    disk = new_disk()
    cache = LeaderEpochCache(disk, DIRECTORY)
    for what, first, second in history:
        before = cache.entries()
        if what == "assign":
            cache.assign(first, second)
            assert cache.latest_epoch == first
        elif what == "end":
            cache.truncate_from_end(first)
            assert cache.entries() == [entry for entry in before if entry.start_offset < first]
        else:
            owners = [cache.epoch_for_offset(offset) for offset in range(first, LOG_END)]
            cache.truncate_from_start(first)
            assert owners == [cache.epoch_for_offset(offset) for offset in range(first, LOG_END)]
        if cache.is_stale:
            cache.flush()
        entries = cache.entries()
        for last, following in pairwise(entries):
            assert last.epoch < following.epoch
            assert last.start_offset < following.start_offset
        assert LeaderEpochCache(disk, DIRECTORY).entries() == entries, "the file says the same"
        for offset in range(entries[0].start_offset if entries else LOG_END, LOG_END):
            epoch = cache.epoch_for_offset(offset)
            assert epoch is not None
            result, end = cache.end_offset_for(epoch, LOG_END)
            assert result == epoch
            assert offset < end
            assert end == LOG_END or cache.epoch_for_offset(end) != epoch
        for epoch in range(entries[0].epoch, entries[-1].epoch) if entries else ():
            current = max(entry.epoch for entry in entries if entry.epoch <= epoch)
            assert cache.end_offset_for(epoch, LOG_END) == cache.end_offset_for(current, LOG_END)
