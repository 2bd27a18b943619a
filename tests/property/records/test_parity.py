"""The compiled hot loop and the plain Python of it do the same, on good bytes and on bad ones."""

from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import KafkaError
from penstock.records import _hot
from penstock.records._hot import Filler
from penstock.records.batch import HEADER_SIZE, compute_crc, write_crc
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.batches import header_lists, int64s, payloads, record_lists
from tests.support.hot import load_plain

PLAIN = load_plain()

varints = st.binary(min_size=1, max_size=11)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The records of a batch with a few bytes changed, taken out or put in."""
    records = draw(record_lists(min_size=1, max_size=4))
    data = bytearray(build_batch(records, base_offset=records[0].offset)[HEADER_SIZE:])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 3))
        data[at : at + size] = draw(st.binary(max_size=3) | st.sampled_from([b"\xff" * 5, b"\x80"]))
    return bytes(data)


regions = damaged() | st.binary(max_size=60) | st.lists(varints, max_size=8).map(b"".join)
counts = st.integers(0, 6) | st.sampled_from([-1, 2**31 - 1])


def outcome(call: Callable[[], object]) -> tuple[str, object]:
    """What a call returns, or what it raises."""
    try:
        return "returned", call()
    except (KafkaError, ValueError, OverflowError, IndexError, TypeError) as error:
        kind = type(error).__name__
        return kind, str(error) if isinstance(error, KafkaError) else None


def same(call: Callable[[ModuleType], object]) -> None:
    assert outcome(lambda: call(_hot)) == outcome(lambda: call(PLAIN))


@settings(max_examples=300)
@given(regions, counts, int64s, int64s, st.booleans())
def test_decode(
    region: bytes, count: int, base_offset: int, base_timestamp: int, append_time: bool
) -> None:
    same(
        lambda hot: hot.decode_records(
            region, 0, len(region), count, base_offset, base_timestamp, 77, append_time
        )
    )


@settings(max_examples=300)
@given(regions, counts, int64s)
def test_scan(region: bytes, count: int, base: int) -> None:
    same(lambda hot: hot.scan_records(region, 0, len(region), count, base))


@settings(max_examples=300)
@given(regions, counts, int64s, int64s, int64s, st.booleans())
def test_columns(
    region: bytes, count: int, base_offset: int, start: int, end: int, append_time: bool
) -> None:
    def columns(hot: ModuleType) -> object:
        totals = memoryview(bytearray(72)).cast("q")
        hot.measure_columns(region, 0, len(region), count, base_offset, start, end, totals)
        rows, keys, _, values, _, headers, names, contents, _ = totals
        bits = bytearray((rows + 7) // 8), bytearray((rows + 7) // 8)
        made = (
            memoryview(bytearray(8 * rows)).cast("q"),
            memoryview(bytearray(8 * rows)).cast("q"),
            memoryview(bytearray(4 * rows + 4)).cast("i"),
            memoryview(bytearray(keys)),
            memoryview(bits[0]),
            memoryview(bytearray(4 * rows + 4)).cast("i"),
            memoryview(bytearray(values)),
            memoryview(bits[1]),
            memoryview(bytearray(4 * rows + 4)).cast("i"),
            memoryview(bytearray(4 * headers + 4)).cast("i"),
            memoryview(bytearray(names)),
            memoryview(bytearray(4 * headers + 4)).cast("i"),
            memoryview(bytearray(contents)),
            memoryview(bytearray((headers + 7) // 8)),
        )
        cursor = memoryview(bytearray(48)).cast("q")
        hot.fill_columns(
            region,
            0,
            len(region),
            count,
            base_offset,
            5,
            77,
            append_time,
            start,
            end,
            made,
            cursor,
        )
        return list(totals), [list(column) for column in made], list(cursor)

    same(columns)


@given(record_lists(max_size=6), int64s, int64s | st.sampled_from([0, 1]))
def test_encode(records: list[Record], base_timestamp: int, base_offset: int) -> None:
    base = records[0].offset if records and base_offset == 1 else base_offset
    same(lambda hot: hot.encode_records(records, 61, base, base_timestamp)[1:])

    def payload(hot: ModuleType) -> object:
        return bytes(hot.encode_records(records, 61, base, base_timestamp)[0])[61:]

    same(payload)


@given(
    st.integers(0, 20),
    int64s,
    st.integers(0, 2**31 - 1),
    payloads,
    payloads,
    header_lists,
)
def test_append(
    room: int,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    def append(hot: ModuleType) -> object:
        out = bytearray(room)
        end = hot.append_record(out, 0, timestamp_delta, offset_delta, key, value, headers)
        return end, bytes(out[:end])

    same(append)


@st.composite
def appended(draw: st.DrawFn) -> bytearray:
    """Batches as clients send them, some with header fields that are wrong, mostly with a CRC."""
    records = draw(record_lists(min_size=1, max_size=4, gaps=draw(st.booleans())))
    batch = build_batch(
        [record._replace(offset=record.offset - records[0].offset) for record in records]
    )
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(batch) - 1))
        batch[at] = draw(st.integers(0, 255))
    if draw(st.integers(0, 9)):
        write_crc(batch, 0, compute_crc(batch, 0, len(batch)))
    return batch


@settings(max_examples=300)
@given(appended(), st.integers(0, 2**62), st.integers(0, 9), int64s, int64s, st.booleans())
def test_assign(
    batch: bytearray, offset: int, epoch: int, earliest: int, latest: int, keys: bool
) -> None:
    def assign(hot: ModuleType) -> object:
        copy = bytearray(batch)
        header = hot.assign_in_place(copy, offset, epoch, 10_000, earliest, latest, keys)
        assert header is not None or copy == batch
        return header, bytes(copy)

    same(assign)


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


@settings(max_examples=300)
@given(rows, limits, ratios, st.integers(0, 20))
def test_filler(
    records: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    limit: int,
    ratio: float,
    close_after: int,
) -> None:
    def step(filler: Filler, number: int) -> list[object]:
        timestamp, key, value, headers = records[number]
        made = outcome(lambda: filler.append(timestamp, key, value, headers))
        between = state_of(filler)
        named = outcome(lambda: filler.append_named(Record, "o", timestamp, key, value, headers))
        return [made, between, named, type(named[1]), state_of(filler)]

    def fill(hot: ModuleType) -> object:
        filler = hot.Filler(bytearray(limit), limit, ratio)
        seen: list[object] = []
        for number in range(len(records)):
            if number == close_after:
                filler.closed = True
            seen += step(filler, number)
        filler.drop()
        return seen, len(filler.out), filler.count, filler.append(1, None, b"", ())

    same(fill)


columns_of_records = st.lists(st.tuples(payloads, payloads, st.integers(-1, 2**40)), max_size=12)


@settings(max_examples=300)
@given(columns_of_records, limits, ratios, st.booleans(), st.booleans(), header_lists, st.data())
def test_fill(
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

    def fill(hot: ModuleType) -> object:
        filler = hot.Filler(bytearray(limit), limit, ratio)
        made = outcome(lambda: filler.fill(values, keys, times, 7, headers, numbers, start, stop))
        return made, state_of(filler)

    same(fill)

    def measure(hot: ModuleType) -> object:
        sizes = memoryview(bytearray(8 * max(start, 0))).cast("i")
        return outcome(lambda: hot.measure_records(values, keys, sizes)), list(sizes)

    same(measure)


@given(payloads, payloads, header_lists)
def test_size_upper_bound(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    same(lambda hot: hot.size_upper_bound(key, value, headers))
    filler = Filler(bytearray(), 0, 0.0)
    filler.append(2**62, key, value, headers)
    assert filler.end <= _hot.size_upper_bound(key, value, headers)


def same_hash(key: bytes, count: int) -> None:
    same(lambda hot: (hot.murmur2(key), hot.partition_of_key(key, count)))


def refused(call: Callable[[ModuleType], object]) -> None:
    same(call)
    assert outcome(lambda: call(_hot))[0] == "TypeError"


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
    def sort(hot: ModuleType) -> object:
        order = memoryview(array("i", [-1] * len(keys)))
        ends = memoryview(array("i", [-1] * max(0, count + 1 + more_ends)))
        made = outcome(lambda: hot.partition_keys(keys, start, stop, count, order, ends))
        return made, list(order), list(ends)

    same(sort)
    for key in filter(None, keys):
        same_hash(key, count)


@pytest.mark.parametrize("wrong", ["text", bytearray(b"x"), memoryview(b"x"), 7])
def test_only_bytes(wrong: object) -> None:
    """What is no bytes object is refused before anything is read from it."""
    sizes = memoryview(bytearray(8)).cast("i")

    def filler(hot: ModuleType) -> Filler:
        made: Filler = hot.Filler(bytearray(99), 99, 0.0)
        return made

    values: Any = [wrong]
    one: Any = wrong
    for call in (
        lambda hot: hot.murmur2(wrong),
        lambda hot: hot.partition_of_key(wrong, 3),
        lambda hot: hot.measure_records([wrong], None, sizes),
        lambda hot: hot.measure_records([b""], [wrong], sizes),
        lambda hot: filler(hot).fill(values, None, None, 1, (), None, 0, 1),
        lambda hot: filler(hot).append(1, None, one, ()),
        lambda hot: filler(hot).append_named(Record, 0, 1, one, None, ()),
    ):
        refused(call)
