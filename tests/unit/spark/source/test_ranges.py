"""How a batch is split into tasks (D1)."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ids import TopicPartition
from penstock.spark.source.ranges import OffsetRange, split


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [range_.size for range_ in ranges]


def of(*sizes: int) -> list[OffsetRange]:
    """Returns ranges of these sizes, one for each partition."""
    return [OffsetRange("t", number, 10, 10 + size, "id") for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("ranges", "min_partitions", "max_records", "expected"),
    [
        ([5, 5], None, None, [5, 5]),
        ([5, 0, 5], None, None, [5, 5]),
        ([100], 1, None, [100]),
        ([100], 4, None, [25, 25, 25, 25]),
        ([5, 15], 4, None, [5, 5, 5, 5]),
        ([1, 100], 4, None, [1, 33, 33, 34]),
        ([103, 10], None, 50, [34, 34, 35, 10]),
        ([50], None, 50, [50]),
        ([51], None, 50, [25, 26]),
        ([50], 2, 50, [25, 25]),
        ([1], 4, None, [1]),
        ([2, 3], 10**11, None, [1, 1, 1, 1, 1]),
        ([0], 4, 10, []),
    ],
)
def test_ranges_are_split_as_by_spark(
    ranges: list[int], min_partitions: int | None, max_records: int | None, expected: list[int]
) -> None:
    assert sizes(split(of(*ranges), min_partitions, max_records)) == expected


batches = st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 10_000)), max_size=8)


@given(batches, st.none() | st.integers(1, 50), st.none() | st.integers(1, 1_000))
def test_every_offset_is_read_once(
    starts_and_sizes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [
        OffsetRange("t", number, start, start + size, "id")
        for number, (start, size) in enumerate(starts_and_sizes)
    ]
    parts = split(ranges, min_partitions, max_records)
    read: dict[TopicPartition, list[OffsetRange]] = defaultdict(list)
    for part in parts:
        assert part.size > 0
        assert part.topic_id == "id"
        assert max_records is None or part.size <= max_records
        read[part.topic_partition].append(part)
    for offset_range in ranges:
        at = offset_range.start
        for part in sorted(read[offset_range.topic_partition], key=lambda part: part.start):
            assert part.start == at
            at = part.end
        assert at == offset_range.end
