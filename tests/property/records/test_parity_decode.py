"""Decoding: the compiled and the pure Python module agree, on valid and damaged bytes."""

from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records import _decode
from penstock.records.batch import HEADER_SIZE, compute_crc, write_crc
from penstock.records.build import build_batch
from tests.support.storage.batches import int64s, record_lists
from tests.support.storage.compiled_modules import same

varints = st.binary(min_size=1, max_size=11)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The records of a batch with a few bytes changed, removed or inserted."""
    records = draw(record_lists(min_size=1, max_size=4))
    data = bytearray(build_batch(records, base_offset=records[0].offset)[HEADER_SIZE:])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 3))
        data[at : at + size] = draw(st.binary(max_size=3) | st.sampled_from([b"\xff" * 5, b"\x80"]))
    return bytes(data)


regions = damaged() | st.binary(max_size=60) | st.lists(varints, max_size=8).map(b"".join)
counts = st.integers(0, 6) | st.sampled_from([-1, 2**31 - 1])


@settings(max_examples=150)
@given(regions, counts, int64s, int64s, st.booleans())
def test_both_modules_decode_alike(
    region: bytes, count: int, base_offset: int, base_timestamp: int, append_time: bool
) -> None:
    same(
        _decode,
        lambda hot: hot.decode_records(
            region, 0, len(region), count, base_offset, base_timestamp, 77, append_time
        ),
    )


@settings(max_examples=150)
@given(regions, counts, int64s)
def test_both_modules_scan_alike(region: bytes, count: int, base: int) -> None:
    same(_decode, lambda hot: hot.scan_records(region, 0, len(region), count, base))


@settings(max_examples=150)
@given(regions, counts, int64s, int64s, int64s, st.booleans())
def test_both_modules_decode_columns_alike(
    region: bytes, count: int, base_offset: int, start: int, end: int, append_time: bool
) -> None:
    def columns(hot: ModuleType) -> object:
        totals = memoryview(bytearray(72)).cast("q")
        hot.measure_columns(region, 0, len(region), count, base_offset, start, end, totals)
        rows, keys, _, values, _, headers, names, contents, _ = totals
        bits = bytearray((rows + 7) // 8), bytearray((rows + 7) // 8)
        outcomes = (
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
            outcomes,
            cursor,
        )
        return list(totals), [list(column) for column in outcomes], list(cursor)

    same(_decode, columns)


@st.composite
def appended(draw: st.DrawFn) -> bytearray:
    """Batches as clients send them, some with invalid header fields, mostly with a valid CRC."""
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


@settings(max_examples=150)
@given(appended(), st.integers(0, 2**62), st.integers(0, 9), int64s, int64s, st.booleans())
def test_both_modules_assign_offsets_alike(
    batch: bytearray, offset: int, epoch: int, earliest: int, latest: int, keys: bool
) -> None:
    def assign(hot: ModuleType) -> object:
        copy = bytearray(batch)
        header = hot.assign_in_place(copy, offset, epoch, 10_000, earliest, latest, keys)
        assert header is not None or copy == batch
        return header, bytes(copy)

    same(_decode, assign)
