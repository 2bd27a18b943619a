"""Partitions of keys: the compiled and the pure Python module agree."""

from array import array
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records import _murmur2
from tests.support.storage.batches import payloads
from tests.support.storage.compiled_modules import outcome, same


def same_hash(key: bytes, count: int) -> None:
    same(_murmur2, lambda module: (module.murmur2(key), module.partition_of_key(key, count)))


@settings(max_examples=200)
@given(
    st.lists(payloads, max_size=12),
    st.integers(-1, 7),
    st.integers(-1, 13),
    st.integers(-1, 13),
    st.integers(-1, 1),
)
def test_both_modules_partition_keys_alike(
    keys: list[bytes | None], count: int, start: int, stop: int, more_ends: int
) -> None:
    def sort(module: ModuleType) -> object:
        order = memoryview(array("i", [-1] * len(keys)))
        ends = memoryview(array("i", [-1] * max(0, count + 1 + more_ends)))
        made = outcome(lambda: module.partition_keys(keys, start, stop, count, order, ends))
        return made, list(order), list(ends)

    same(_murmur2, sort)
    for key in filter(None, keys):
        same_hash(key, count)


@pytest.mark.parametrize("wrong", ["text", bytearray(b"x"), memoryview(b"x"), 7])
def test_keys_that_are_not_bytes_are_rejected(wrong: object) -> None:
    """The type is checked before any data is read."""
    order = memoryview(array("i", [0]))
    ends = memoryview(array("i", [0, 0]))
    for call in (
        lambda module: module.murmur2(wrong),
        lambda module: module.partition_of_key(wrong, 3),
        lambda module: module.partition_keys([wrong], 0, 1, 1, order, ends),
    ):
        assert same(_murmur2, call)[0] == "TypeError"
