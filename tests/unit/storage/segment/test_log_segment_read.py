"""Reads of a segment: batches by offset, records by time (S2, Q5)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.storage.logs import NOW, batch, filler, old_message
from tests.support.storage.segments import SegmentDirectory, append, at, fill, offsets_of, read


@pytest.fixture
def make(tmp_path: Path) -> Iterator[SegmentDirectory]:
    with SegmentDirectory(tmp_path) as directory:
        yield directory


# --- reading


def test_read_returns_whole_batches_up_to_the_limit(make: SegmentDirectory) -> None:
    segment = make()
    fill(segment, count=10)
    assert offsets_of(read(segment, 3, 300)) == [3, 4, 5]
    assert offsets_of(read(segment, 3, 399)) == [3, 4, 5]
    assert offsets_of(read(segment, 3, 400)) == [3, 4, 5, 6]
    assert offsets_of(read(segment, 0, 100_000)) == list(range(10))
    assert offsets_of(read(segment, 9, 100)) == [9]


@pytest.mark.parametrize("max_bytes", [0, 1, 99])
def test_read_of_less_than_a_batch(make: SegmentDirectory, max_bytes: int) -> None:
    segment = make()
    fill(segment, count=5)
    assert offsets_of(read(segment, 2, max_bytes, min_one=True)) == [2]
    result = read(segment, 2, max_bytes, min_one=False)
    assert result is not None
    assert result.size == 0


def test_read_past_the_end(make: SegmentDirectory) -> None:
    segment = make()
    assert read(segment, 0, 100) is None
    fill(segment, count=5)
    assert read(segment, 5, 100) is None


def test_read_from_the_middle_of_a_batch(make: SegmentDirectory) -> None:
    """The whole batch that contains the offset is returned: nothing is decoded."""
    segment = make()
    append(segment, batch(*[b"v"] * 10), batch(*[b"w"] * 10, base_offset=10))
    assert offsets_of(read(segment, 7, 1)) == [0]
    assert offsets_of(read(segment, 10, 1)) == [10]


def test_read_over_a_gap_returns_the_next_batches(make: SegmentDirectory) -> None:
    """S5: compaction leaves offsets without records."""
    segment = make()
    append(segment, batch(b"a"), batch(b"b", base_offset=50), batch(b"c", base_offset=70))
    assert offsets_of(read(segment, 1, 1)) == [50]
    assert offsets_of(read(segment, 50, 1)) == [50]
    assert offsets_of(read(segment, 51, 1)) == [70]
    assert read(segment, 71, 1) is None


def test_read_up_to_a_position(make: SegmentDirectory) -> None:
    """The position of the high watermark or the last stable offset in the segment."""
    segment = make()
    fill(segment, count=10)
    for max_bytes in (500, 100_000):
        data = segment.read(2, max_bytes, 500, min_one=True)
        assert offsets_of(data) == [2, 3, 4]
    nothing = segment.read(5, 1000, 500, min_one=True)
    assert nothing is not None
    assert nothing.size == 0


def test_every_read_agrees_with_the_batches(make: SegmentDirectory) -> None:
    """Every offset and limit, over batches of many sizes, with index entries between them."""
    segment = make()
    sizes = [80, 95, 200, 81, 400, 90, 150, 80, 3000, 85, 120, 99]
    offset = 0
    spans: list[tuple[int, int, int]] = []
    for n, size in enumerate(sizes):
        data = filler(size, base_offset=offset, timestamp=NOW)
        spans.append((offset, segment.size, size))
        append(segment, data)
        offset += 1 + n % 3
    end = segment.size
    for expected in range(spans[-1][0] + 1):
        at = next(n for n, (first, _, _) in enumerate(spans) if first >= expected)
        start, first_size = spans[at][1:]
        for limit in (1, 80, 81, 176, 300, 512, 1000, 3100, 5000):
            whole = [s for _, p, s in spans[at:] if p + s <= start + limit]
            result = segment.read(expected, limit, end, min_one=True)
            assert result is not None
            assert (result.position, result.size) == (start, max(sum(whole), first_size))
            exact = segment.read(expected, limit, end, min_one=False)
            assert exact is not None
            assert (exact.position, exact.size) == (start, sum(whole))


def test_the_smallest_old_messages_are_read_one_by_one(make: SegmentDirectory) -> None:
    """S1: a v0 message of 26 bytes."""
    make.path(0, ".log").write_bytes(
        b"".join(old_message(n, None, magic=0, key=b"") for n in range(10))
    )
    segment = make(create=False)
    result = read(segment, 4, 1)
    assert result is not None
    assert (result.position, result.size) == (4 * 26, 26)
    assert segment.next_offset() == 10


# --- timestamps


def test_find_timestamp(make: SegmentDirectory) -> None:
    """Q5: the first record at or after a time, for any content of the index."""
    segment = make()
    fill(segment, count=30, step_ms=10)
    for n in range(30):
        for shift in (0, -1, -9):
            record = segment.find_timestamp(NOW + 10 * n + shift, 0)
            assert record == at(NOW + 10 * n, n)
    assert segment.find_timestamp(NOW + 291, 0) is None


def test_find_timestamp_within_a_batch(make: SegmentDirectory) -> None:
    segment = make()
    append(
        segment,
        batch(b"a", b"b", b"c", timestamps=(NOW + 30, NOW + 10, NOW + 40), leader_epoch=3),
        batch(b"d", base_offset=3, timestamp=NOW + 20, leader_epoch=4),
        batch(b"e", base_offset=4, timestamp=NOW + 50, leader_epoch=4),
    )
    assert segment.find_timestamp(NOW, 0) == at(NOW + 30, 0, 3)
    assert segment.find_timestamp(NOW + 31, 0) == at(NOW + 40, 2, 3)
    assert segment.find_timestamp(NOW + 41, 0) == at(NOW + 50, 4, 4)
    assert segment.find_timestamp(NOW, 1) == at(NOW + 10, 1, 3)
    assert segment.find_timestamp(NOW + 20, 3) == at(NOW + 20, 3, 4)
    assert segment.find_timestamp(NOW, 5) is None


def test_find_max_timestamp(make: SegmentDirectory) -> None:
    """The first record that has it, not the batch's last one."""
    segment = make()
    assert segment.find_max_timestamp() is None
    fill(segment, count=10)
    append(
        segment,
        batch(b"a", b"b", b"c", base_offset=10, timestamps=(NOW, NOW + 500, NOW + 500)),
        batch(b"d", base_offset=13, timestamp=NOW + 500),
    )
    fill_from = 14
    for n in range(fill_from, fill_from + 10):
        append(segment, filler(100, base_offset=n, timestamp=NOW))
    assert segment.find_max_timestamp() == at(NOW + 500, 11)
    segment.close()
    assert make(create=False).find_max_timestamp() == at(NOW + 500, 11)


def test_old_messages_are_found_by_time(make: SegmentDirectory) -> None:
    """S1: v1 messages have a timestamp."""
    make.path(0, ".log").write_bytes(
        b"".join(old_message(n, b"v", timestamp=NOW + n) for n in range(10))
    )
    segment = make(create=False)
    assert segment.find_timestamp(NOW + 4, 0) == at(NOW + 4, 4)
