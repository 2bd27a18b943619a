"""Java's hash codes of strings and partitions."""

import pytest

from penstock.core.java_hash import string_hash, table_size


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
def test_the_hash_of_a_string_is_javas(text: str, expected: int) -> None:
    assert string_hash(text) == expected % (1 << 32)


@pytest.mark.parametrize(("entries", "size"), [(0, 16), (12, 16), (13, 32), (24, 32), (25, 64)])
def test_a_table_is_filled_to_three_quarters(entries: int, size: int) -> None:
    assert table_size(entries) == size
