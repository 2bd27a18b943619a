"""Decoding of consumer records: the compiled and the plain module agree."""

from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import CorruptRecordError
from penstock.records import _decode
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.storage.batches import golden, header_lists, payloads, timestamps
from tests.support.storage.compiled_modules import load_plain


class Consumed(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


def consumed(
    hot: ModuleType, batch: bytes, from_offset: int = 0, *, append_time: int | None = None
) -> list[Consumed]:
    header = read_header(batch)
    result: list[Consumed] = hot.decode_consumed(
        batch,
        HEADER_SIZE,
        len(batch),
        header.records_count,
        header.base_offset,
        header.base_timestamp,
        append_time or 0,
        append_time is not None,
        from_offset,
        Consumed,
        "topic",
        3,
        1,
        7,
    )
    return result


rows = st.lists(st.tuples(timestamps, payloads, payloads, header_lists), min_size=1, max_size=10)
BOTH = pytest.mark.parametrize("hot", [_decode, load_plain(_decode)], ids=["imported", "plain"])


@BOTH
@given(rows=rows, base=st.integers(0, 2**62), skipped=st.integers(0, 5))
def test_the_same_as_records(
    hot: ModuleType,
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    base: int,
    skipped: int,
) -> None:
    records = [Record(base + index, *row) for index, row in enumerate(rows)]
    batch = bytes(build_batch(records, base_offset=base))
    assert consumed(hot, batch, base + skipped) == [
        (
            "topic",
            3,
            record.offset,
            record.timestamp,
            1,
            record.key,
            record.value,
            record.headers,
            7,
        )
        for record in records[skipped:]
    ]


@BOTH
def test_append_time(hot: ModuleType) -> None:
    result = consumed(hot, golden("v2")["plain"], append_time=55)
    assert [record.timestamp for record in result] == [55] * 5
    assert type(result[0]) is Consumed


@BOTH
def test_broken_records(hot: ModuleType) -> None:
    batch = bytearray(golden("v2")["plain"])
    batch[HEADER_SIZE] = 0x7F
    with pytest.raises(CorruptRecordError, match="record 0 of the batch"):
        consumed(hot, bytes(batch))
    with pytest.raises(CorruptRecordError, match="bytes follow"):
        consumed(hot, golden("v2")["plain"] + b"\x00")
