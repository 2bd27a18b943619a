"""The map from keys to their latest offsets, as it was installed and as plain Python."""

import sys
import tracemalloc
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

import penstock.storage.cleaner
from penstock.core.errors import CorruptRecordError
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.build import build_batch
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.cleaner import offset_map as installed

SEED = bytes(range(16))


def plain_python() -> ModuleType:
    """The module from its source, whether it was compiled or not."""
    path = Path(penstock.storage.cleaner.__path__[0]) / "offset_map.py"
    spec = spec_from_loader("plain_offset_map", SourceFileLoader("plain_offset_map", str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FORMS = {"installed": installed, "plain": plain_python()}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS[request.param]


def encoded(records: list[Record], base_timestamp: int = 0) -> tuple[bytes, int, int, int]:
    """The records as they are in a batch: bytes, start, end, how many."""
    batch = build_batch(records, delete_horizon_ms=base_timestamp)
    return bytes(batch), HEADER_SIZE, len(batch), len(records)


def decoded(data: bytes, count: int, base_timestamp: int = 0) -> list[Record]:
    """The records in bytes that have no header."""
    batch = bytearray(build_batch([Record(0, 0, b"", b"")]))[:HEADER_SIZE] + data
    header = read_header(batch)._replace(
        batch_length=len(batch) - 12, records_count=count, base_timestamp=base_timestamp
    )
    return read_records(batch, 0, header)


class TestKeys:
    def test_a_key_has_the_offset_that_was_put_last(self, form: ModuleType) -> None:
        offsets = form.OffsetMap(24 * 100)
        assert offsets.get(b"a") == -1
        assert offsets.put(b"a", 3)
        assert offsets.put(b"b", 5)
        assert offsets.put(b"a", 9)
        assert offsets.put(b"", 11)
        assert [offsets.get(key) for key in (b"a", b"b", b"", b"c")] == [9, 5, 11, -1]
        assert offsets.size == 3
        assert offsets.latest_offset == 11

    def test_offset_0_is_an_offset(self, form: ModuleType) -> None:
        offsets = form.OffsetMap(24 * 100)
        offsets.put(b"a", 0)
        assert offsets.get(b"a") == 0

    def test_the_largest_offset_is_one_too(self, form: ModuleType) -> None:
        offsets = form.OffsetMap(24 * 100)
        offsets.put(b"a", 2**63 - 2)
        assert offsets.get(b"a") == 2**63 - 2

    def test_it_agrees_with_a_dict_until_it_is_full(self, form: ModuleType) -> None:
        """S5: also if most slots are in use and lookups are long."""
        rng = Random(20)
        offsets = form.OffsetMap(24 * 500, 0.99, SEED)
        current: dict[bytes, int] = {}
        offset = 0
        while True:
            offset += rng.randrange(1, 4)
            key = rng.randbytes(rng.randrange(40))
            if not offsets.put(key, offset):
                break
            current[key] = offset
        assert offsets.size == len(current) == offsets.room == 495
        assert all(offsets.get(key) == value for key, value in current.items())
        assert all(offsets.get(b"other-%d" % n) == -1 for n in range(500))

    def test_advance_never_goes_back(self, form: ModuleType) -> None:
        offsets = form.OffsetMap(24 * 100)
        offsets.advance(7)
        offsets.advance(5)
        assert offsets.latest_offset == 7


class TestMemory:
    def test_a_full_map_accepts_no_key(self, form: ModuleType) -> None:
        offsets = form.OffsetMap(24 * 10, 0.5)
        assert offsets.room == 5
        for n in range(5):
            assert offsets.put(b"%d" % n, n)
        assert not offsets.put(b"5", 5)
        assert not offsets.put(b"0", 6)
        assert offsets.get(b"0") == 0
        assert offsets.latest_offset == 4

    def test_one_slot_always_stays_empty(self, form: ModuleType) -> None:
        offsets = form.OffsetMap(24 * 10, 1.0)
        assert offsets.room == 9
        for n in range(9):
            assert offsets.put(b"%d" % n, n)
        assert offsets.get(b"none") == -1

    @pytest.mark.parametrize(("memory", "load"), [(0, 0.9), (24, 0.9), (47, 1.0), (240, 0.05)])
    def test_too_little_memory_is_refused(self, form: ModuleType, memory: int, load: float) -> None:
        with pytest.raises(ValueError, match=r"raise log\.cleaner\.dedupe\.buffer\.size"):
            form.OffsetMap(memory, load)

    def test_it_uses_no_more_than_its_memory(self, form: ModuleType) -> None:
        """S5: `log.cleaner.dedupe.buffer.size` limits the memory; there is no object per key."""
        tracemalloc.start()
        try:
            offsets = form.OffsetMap(24 * 5000)
            for n in range(offsets.room):
                offsets.put(b"key-%d" % n, n)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert offsets.size == 4500
        assert offsets.memory == 24 * 5000
        assert peak < 10_000

    def test_a_dict_would_need_many_times_the_memory(self) -> None:
        current = {b"%016d" % n: 10**12 + n for n in range(1000)}
        entries = sum(sys.getsizeof(key) + sys.getsizeof(value) for key, value in current.items())
        assert (entries + sys.getsizeof(current)) / 1000 > 4 * installed.BYTES_PER_ENTRY

    def test_a_seed_has_16_bytes(self, form: ModuleType) -> None:
        with pytest.raises(ValueError, match="16 bytes, not 3"):
            form.OffsetMap(1000, seed=b"abc")


RECORDS = [
    Record(0, 100, b"a", b"1"),
    Record(1, 101, None, b"no key"),
    Record(2, 102, b"b", None),
    Record(3, 99, b"a", b"2", (("name", b"value"), ("none", None))),
    Record(4, 103, b"c", b""),
]


class TestBatches:
    def test_keys_are_put_from_an_offset_on(self, form: ModuleType) -> None:
        offsets = form.OffsetMap(24 * 100)
        assert offsets.put_records(*encoded(RECORDS), 1000, 1001) == 5
        assert [offsets.get(key) for key in (b"a", b"b", b"c")] == [1003, 1002, 1004]
        assert offsets.size == 3
        assert offsets.put_records(*encoded(RECORDS[:1]), 2000, 2001) == 1
        assert offsets.get(b"a") == 1003

    def test_a_full_map_returns_where_it_stopped(self, form: ModuleType) -> None:
        offsets = form.OffsetMap(24 * 3, 0.7)
        assert offsets.put_records(*encoded(RECORDS), 0, 0) == 3
        assert offsets.latest_offset == 2
        assert offsets.get(b"a") == 0

    @pytest.mark.parametrize("cut", range(1, 30))
    def test_records_that_are_cut_off_are_refused(self, form: ModuleType, cut: int) -> None:
        data, start, end, count = encoded(RECORDS)
        offsets = form.OffsetMap(24 * 100)
        with pytest.raises(CorruptRecordError, match="of the batch at offset 10 is cut off"):
            offsets.put_records(data, start, end - cut, count, 10, 0)
        with pytest.raises(CorruptRecordError, match="of the batch at offset 10 is cut off"):
            offsets.select_records(data, start, end - cut, count, 10, 0, False, bytearray())
        with pytest.raises(CorruptRecordError):
            form.shift_timestamps(data, start, end - cut, count, 1, bytearray())

    def test_random_bytes_never_do_harm(self, form: ModuleType) -> None:
        rng = Random(21)
        offsets = form.OffsetMap(24 * 1000)
        refused = 0
        for n in range(6000):
            data = rng.randbytes(rng.randrange(60))
            location = (data, 0, len(data), 3)
            try:
                if n % 3 == 0:
                    offsets.put_records(*location, 0, 2**62)
                elif n % 3 == 1:
                    offsets.select_records(*location, 0, 0, False, bytearray())
                else:
                    form.shift_timestamps(*location, 1, bytearray())
            except CorruptRecordError:
                refused += 1
        assert refused > 5900

    def test_bounds_must_lie_in_the_buffer(self, form: ModuleType) -> None:
        offsets = form.OffsetMap(24 * 100)
        for start, end in ((0, 11), (-1, 5), (6, 5)):
            with pytest.raises(ValueError, match="in a buffer of 10 bytes"):
                offsets.put_records(bytes(10), start, end, 1, 0, 0)


class TestSelection:
    def select(
        self, form: ModuleType, *, drop: bool = False, latest: int = 4, **current: int
    ) -> tuple[tuple[int, ...], list[int]]:
        """Returns the selection for RECORDS and the offsets of the records to keep."""
        offsets = form.OffsetMap(24 * 100)
        for key, offset in sorted(current.items(), key=lambda item: item[1]):
            offsets.put(key.encode(), offset)
        offsets.advance(latest)
        out = bytearray(b"left over")
        result = offsets.select_records(*encoded(RECORDS, 50), 0, 50, drop, out)
        if result.size:
            remaining = decoded(bytes(out[: result.size]), result.kept, 50)
            assert all(record == RECORDS[record.offset] for record in remaining)
            return tuple(result), [record.offset for record in remaining]
        return tuple(result), list(range(5)) if result.kept == 5 else []

    def test_the_latest_record_of_each_key_is_kept(self, form: ModuleType) -> None:
        result, remaining = self.select(form, a=3, b=2, c=4)
        assert remaining == [2, 3, 4]
        assert result[:4] == (3, 1, 1, 103)

    def test_a_later_record_in_another_segment_counts(self, form: ModuleType) -> None:
        result, remaining = self.select(form, a=30, b=2, c=40, latest=50)
        assert remaining == [2]
        assert result[:4] == (1, 1, 1, 102)

    def test_a_key_that_is_not_in_the_map_is_kept(self, form: ModuleType) -> None:
        assert self.select(form)[1] == [0, 2, 3, 4]

    def test_tombstones_go_when_they_may(self, form: ModuleType) -> None:
        result, remaining = self.select(form, drop=True, a=3, b=2, c=4)
        assert remaining == [3, 4]
        assert result[:4] == (2, 0, 1, 103)

    def test_records_after_the_map_are_kept(self, form: ModuleType) -> None:
        _, remaining = self.select(form, drop=True, latest=1, a=1)
        assert remaining == [2, 3, 4]

    def test_nothing_is_copied_if_all_records_are_kept(self, form: ModuleType) -> None:
        result, remaining = self.select(form, latest=-1)
        assert remaining == [0, 1, 2, 3, 4]
        assert result == (5, 1, 0, 103, 0)

    def test_nothing_may_be_left(self, form: ModuleType) -> None:
        result, remaining = self.select(form, a=10, b=11, c=12, latest=12)
        assert remaining == []
        assert result == (0, 0, 1, -1, 0)


class TestShiftedTimestamps:
    @pytest.mark.parametrize("shift", [0, 1, -1, 63, -65, 10**12, -(10**15), 2**62])
    def test_only_the_timestamps_change(self, form: ModuleType, shift: int) -> None:
        out = bytearray()
        size = form.shift_timestamps(*encoded(RECORDS), shift, out)
        result = decoded(bytes(out[:size]), 5, -shift)
        assert result == RECORDS

    def test_a_record_of_many_bytes_may_need_a_longer_length(self, form: ModuleType) -> None:
        for size in (50, 57, 63, 8180, 8190, 8200):
            records = [Record(0, 5, b"k", bytes(size))]
            out = bytearray()
            filled = form.shift_timestamps(*encoded(records), -(10**12), out)
            assert decoded(bytes(out[:filled]), 1, 10**12) == records


def test_both_forms_do_the_same() -> None:
    """The compiled form and its source agree on whole batches, step by step."""
    rng = Random(22)
    plain = FORMS["plain"]
    compiled, interpreted = installed.OffsetMap(24 * 300), plain.OffsetMap(24 * 300)
    base = 0
    batches = []
    for _ in range(200):
        records = [
            Record(
                n,
                rng.randrange(10**6),
                None if rng.random() < 0.1 else b"key-%d" % rng.randrange(400),
                None if rng.random() < 0.2 else rng.randbytes(rng.randrange(200)),
            )
            for n in range(rng.randrange(1, 20))
        ]
        batches.append((base, encoded(records)))
        base += len(records)
    for base, batch in batches:
        assert compiled.put_records(*batch, base, 10) == interpreted.put_records(*batch, base, 10)
        assert (compiled.size, compiled.latest_offset) == (
            interpreted.size,
            interpreted.latest_offset,
        )
    assert compiled.size == compiled.room
    for base, batch in batches:
        remaining, right = bytearray(), bytearray()
        for drop in (False, True):
            result = compiled.select_records(*batch, base, 7, drop, remaining)
            assert tuple(result) == tuple(interpreted.select_records(*batch, base, 7, drop, right))
            assert remaining[: result.size] == right[: result.size]
        shift = rng.randrange(-(10**12), 10**12)
        size = installed.shift_timestamps(*batch, shift, remaining)
        assert size == plain.shift_timestamps(*batch, shift, right)
        assert remaining[:size] == right[:size]
