"""The comparison of replicas finds batches that differ or are missing."""

import struct
from pathlib import Path

import pytest

from tests.support.history.replica_logs import differences


def write_log(directory: Path, *segments: list[tuple[int, bytes]]) -> None:
    """Writes segments of batches, each given by its base offset and its content."""
    directory.mkdir(parents=True)
    for batches in segments:
        data = [struct.pack(">qi", offset, len(content)) + content for offset, content in batches]
        (directory / f"{batches[0][0]:020}.log").write_bytes(b"".join(data))


@pytest.mark.parametrize(
    ("batches", "in_sync", "out_of_sync"),
    [
        ([(0, b"a"), (5, b"b"), (7, b"c")], 0, 0),
        ([(0, b"a"), (5, b"b")], 1, 0),
        ([(0, b"a"), (5, b"x"), (7, b"c")], 1, 1),
        ([(0, b"a"), (5, b"b"), (7, b"c"), (9, b"d")], 1, 0),
    ],
)
def test_differences(
    tmp_path: Path, batches: list[tuple[int, bytes]], in_sync: int, out_of_sync: int
) -> None:
    write_log(tmp_path / "1" / "t-0", [(0, b"a"), (5, b"b")], [(7, b"c")])
    write_log(tmp_path / "2" / "t-0", batches)
    directories = {number: tmp_path / str(number) for number in (1, 2)}
    assert len(differences(directories, ["t-0"])) == in_sync
    assert len(differences(directories, ["t-0"], is_in_sync=False)) == out_of_sync
