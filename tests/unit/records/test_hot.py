"""The hot loop in its two forms: compiled, and the same source as it is."""

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

import penstock.records
from penstock.records import _hot, hot_is_compiled
from penstock.records.record import Record
from tests.support.batches import golden, golden_records
from tests.support.hot import load_plain

BATCH = golden("v2")["plain"]


def test_says_whether_it_is_compiled() -> None:
    built = any(
        Path(penstock.records.__path__[0], f"_hot{suffix}").exists()
        for suffix in EXTENSION_SUFFIXES
    )
    assert hot_is_compiled() is built


def test_plain_form_is_plain() -> None:
    plain = load_plain()
    assert plain.__file__ is not None
    assert plain.__file__.endswith("_hot.py")
    assert plain.decode_records(BATCH, 61, len(BATCH), 5, 0, 1_700_000_000_000, 0, False) == (
        golden_records(range(5))
    )


def test_runs_where_cython_is_not_installed() -> None:
    """Cython is needed to build, never to run."""
    code = """
import sys
sys.modules["cython"] = None
from tests.support.hot import load_plain
plain = load_plain()
out, last, latest = plain.encode_records([], 61, 0, 0)
assert (len(out), last, latest) == (61, -1, -1)
assert plain.cython.compiled is False
"""
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=root)


@pytest.mark.parametrize("hot", [_hot, load_plain()], ids=["imported", "plain"])
def test_ranges_outside_the_buffer(hot: ModuleType) -> None:
    for start, end in ((-1, 5), (5, 4), (0, len(BATCH) + 1)):
        with pytest.raises(IndexError, match="in a buffer of"):
            hot.scan_records(BATCH, start, end, 1, 0)
    with pytest.raises(ValueError, match="one run of bytes"):
        hot.scan_records(memoryview(BATCH)[::2], 0, 10, 1, 0)
    with pytest.raises(ValueError, match="position 11 in a buffer of 10"):
        hot.append_record(bytearray(10), 11, 0, 0, None, None, ())


def test_signed_bytes_are_read_as_bytes() -> None:
    """pyarrow's buffers call their bytes signed."""
    signed = memoryview(bytearray(BATCH)).cast("b")
    for hot in (_hot, load_plain()):
        assert hot.scan_records(signed, 61, len(BATCH), 5, 0)[0] is True


@pytest.mark.parametrize("hot", [_hot, load_plain()], ids=["imported", "plain"])
@pytest.mark.parametrize("record", [(0, 0, None), [0, 0, None, None, ()]])
def test_only_records_are_written(hot: ModuleType, record: object) -> None:
    with pytest.raises(TypeError, match="a Record is needed"):
        hot.encode_records([record], 61, 0, 0)


@pytest.mark.parametrize("hot", [_hot, load_plain()], ids=["imported", "plain"])
@pytest.mark.parametrize("data", ["text", bytearray(b"x"), 5])
def test_only_bytes_are_written(hot: ModuleType, data: object) -> None:
    for record in (Record(0, 0, data, None), Record(0, 0, None, data)):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            hot.encode_records([record], 61, 0, 0)
    with pytest.raises(TypeError):
        hot.append_record(bytearray(99), 0, 0, 0, None, None, (("name", data),))
