"""Batches appended lately."""

import pytest

from penstock.storage.segment.batch_scan import BatchLocation
from penstock.storage.segment.recent_batches import MIN_BATCHES, RecentBatches

SIZE = 100


def filled(count: int) -> RecentBatches:
    """Batches of three offsets, with gaps of two between them."""
    recent = RecentBatches()
    for number in range(count):
        recent.add(number * 5, number * 5 + 2, number * SIZE)
    return recent


def test_a_batch_is_found_by_its_first_offset_alone() -> None:
    recent = filled(3)
    assert recent.find(5, 3 * SIZE) == BatchLocation(SIZE, SIZE, 7)
    assert recent.find(10, 3 * SIZE + 7) == BatchLocation(2 * SIZE, SIZE + 7, 12)
    for offset in (-1, 6, 7, 8, 13, 15):
        assert recent.find(offset, 3 * SIZE) is None
        assert offset not in recent
    assert [offset for offset in range(20) if offset in recent] == [0, 5, 10]


@pytest.mark.parametrize(
    "count", [MIN_BATCHES, 2 * MIN_BATCHES, 2 * MIN_BATCHES + 1, 7 * MIN_BATCHES - 1]
)
def test_only_the_last_batches_are_known(count: int) -> None:
    recent = filled(count)
    current = [number for number in range(count) if number * 5 in recent]
    assert current == list(range(current[0], count))
    assert MIN_BATCHES <= len(current) < 2 * MIN_BATCHES
    for number in current:
        assert recent.find(number * 5, count * SIZE) == BatchLocation(
            number * SIZE, SIZE, number * 5 + 2
        )


def test_all_can_be_forgotten() -> None:
    recent = filled(3)
    recent.clear()
    assert recent.find(0, SIZE) is None
    recent.add(2, 3, 50)
    assert recent.find(2, 80) == BatchLocation(50, 30, 3)
