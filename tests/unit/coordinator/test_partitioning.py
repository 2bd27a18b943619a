"""Which broker coordinates a group (C3)."""

import pytest

from penstock.coordinator.partitioning import java_abs, java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("console-consumer-12345", 158455506),
        ("Grüße", 69215351),
        ("😀", 1772899),
    ],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_smallest_number_has_an_absolute_value() -> None:
    assert java_abs(-2147483648) == 0
    assert java_abs(-5) == 5
    assert partition_of("polygenelubricants", 50) == 0


@pytest.mark.parametrize(("group", "partition"), [("hello", 22), ("a", 47)])
def test_the_partition_of_a_group(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition
