"""One segment: its files, its indexes, and when it is full (S1, S2, S3)."""

from collections.abc import Iterator
from pathlib import Path
from struct import iter_unpack

import pytest

from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log_config import INT_MAX, LONG_MAX, LogConfig
from penstock.storage.segment.log_segment import LogSlice
from tests.support.storage.logs import NOW, batch, filler, records_in
from tests.support.storage.segments import CONFIG, SegmentDirectory, append, fill, offsets_of, read


@pytest.fixture
def make(tmp_path: Path) -> Iterator[SegmentDirectory]:
    with SegmentDirectory(tmp_path) as directory:
        yield directory


# --- files


def test_a_new_segment_has_three_files(make: SegmentDirectory) -> None:
    """S1: the first aborted transaction creates the transaction index."""
    segment = make(42)
    assert sorted(path.name for path in make.directory.iterdir()) == [
        "00000000000000000042.index",
        "00000000000000000042.log",
        "00000000000000000042.timeindex",
    ]
    assert segment.size == 0
    assert segment.next_offset() == 42
    assert make.size(42, ".index") == 1200
    assert make.size(42, ".timeindex") == 1200


def test_appended_batches_are_in_the_file_unchanged(make: SegmentDirectory) -> None:
    segment = make()
    parts = [batch(b"a"), batch(b"b", b"c", base_offset=1)]
    append(segment, *parts)
    assert make.path(0, ".log").read_bytes() == b"".join(parts)
    assert segment.size == sum(map(len, parts))
    assert segment.next_offset() == 3


def test_sealing_cuts_the_files_to_their_content(make: SegmentDirectory) -> None:
    """S2: an index has its full size only while it grows."""
    segment = make()
    fill(segment)
    entries = segment.indexes.offset_index.entries
    segment.seal()
    assert make.size(0, ".index") == 8 * entries
    assert make.size(0, ".timeindex") == 12 * segment.indexes.time_index.entries
    segment.indexes.make_active()
    assert make.size(0, ".index") == 1200
    assert segment.indexes.offset_index.entries == entries


def test_a_preallocated_file_is_trimmed_when_sealed(make: SegmentDirectory) -> None:
    config = LogConfig(
        segment_bytes=100_000, segment_index_bytes=1200, index_interval_bytes=150, preallocate=True
    )
    segment = make(config=config)
    assert make.size(0, ".log") == 100_000
    assert segment.size == 0
    fill(segment, count=3)
    assert make.size(0, ".log") == 100_000
    assert segment.next_offset() == 3
    assert read(segment, 3, 1000) is None, "what was only reserved is not read"
    segment.seal()
    assert make.size(0, ".log") == 300


def test_reopening_finds_everything(make: SegmentDirectory) -> None:
    segment = make(100)
    fill(segment)
    segment.close()
    again = make(100, create=False)
    assert (again.size, again.next_offset()) == (2000, 120)
    assert again.max_timestamp == NOW + 190
    assert again.max_timestamp_offset == 119
    assert again.first_timestamp == NOW
    assert offsets_of(read(again, 117, 10_000)) == [117, 118, 119]


def test_opening_a_segment_without_a_log_file_fails(make: SegmentDirectory) -> None:
    with pytest.raises(FileNotFoundError):
        make(7, create=False)


def test_suffixes_are_changed_on_every_file(make: SegmentDirectory) -> None:
    segment = make(5)
    append(segment, batch(b"a", base_offset=5))
    segment.indexes.txn_index.append(AbortedTxn(1, 5, 6, 7))
    segment.change_suffix(".deleted")
    assert sorted(path.name for path in make.directory.iterdir()) == [
        f"00000000000000000005{kind}.deleted"
        for kind in (".index", ".log", ".timeindex", ".txnindex")
    ]
    assert records_in(LogSlice(segment.file, 0, segment.size))[0].value == b"a"
    segment.delete()
    assert list(make.directory.iterdir()) == []


def test_deleting_a_segment_removes_every_file_and_no_other(make: SegmentDirectory) -> None:
    segment = make(5)
    segment.indexes.txn_index.append(AbortedTxn(1, 5, 6, 7))
    other_segment = make(50)
    segment.delete()
    assert sorted(path.name[:20] for path in make.directory.iterdir()) == [f"{50:020d}"] * 3
    assert other_segment.size == 0


def test_a_segment_of_another_suffix(make: SegmentDirectory) -> None:
    segment = make(0, suffix=".cleaned")
    append(segment, batch(b"a"))
    segment.change_suffix(".swap")
    segment.change_suffix("")
    assert make.path(0, ".log").exists()
    assert segment.suffix == ""


# --- indexes


def test_index_entries_are_added_every_interval(make: SegmentDirectory) -> None:
    """S2: an entry for the batch after more than `index.interval.bytes` of others; it has the
    batch's last offset and its start position."""
    segment = make()
    for n in range(10):
        append(segment, batch(b"v", b"v", base_offset=2 * n, timestamp=NOW + n))
    size = segment.size // 10
    # 150 bytes are passed after two batches of 75 or more, and an entry is due with the third.
    every = 150 // size + 1
    expected = [(2 * n + 1, n * size) for n in range(every, 10, every)]
    raw = make.path(0, ".index").read_bytes()
    assert list(iter_unpack(">ii", raw))[: len(expected)] == expected
    assert segment.indexes.offset_index.entries == len(expected)
    times = list(iter_unpack(">qi", make.path(0, ".timeindex").read_bytes()))
    assert times[: len(expected)] == [(NOW + n, 2 * n + 1) for n in range(every, 10, every)]


def test_each_batch_of_an_append_is_indexed_by_itself(make: SegmentDirectory) -> None:
    """S2: a follower appends many at once, and gets the same index as one at a time."""
    parts = [filler(200, base_offset=n, timestamp=NOW + n) for n in range(10)]
    one_by_one = make(0)
    append(one_by_one, *parts)
    together = make(0, suffix=".cleaned")
    append(together, bytearray(b"".join(parts)))
    for segment in (one_by_one, together):
        segment.seal()
    for kind in (".index", ".timeindex"):
        assert (
            make.path(0, kind).read_bytes() == make.path(0, f"{kind}.cleaned").read_bytes() != b""
        )


def test_many_batches_in_one_append_may_fill_the_index(make: SegmentDirectory) -> None:
    """Entries that do not fit are omitted; the batches are found nevertheless."""
    config = LogConfig(segment_index_bytes=24, index_interval_bytes=0)
    segment = make(config=config)
    parts = [filler(100, base_offset=n, timestamp=NOW + n) for n in range(20)]
    append(segment, bytearray(b"".join(parts)))
    assert segment.should_roll(config, 100, NOW, 20, NOW)
    assert segment.next_offset() == 20
    assert offsets_of(read(segment, 15, 300)) == [15, 16, 17]
    assert segment.max_timestamp == NOW + 19
    segment.seal()
    assert segment.indexes.time_index.last_entry == (NOW + 19, 19)


def test_the_largest_timestamp_is_indexed_when_sealed(make: SegmentDirectory) -> None:
    """S2: with the last offset of the first batch that has it."""
    segment = make()
    append(
        segment,
        batch(b"a", b"b", timestamps=(NOW + 5, NOW + 1)),
        batch(b"c", base_offset=2, timestamp=NOW + 5),
        batch(b"d", base_offset=3, timestamp=NOW + 2),
    )
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (NOW + 5, 1)
    segment.seal()
    assert make.path(0, ".timeindex").read_bytes() == (NOW + 5).to_bytes(8, "big") + bytes(
        [0, 0, 0, 1]
    )


def test_records_without_timestamps_leave_the_time_index_empty(make: SegmentDirectory) -> None:
    segment = make()
    for n in range(10):
        append(segment, batch(b"v", base_offset=n, timestamp=-1))
    segment.seal()
    assert make.size(0, ".timeindex") == 0
    assert segment.max_timestamp == -1
    assert segment.max_timestamp_offset == 0
    assert segment.largest_timestamp == segment.modified_ms


# --- when to roll


def test_rolls_when_the_batch_would_not_fit(make: SegmentDirectory) -> None:
    """S3: `segment.bytes`."""
    config = LogConfig(segment_bytes=1000)
    segment = make(config=config)
    append(segment, filler(600))
    assert not segment.should_roll(config, 400, NOW, 1, NOW)
    assert segment.should_roll(config, 401, NOW, 1, NOW)


def test_an_empty_segment_accepts_any_batch_that_fits(make: SegmentDirectory) -> None:
    config = LogConfig(segment_bytes=1000, segment_ms=1)
    segment = make(config=config, now_ms=NOW)
    assert not segment.should_roll(config, 1000, NOW + 10**9, 0, NOW + 10**9)


def test_rolls_by_the_time_of_the_records(make: SegmentDirectory) -> None:
    """S3: `segment.ms` counts from the first batch's largest timestamp to the new batch's."""
    config = LogConfig(segment_ms=1000)
    segment = make(config=config)
    append(segment, batch(b"a", b"b", timestamps=(NOW, NOW + 500)))
    append(segment, batch(b"c", base_offset=2, timestamp=NOW - 10_000))
    assert not segment.should_roll(config, 100, NOW + 1500, 3, NOW + 10**9)
    assert segment.should_roll(config, 100, NOW + 1501, 3, NOW)
    assert not segment.should_roll(config, 100, -1, 3, NOW + 10**9)


def test_rolls_by_the_clock_if_records_have_no_timestamp(make: SegmentDirectory) -> None:
    config = LogConfig(segment_ms=1000)
    segment = make(config=config, now_ms=NOW)
    append(segment, batch(b"a", timestamp=-1))
    assert not segment.should_roll(config, 100, -1, 1, NOW + 1000)
    assert segment.should_roll(config, 100, -1, 1, NOW + 1001)


def test_jitter_rolls_earlier(make: SegmentDirectory) -> None:
    """S3: `segment.jitter.ms` keeps the segments of many partitions from rolling at once."""
    config = LogConfig(segment_ms=1000, segment_jitter_ms=300)
    segment = make(config=config, roll_jitter_ms=300)
    append(segment, batch(b"a"))
    assert not segment.should_roll(config, 100, NOW + 700, 1, NOW)
    assert segment.should_roll(config, 100, NOW + 701, 1, NOW)


def test_the_longest_time_never_rolls(make: SegmentDirectory) -> None:
    config = LogConfig(segment_ms=LONG_MAX)
    segment = make(config=config)
    append(segment, batch(b"a", timestamp=0))
    assert not segment.should_roll(config, 100, LONG_MAX, 1, NOW)


def test_rolls_when_an_index_is_full(make: SegmentDirectory) -> None:
    """S3: the offset index, or the time index but for the slot that the roll itself needs."""
    config = LogConfig(segment_index_bytes=48, index_interval_bytes=0)
    segment = make(config=config)
    appended = 0
    while not segment.should_roll(config, 100, NOW + appended, appended, NOW):
        append(segment, filler(100, base_offset=appended, timestamp=NOW + appended))
        appended += 1
    assert segment.indexes.time_index.entries == 3
    assert segment.indexes.offset_index.entries == 3
    segment.seal()
    assert segment.indexes.time_index.last_entry == (NOW + appended - 1, appended - 1)


def test_rolls_by_a_full_offset_index(make: SegmentDirectory) -> None:
    config = LogConfig(segment_index_bytes=48, index_interval_bytes=0)
    segment = make(config=config)
    appended = 0
    while not segment.should_roll(config, 100, NOW, appended, NOW):
        append(segment, filler(100, base_offset=appended, timestamp=NOW))
        appended += 1
    assert segment.indexes.offset_index.entries == 6
    assert segment.indexes.time_index.entries == 1


def test_rolls_before_an_offset_too_far_for_an_index(make: SegmentDirectory) -> None:
    """S3: offsets in an index are relative, in 4 bytes."""
    segment = make(1000)
    assert not segment.should_roll(CONFIG, 100, NOW, 1000 + INT_MAX, NOW)
    assert segment.should_roll(CONFIG, 100, NOW, 1000 + INT_MAX + 1, NOW)


def test_a_reopened_segment_rolls_by_its_first_batch(make: SegmentDirectory) -> None:
    config = LogConfig(segment_ms=1000)
    segment = make(config=config)
    append(segment, batch(b"a", timestamp=NOW), batch(b"b", base_offset=1, timestamp=NOW + 900))
    segment.close()
    again = make(config=config, create=False, now_ms=NOW + 5000)
    again.indexes.make_active()
    assert not again.should_roll(config, 100, NOW + 1000, 2, NOW + 5000)
    assert again.should_roll(config, 100, NOW + 1001, 2, NOW + 5000)
