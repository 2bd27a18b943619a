"""Records and batches for tests: Kafka's own bytes, and hypothesis strategies."""

from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from penstock.core.buffers import Buffer
from penstock.records.batch import first_entry
from penstock.records.compress import DEFAULT_DECOMPRESSED_LIMIT
from penstock.records.read import read_records
from penstock.records.record import Record

GOLDEN = Path(__file__).parents[2] / "unit" / "records"

T = 1_700_000_000_000
"""The timestamp that the golden batches are built around."""


def golden(name: str) -> dict[str, bytes]:
    """The batches in `golden_<name>.txt`, one `name hex` per line, as Kafka's classes wrote them.

    v2: kafka-clients 4.4.0, MemoryRecordsBuilder with `golden_records` (or, for `…_blocks`, one
    record of 40 or 200 kB), MemoryRecords.withEndTransactionMarker and
    DefaultRecordBatch.writeEmptyHeader. legacy: kafka-clients 3.9.1, MemoryRecordsBuilder with
    magic 0 and 1 and `legacy_records`.
    """
    lines = (GOLDEN / f"golden_{name}.txt").read_text().splitlines()
    return {key: bytes.fromhex(value) for key, value in (line.split() for line in lines)}


def golden_records(offsets: range | list[int]) -> list[Record]:
    """The five records of the golden v2 batches."""
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (T, b"k0", b"v0", ()),
        (T + 5, None, None, ()),
        (T - 10, b"", b"", (("h", b"1"), ("é", None), ("", b""))),
        (-1, b"k" * 70, b"v" * 300, ()),
        (T + 10_000_000_000, None, b"z" * 200, ()),
    ]
    return [Record(offset, *row) for offset, row in zip(offsets, rows, strict=True)]


def legacy_records(base_offset: int, *, timestamps: tuple[int, int, int]) -> list[Record]:
    """The three records of the golden v0 and v1 message sets."""
    rows: list[tuple[bytes | None, bytes | None]] = [
        (b"k0", b"v0"),
        (None, None),
        (b"", b"w" * 100),
    ]
    return [
        Record(base_offset + index, timestamp, *row)
        for index, (timestamp, row) in enumerate(zip(timestamps, rows, strict=True))
    ]


int64s = st.integers(-(2**63), 2**63 - 1)
payloads = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=200)
header_lists = st.lists(
    st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=3
).map(tuple)

timestamps = (
    st.just(-1)
    | st.integers(T - 1000, T + 1000)
    | st.integers(0, 2**62)
    | st.sampled_from([0, 63, 64, 2**31, 2**63 - 1, -(2**63), -2])
)


@st.composite
def record_lists(
    draw: st.DrawFn, *, min_size: int = 0, max_size: int = 12, gaps: bool = True
) -> list[Record]:
    """Records whose offsets rise, from 0 or from anywhere, with gaps or without."""
    offset = draw(st.sampled_from([0, 1, 2**31, 2**62]))
    records = []
    for _ in range(draw(st.integers(min_size, max_size))):
        records.append(
            Record(offset, draw(timestamps), draw(payloads), draw(payloads), draw(header_lists))
        )
        offset += draw(st.sampled_from([1, 1, 1, 2, 64, 8192, 2**25])) if gaps else 1
    return records


def iter_records(
    buffer: Buffer, *, max_bytes: int = DEFAULT_DECOMPRESSED_LIMIT
) -> Iterator[Record]:
    """Yields the records of all batches in `buffer`, including those of control batches.

    The batches, of any format, must fill the buffer exactly; `max_bytes` limits each of them.
    """
    position = 0
    while position < len(buffer):
        yield from read_records(buffer, position, max_bytes=max_bytes)
        position += first_entry(buffer, position).size
