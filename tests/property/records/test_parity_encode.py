"""Encoding: the compiled and the pure Python module agree."""

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records import _encode
from penstock.records._encode import Filler
from penstock.records.batch import HEADER_SIZE
from penstock.records.record import Record
from tests.support.storage.batches import header_lists, int64s, payloads, record_lists
from tests.support.storage.compiled_modules import outcome, same


@given(record_lists(max_size=6), int64s, int64s | st.sampled_from([0, 1]))
def test_both_modules_encode_alike(
    records: list[Record], base_timestamp: int, base_offset: int
) -> None:
    base = records[0].offset if records and base_offset == 1 else base_offset
    same(_encode, lambda module: module.encode_records(records, 61, base, base_timestamp)[1:])

    def payload(module: ModuleType) -> object:
        return bytes(module.encode_records(records, 61, base, base_timestamp)[0])[61:]

    same(_encode, payload)


@given(
    st.integers(0, 20),
    int64s,
    st.integers(0, 2**31 - 1),
    payloads,
    payloads,
    header_lists,
)
def test_both_modules_append_alike(
    room: int,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    def append(module: ModuleType) -> object:
        out = bytearray(room)
        end = module.append_record(out, 0, timestamp_delta, offset_delta, key, value, headers)
        return end, bytes(out[:end])

    same(_encode, append)


rows = st.lists(
    st.tuples(st.integers(-2, 2**63 - 1) | st.just(5), payloads, payloads, header_lists),
    max_size=12,
)
limits = st.integers(0, 600)
ratios = st.sampled_from([0.0, 0.3, 1.05])


def state_of(filler: Filler) -> tuple[object, ...]:
    return (
        filler.end,
        filler.count,
        filler.base_timestamp,
        filler.max_timestamp,
        filler.estimated_size(),
        filler.is_full(),
        bytes(filler.out[HEADER_SIZE : filler.end]),
    )


@settings(max_examples=150)
@given(rows, limits, ratios, st.integers(0, 20))
def test_both_fillers_append_alike(
    records: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    limit: int,
    ratio: float,
    close_after: int,
) -> None:
    def step(filler: Filler, number: int) -> list[object]:
        timestamp, key, value, headers = records[number]
        outcome_of_call = outcome(lambda: filler.append(timestamp, key, value, headers))
        between = state_of(filler)
        named = outcome(lambda: filler.append_named(Record, "o", timestamp, key, value, headers))
        return [outcome_of_call, between, named, type(named[1]), state_of(filler)]

    def fill(module: ModuleType) -> object:
        filler = module.Filler(bytearray(limit), limit, ratio)
        results: list[object] = []
        for number in range(len(records)):
            if number == close_after:
                filler.closed = True
            results += step(filler, number)
        filler.drop()
        return results, len(filler.out), filler.count, filler.append(1, None, b"", ())

    same(_encode, fill)


columns_of_records = st.lists(st.tuples(payloads, payloads, st.integers(-1, 2**40)), max_size=12)


@settings(max_examples=150)
@given(columns_of_records, limits, ratios, st.booleans(), st.booleans(), header_lists, st.data())
def test_both_fillers_fill_alike(
    records: list[tuple[bytes | None, bytes | None, int]],
    limit: int,
    ratio: float,
    with_keys: bool,
    with_timestamps: bool,
    headers: tuple[tuple[str, bytes | None], ...],
    data: st.DataObject,
) -> None:
    keys = [key for key, _, _ in records] if with_keys else None
    values = [value for _, value, _ in records]
    times = memoryview(array("q", [time for _, _, time in records])) if with_timestamps else None
    order = data.draw(st.none() | st.lists(st.integers(-1, len(records)), max_size=12))
    numbers = None if order is None else memoryview(array("i", order))
    start = data.draw(st.integers(-1, 13))
    stop = data.draw(st.integers(-1, 13))

    def fill(module: ModuleType) -> object:
        filler = module.Filler(bytearray(limit), limit, ratio)
        made = outcome(lambda: filler.fill(values, keys, times, 7, headers, numbers, start, stop))
        return made, state_of(filler)

    same(_encode, fill)

    def measure(module: ModuleType) -> object:
        sizes = memoryview(bytearray(8 * max(start, 0))).cast("i")
        return outcome(lambda: module.measure_records(values, keys, sizes)), list(sizes)

    same(_encode, measure)


@given(payloads, payloads, header_lists)
def test_both_modules_compute_the_same_size_bound(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    same(_encode, lambda module: module.size_upper_bound(key, value, headers))
    filler = Filler(bytearray(), 0, 0.0)
    filler.append(2**62, key, value, headers)
    assert filler.end <= _encode.size_upper_bound(key, value, headers)


@pytest.mark.parametrize("wrong", ["text", bytearray(b"x"), memoryview(b"x"), 7])
def test_values_that_are_not_bytes_are_rejected(wrong: object) -> None:
    """The type is checked before any data is read."""
    sizes = memoryview(bytearray(8)).cast("i")

    def filler(module: ModuleType) -> Filler:
        made: Filler = module.Filler(bytearray(99), 99, 0.0)
        return made

    values: Any = [wrong]
    argument: Any = wrong
    for call in (
        lambda module: module.measure_records([wrong], None, sizes),
        lambda module: module.measure_records([b""], [wrong], sizes),
        lambda module: filler(module).fill(values, None, None, 1, (), None, 0, 1),
        lambda module: filler(module).append(1, None, argument, ()),
        lambda module: filler(module).append_named(Record, 0, 1, argument, None, ()),
    ):
        assert same(_encode, call)[0] == "TypeError"
