"""Partitions of keys: the compiled module and the plain Python of it do the same."""

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
def test_partition_keys(
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
def test_only_bytes(wrong: object) -> None:
    """What is no bytes object is refused before anything is read from it."""
    order = memoryview(array("i", [0]))
    ends = memoryview(array("i", [0, 0]))
    for call in (
        lambda module: module.murmur2(wrong),
        lambda module: module.partition_of_key(wrong, 3),
        lambda module: module.partition_keys([wrong], 0, 1, 1, order, ends),
    ):
        assert same(_murmur2, call)[0] == "TypeError"
