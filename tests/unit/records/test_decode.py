"""The hot loops in their two forms: compiled, and the same source as it is."""

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

import penstock.records
from penstock.records import _decode, _encode, _murmur2, is_compiled
from penstock.records.record import Record
from tests.support.storage.batches import golden, golden_records
from tests.support.storage.compiled_modules import load_plain

BATCH = golden("v2")["plain"]

READING = pytest.mark.parametrize("hot", [_decode, load_plain(_decode)], ids=["imported", "plain"])
WRITING = pytest.mark.parametrize("fill", [_encode, load_plain(_encode)], ids=["imported", "plain"])


def test_says_whether_it_is_compiled() -> None:
    def is_built(name: str) -> bool:
        directory = Path(penstock.records.__path__[0])
        return any(directory.joinpath(name + suffix).exists() for suffix in EXTENSION_SUFFIXES)

    assert is_compiled() is all(map(is_built, ("_encode", "_murmur2", "_decode")))


def test_plain_form_is_plain() -> None:
    for imported in (_encode, _murmur2, _decode):
        assert str(load_plain(imported).__file__).endswith(".py")
    decode = load_plain(_decode).decode_records
    assert decode(BATCH, 61, len(BATCH), 5, 0, 1_700_000_000_000, 0, False) == (
        golden_records(range(5))
    )


def test_runs_without_cython() -> None:
    """Cython is needed to build, never to run."""
    code = """
import sys
sys.modules["cython"] = None
from penstock.records import _encode, _murmur2, _decode
from tests.support.storage.compiled_modules import load_plain
fill, hash, hot = map(load_plain, (_encode, _murmur2, _decode))
out, last, latest = fill.encode_records([], 61, 0, 0)
assert (len(out), last, latest) == (61, -1, -1)
assert hot.decode_records(out, 61, 61, 0, 0, 0, 0, False) == []
assert hash.murmur2(b"21") == -973932308
assert not any(plain.cython.compiled for plain in (fill, hash, hot))
"""
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=root)


@READING
def test_ranges_outside_the_buffer(hot: ModuleType) -> None:
    for start, end in ((-1, 5), (5, 4), (0, len(BATCH) + 1)):
        with pytest.raises(IndexError, match="in a buffer of"):
            hot.scan_records(BATCH, start, end, 1, 0)
    with pytest.raises(ValueError, match="contiguous bytes"):
        hot.scan_records(memoryview(BATCH)[::2], 0, 10, 1, 0)


@WRITING
def test_positions_outside_the_buffer(fill: ModuleType) -> None:
    for position in (-1, 11):
        with pytest.raises(ValueError, match=f"position {position} in a buffer of 10"):
            fill.append_record(bytearray(10), position, 0, 0, None, None, ())


@READING
def test_signed_bytes_are_read_as_bytes(hot: ModuleType) -> None:
    """pyarrow's buffers call their bytes signed."""
    signed = memoryview(bytearray(BATCH)).cast("b")
    assert hot.scan_records(signed, 61, len(BATCH), 5, 0)[0] is True


@WRITING
@pytest.mark.parametrize("record", [(0, 0, None), [0, 0, None, None, ()]])
def test_only_records_are_written(fill: ModuleType, record: object) -> None:
    with pytest.raises(TypeError, match="expected a Record"):
        fill.encode_records([record], 61, 0, 0)


@WRITING
@pytest.mark.parametrize("data", ["text", bytearray(b"x"), 5])
def test_only_bytes_are_written(fill: ModuleType, data: object) -> None:
    for record in (Record(0, 0, data, None), Record(0, 0, None, data)):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            fill.encode_records([record], 61, 0, 0)
    with pytest.raises(TypeError):
        fill.append_record(bytearray(99), 0, 0, 0, None, None, (("name", data),))


@READING
def test_microseconds(hot: ModuleType) -> None:
    latest = (2**63 - 1) // 1000
    times = memoryview(bytearray(8 * 6)).cast("q")
    for index, time in enumerate((0, -1, 5, latest, latest + 1, -(2**63))):
        times[index] = time
    hot.to_microseconds(times)
    assert times.tolist() == [0, -1000, 5000, latest * 1000, latest * 1000, -latest * 1000]
    with pytest.raises(TypeError):
        hot.to_microseconds(b"12345678")


@READING
def test_columns_without_headers(hot: ModuleType) -> None:
    def column(kind: Literal["B", "i", "q"], size: int) -> memoryview:
        return memoryview(bytearray(size)).cast(kind)

    none, no_ends = column("B", 0), column("i", 0)
    columns = (
        column("q", 40),
        column("q", 40),
        *(column("i", 24), column("B", 1000), column("B", 1)),
        *(column("i", 24), column("B", 1000), column("B", 1)),
        no_ends,
        *(column("i", 4), none),
        *(column("i", 4), none, none),
    )
    cursor = column("q", 48)
    hot.fill_columns(
        BATCH, 61, len(BATCH), 5, 0, 1_700_000_000_000, 0, False, 0, 2**62, columns, cursor
    )
    expected = golden_records(range(5))
    assert columns[0].tolist() == [0, 1, 2, 3, 4]
    assert columns[1].tolist() == [record.timestamp for record in expected]
    assert bytes(columns[6][: cursor[2]]) == b"".join(record.value or b"" for record in expected)
    assert cursor.tolist()[3:] == [0, 0, 0]
