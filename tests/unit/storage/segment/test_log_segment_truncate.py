"""Segments that are truncated, and rebuilt after a crash (R4, S7)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import CorruptRecordError
from penstock.storage.index.transaction_index import AbortedTxn
from penstock.storage.log_config import INT_MAX, LogConfig
from penstock.storage.segment.batch_scan import scan_batches
from penstock.storage.segment.log_segment import LogSegment
from tests.support.storage.logs import NOW, batch, filler
from tests.support.storage.segments import (
    SegmentDirectory,
    append,
    at,
    fill,
    index_offsets,
    offsets_of,
    read,
)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[SegmentDirectory]:
    with SegmentDirectory(tmp_path) as directory:
        yield directory


# --- truncation


def test_truncate_at_the_start_of_a_batch(make: SegmentDirectory) -> None:
    segment = make()
    fill(segment, count=10)
    assert segment.truncate_to(4, NOW) == 600
    assert (segment.size, make.size(0, ".log")) == (400, 400)
    assert segment.next_offset() == 4
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (NOW + 30, 3)
    assert all(entry < 4 for entry in index_offsets(segment))


def test_truncate_within_a_batch_drops_the_whole_batch(make: SegmentDirectory) -> None:
    segment = make()
    append(segment, batch(*[b"v"] * 5), batch(*[b"w"] * 5, base_offset=5))
    first = len(batch(*[b"v"] * 5))
    assert segment.truncate_to(7, NOW) == segment.size or segment.size == first
    assert segment.size == first
    assert segment.next_offset() == 5


def test_truncate_beyond_the_end_cuts_nothing(make: SegmentDirectory) -> None:
    segment = make()
    fill(segment, count=10)
    assert segment.truncate_to(10, NOW) == 0
    assert segment.truncate_to(1000, NOW) == 0
    assert segment.next_offset() == 10
    assert segment.max_timestamp == NOW + 90


def test_truncating_everything_restarts_the_clock(make: SegmentDirectory) -> None:
    """S3: `segment.ms` counts from the truncation, not from truncated records."""
    config = LogConfig(segment_ms=1000)
    segment = make(config=config)
    append(segment, batch(b"a", timestamp=NOW - 10_000))
    segment.truncate_to(0, NOW)
    assert segment.size == 0
    assert segment.max_timestamp == -1
    assert segment.first_timestamp == -1
    append(segment, batch(b"b", timestamp=NOW))
    assert not segment.should_roll(config, 100, NOW + 1000, 1, NOW)


def test_truncate_then_append_again(make: SegmentDirectory) -> None:
    """The indexes continue where they were truncated, and stay sorted."""
    segment = make()
    fill(segment, count=20, step_ms=10)
    segment.seal()
    segment.truncate_to(10, NOW)
    for offset in range(10, 25):
        append(segment, filler(100, base_offset=offset, timestamp=NOW + 5 * offset))
    assert index_offsets(segment) == sorted(set(index_offsets(segment)))
    assert offsets_of(read(segment, 0, 100_000)) == list(range(25))
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (NOW + 120, 24)
    segment.seal()
    assert segment.indexes.time_index.last_entry == (NOW + 120, 24)
    assert segment.find_timestamp(NOW + 101, 0) == at(NOW + 105, 21)


def test_truncate_drops_aborted_transactions_whose_marker_is_dropped(
    make: SegmentDirectory,
) -> None:
    segment = make()
    fill(segment, count=20)
    remaining, removed = AbortedTxn(1, 0, 9, 10), AbortedTxn(2, 3, 15, 16)
    for txn in (remaining, removed):
        segment.indexes.txn_index.append(txn)
    segment.truncate_to(15, NOW)
    assert segment.indexes.txn_index.all() == [remaining]


def test_truncate_a_reopened_segment(make: SegmentDirectory) -> None:
    segment = make()
    fill(segment, count=20)
    segment.close()
    again = make(create=False)
    again.truncate_to(7, NOW)
    assert (again.max_timestamp, again.max_timestamp_offset) == (NOW + 60, 6)
    assert again.next_offset() == 7
    assert make.size(0, ".index") == 1200, "it is active again"


# --- rebuilding


def rebuild(segment: LogSegment) -> int:
    segment.begin_rebuild()
    valid = 0
    for scanned in scan_batches(segment.file, 0, segment.size, check=True):
        segment.rebuild_from(scanned)
        valid = scanned.position + scanned.header.size
    return segment.end_rebuild(valid)


def test_a_rebuilt_index_equals_the_first_one(make: SegmentDirectory) -> None:
    """S7: for any content of the files."""
    segment = make()
    fill(segment, count=40)
    append(segment, filler(100, base_offset=40, timestamp=NOW))
    segment.seal()
    before = [make.path(0, kind).read_bytes() for kind in (".index", ".timeindex")]
    segment.indexes.make_active()
    for kind in (".index", ".timeindex"):
        make.path(0, kind).write_bytes(b"\xab" * 60)
    segment.close_handlers()
    again = make(create=False)
    again.indexes.txn_index.append(AbortedTxn(1, 0, 1, 2))
    assert rebuild(again) == 0
    assert [make.path(0, kind).read_bytes() for kind in (".index", ".timeindex")] == before
    assert again.indexes.txn_index.all() == [], "the scan finds the aborted transactions again"
    assert (again.max_timestamp, again.max_timestamp_offset) == (NOW + 390, 39)


def test_a_rebuild_truncates_invalid_bytes(make: SegmentDirectory) -> None:
    segment = make()
    fill(segment, count=4)
    segment.begin_rebuild()
    assert segment.end_rebuild(200) == 200
    assert (segment.size, make.size(0, ".log")) == (200, 200)


def test_a_rebuild_with_a_smaller_index(make: SegmentDirectory) -> None:
    """`segment.index.bytes` may have been lowered since the segment was written."""
    segment = make()
    fill(segment, count=40)
    segment.close()
    again = make(create=False, config=LogConfig(segment_index_bytes=24, index_interval_bytes=150))
    assert rebuild(again) == 0
    assert again.next_offset() == 40
    assert offsets_of(read(again, 33, 200)) == [33, 34]
    assert again.find_timestamp(NOW + 330, 0) == at(NOW + 330, 33)


def test_an_index_larger_than_it_may_be_is_full(make: SegmentDirectory) -> None:
    """The same, after a clean stop: the index is kept, and the next append rolls."""
    segment = make()
    fill(segment, count=40)
    entries = segment.indexes.offset_index.entries
    segment.close()
    config = LogConfig(segment_index_bytes=24, index_interval_bytes=150)
    again = make(create=False, config=config)
    again.indexes.make_active()
    assert again.indexes.offset_index.entries == entries
    assert again.should_roll(config, 100, NOW, 40, NOW)
    assert offsets_of(read(again, 33, 200)) == [33, 34]


def test_offsets_out_of_the_segments_range_are_refused(make: SegmentDirectory) -> None:
    for offset in (5, 10 + INT_MAX + 1):
        make.path(10, ".log").write_bytes(batch(b"a", base_offset=offset))
        segment = make(10, create=False)
        with pytest.raises(Exception, match="base offset 10") as refused:
            rebuild(segment)
        assert type(refused.value).__name__ in ("CorruptRecordError", "InvalidRecordError")
        segment.close_handlers()


def test_next_offset_of_a_torn_file_is_an_error(make: SegmentDirectory) -> None:
    segment = make()
    fill(segment, count=2)
    segment.close()
    with make.path(0, ".log").open("ab") as file:
        file.write(b"\0\1\2")
    with pytest.raises(CorruptRecordError):
        make(create=False).next_offset()
