"""The broker that coordinates a group (C3)."""

import pytest

from penstock.coordinator.partitioning import partition_for


def test_the_smallest_hash_has_an_absolute_value_of_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@pytest.mark.parametrize(
    ("group", "partition"), [("hello", 22), ("a", 47), ("console-consumer-12345", 6)]
)
def test_a_group_is_assigned_to_kafkas_partition(group: str, partition: int) -> None:
    assert partition_for(group, 50) == partition


def test_a_negative_hash_counts_by_its_absolute_value() -> None:
    assert partition_for("orders", 1 << 31) == 1008770331, "the hash code is -1008770331"
