"""Which segment holds an offset."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.records.batch import read_header
from penstock.storage.disk import OsDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.log_segment import LogSegment
from penstock.storage.segment.log_segments import LogSegments
from tests.support.storage.logs import NOW, filler

BASES = (10, 20, 40)


@pytest.fixture
def segments(tmp_path: Path) -> Iterator[LogSegments]:
    all_of_them = LogSegments()
    for base in (40, 10, 20):
        all_of_them.add(make(tmp_path, base))
    yield all_of_them
    for segment in all_of_them:
        segment.close_handlers()


def make(directory: Path, base_offset: int) -> LogSegment:
    config = LogConfig(segment_index_bytes=120)
    return LogSegment(OsDisk(), str(directory), base_offset, config, NOW, create=True)


def base_of(segment: LogSegment | None) -> int | None:
    return None if segment is None else segment.base_offset


def test_they_are_kept_in_the_order_of_their_base_offsets(segments: LogSegments) -> None:
    assert [segment.base_offset for segment in segments] == list(BASES)
    assert segments.base_offsets == list(BASES)
    assert (segments.first.base_offset, segments.active.base_offset) == (10, 40)
    assert len(segments) == 3


@pytest.mark.parametrize(
    ("offset", "floor", "higher"),
    [(9, None, 10), (10, 10, 20), (19, 10, 20), (20, 20, 40), (39, 20, 40), (40, 40, None)],
)
def test_neighbours(
    segments: LogSegments, offset: int, floor: int | None, higher: int | None
) -> None:
    assert base_of(segments.floor(offset)) == floor
    assert base_of(segments.higher(offset)) == higher


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, [10, 20, 40]), (10, [10, 20, 40]), (20, [20, 40]), (39, [20, 40]), (10**12, [40])],
)
def test_from_the_one_that_holds_an_offset(
    segments: LogSegments, offset: int, expected: list[int]
) -> None:
    """With an offset below all of them, all."""
    assert [segment.base_offset for segment in segments.from_floor(offset)] == expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 10, []),
        (0, 11, [10]),
        (10, 20, [10]),
        (15, 21, [10, 20]),
        (20, 40, [20]),
        (39, 1000, [20, 40]),
        (1000, 2000, [40]),
    ],
)
def test_between_two_offsets(
    segments: LogSegments, start: int, end: int, expected: list[int]
) -> None:
    assert [segment.base_offset for segment in segments.between(start, end)] == expected


def test_none_at_all() -> None:
    nothing = LogSegments()
    assert len(nothing) == nothing.size == 0
    assert nothing.floor(5) is None
    assert nothing.higher(5) is None
    assert nothing.from_floor(5) == nothing.between(0, 5) == []


def test_size_is_that_of_the_records(segments: LogSegments) -> None:
    for segment in segments:
        data = filler(100 + segment.base_offset, base_offset=segment.base_offset)
        segment.append(data, [read_header(data)])
    assert segments.size == 110 + 120 + 140


def test_removing_a_segment(segments: LogSegments) -> None:
    removed = segments.remove(20)
    removed.close_handlers()
    assert removed.base_offset == 20
    assert segments.base_offsets == [10, 40]
    with pytest.raises(ValueError):
        segments.remove(20)


def test_a_segment_replaces_one_with_the_same_base_offset(
    segments: LogSegments, tmp_path: Path
) -> None:
    """S5: a compacted segment replaces the first of those it was written from."""
    old = segments.floor(20)
    assert old is not None
    directory = tmp_path / "new"
    directory.mkdir()
    new = make(directory, 20)
    segments.add(new)
    old.close_handlers()
    assert segments.floor(25) is new
    assert segments.base_offsets == list(BASES)


def test_removing_while_going_over_them(segments: LogSegments) -> None:
    for segment in segments:
        segments.remove(segment.base_offset).close_handlers()
    assert len(segments) == 0
