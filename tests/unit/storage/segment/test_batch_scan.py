"""Walking over the batches of a file (S7): blocks, hops, and everything that is no batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.core.errors import CorruptRecordError
from penstock.storage.disk import File, OsDisk
from penstock.storage.segment.batch_scan import (
    HEADER_BLOCK,
    BatchLocation,
    ScannedBatch,
    find_batch,
    header_at,
    last_whole_batch_end,
    scan_batches,
    verify_at,
)
from tests.support.storage.logs import CountingDisk, batch, filler, old_message


@contextmanager
def file_of(path: Path, *parts: bytes | bytearray) -> Iterator[File]:
    target = path / "00000000000000000000.log"
    target.write_bytes(b"".join(parts))
    file = OsDisk().open(str(target))
    try:
        yield file
    finally:
        file.close()


def spans(result: list[ScannedBatch]) -> list[tuple[int, int, int]]:
    return [(item.position, item.header.base_offset, item.header.last_offset) for item in result]


def before_corruption(batches: Iterator[ScannedBatch]) -> list[ScannedBatch]:
    """Returns the batches before the corruption, which must occur."""
    results: list[ScannedBatch] = []
    try:
        for batch in batches:
            results.append(batch)
    except CorruptRecordError:
        return results
    pytest.fail("nothing was found corrupt")


SIZES = (70, 500, 61 + 70, 3000, 200)
BATCHES = [filler(size, base_offset=10 * n) for n, size in enumerate(SIZES)]
STARTS = [sum(SIZES[:n]) for n in range(len(SIZES) + 1)]


@pytest.mark.parametrize("block", [1, 61, 64, 100, 571, 1024, 1 << 20])
def test_scan_finds_every_batch_whatever_the_block(tmp_path: Path, block: int) -> None:
    """Headers and batches across the end of a block are read again."""
    with file_of(tmp_path, *BATCHES) as file:
        batches = list(scan_batches(file, 0, file.size(), check=True, block=block))
    assert [batch.position for batch in batches] == STARTS[:-1]
    assert [bytes(batch.bytes) for batch in batches] == [bytes(data) for data in BATCHES]


def test_scan_within_a_file(tmp_path: Path) -> None:
    with file_of(tmp_path, *BATCHES) as file:
        batches = list(scan_batches(file, STARTS[1], STARTS[3]))
        nothing = list(scan_batches(file, STARTS[2], STARTS[2]))
    assert spans(batches) == [(STARTS[1], 10, 10), (STARTS[2], 20, 20)]
    assert nothing == []


@pytest.mark.parametrize("block", [64, 1 << 20])
@pytest.mark.parametrize("remaining", [1, 16, 17, 60, 61, 199])
def test_scan_yields_the_complete_batches_before_a_torn_one(
    tmp_path: Path, remaining: int, block: int
) -> None:
    """S7: the batches before any torn write are found."""
    with file_of(tmp_path, *BATCHES[:-1], BATCHES[-1][:remaining]) as file:
        batches = before_corruption(scan_batches(file, 0, file.size(), block=block))
    assert [batch.position for batch in batches] == STARTS[:-2]


@pytest.mark.parametrize(
    "rest",
    [b"\0", b"\0" * 17, b"\0" * 5000, b"garbage!" * 20, b"\xff" * 100],
    ids=["zero", "a few zeros", "zeros", "text", "ones"],
)
def test_scan_refuses_invalid_batches(tmp_path: Path, rest: bytes) -> None:
    """S7: zeros of a preallocated file, or anything else."""
    with file_of(tmp_path, BATCHES[0], rest) as file:
        batches = before_corruption(scan_batches(file, 0, file.size(), check=True))
    assert [batch.position for batch in batches] == [0]


def test_scan_checks_the_crc_only_with_check(tmp_path: Path) -> None:
    broken = bytearray(BATCHES[1])
    broken[-1] ^= 1
    with file_of(tmp_path, BATCHES[0], broken, BATCHES[2]) as file:
        assert len(list(scan_batches(file, 0, file.size()))) == 3
        checked = scan_batches(file, 0, file.size(), check=True)
        assert next(checked).position == 0
        with pytest.raises(CorruptRecordError, match="CRC"):
            next(checked)


def test_scan_of_a_file_that_is_shorter_than_said(tmp_path: Path) -> None:
    with file_of(tmp_path, BATCHES[0]) as file:
        batches = scan_batches(file, 0, file.size() + 100)
        with pytest.raises(CorruptRecordError):
            list(batches)


def test_a_batch_without_records_is_a_batch(tmp_path: Path) -> None:
    """S5: compaction leaves them for the sequence of a producer."""
    empty = batch(base_offset=4, last_offset=9, producer_id=1, sequence=0)
    with file_of(tmp_path, empty, batch(b"a", base_offset=10)) as file:
        batches = list(scan_batches(file, 0, file.size(), check=True))
    assert spans(batches) == [(0, 4, 9), (len(empty), 10, 10)]


def test_messages_of_old_formats_are_scanned(tmp_path: Path) -> None:
    """S1: v0 and v1 among v2 batches, one record each, without producer or epoch."""
    parts = [
        old_message(0, b"a", magic=0),
        old_message(1, b"b", magic=1, timestamp=77),
        bytes(batch(b"c", base_offset=2, leader_epoch=5)),
        old_message(3, None, magic=0, key=b""),
    ]
    with file_of(tmp_path, *parts) as file:
        batches = list(scan_batches(file, 0, file.size(), check=True, block=64))
    assert [item.header.magic for item in batches] == [0, 1, 2, 0]
    assert [item.header.last_offset for item in batches] == [0, 1, 2, 3]
    assert [item.header.max_timestamp for item in batches][:2] == [-1, 77]
    assert [item.header.partition_leader_epoch for item in batches] == [-1, -1, 5, -1]
    assert all(item.header.producer_id == -1 for item in batches)
    assert [bytes(item.bytes) for item in batches] == parts


def test_the_crc_of_an_old_message_is_checked(tmp_path: Path) -> None:
    message = bytearray(old_message(0, b"value"))
    message[-1] ^= 1
    view = memoryview(bytes(message))
    with pytest.raises(CorruptRecordError):
        verify_at(view, 0, header_at(view, 0))
    good = memoryview(old_message(0, b"value"))
    verify_at(good, 0, header_at(good, 0))


# --- finding


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, 0), (1, 1), (10, 1), (11, 2), (30, 3), (39, 4), (40, 4)],
)
def test_find_batch(tmp_path: Path, offset: int, expected: int) -> None:
    """The batch that contains the offset, or the next one after a gap."""
    with file_of(tmp_path, *BATCHES) as file:
        location = find_batch(file, 0, file.size(), offset)
    assert location == BatchLocation(STARTS[expected], SIZES[expected], 10 * expected)


def test_find_batch_beyond_the_end(tmp_path: Path) -> None:
    with file_of(tmp_path, *BATCHES) as file:
        assert find_batch(file, 0, file.size(), 41) is None
        assert find_batch(file, 0, 0, 0) is None
        assert find_batch(file, 0, STARTS[2], 20) is None, "the end is where it was said to be"


def test_find_batch_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    data = batch(*[b"v"] * 10, base_offset=100)
    with file_of(tmp_path, data) as file:
        for offset in (0, 100, 105, 109):
            assert find_batch(file, 0, file.size(), offset) == BatchLocation(0, len(data), 109)
        assert find_batch(file, 0, file.size(), 110) is None


def test_find_batch_hops_over_large_batches_without_reading_them(tmp_path: Path) -> None:
    """S6: a search reads a header of each batch, not its bytes."""
    disk = CountingDisk()
    path = tmp_path / "large.log"
    path.write_bytes(b"".join(filler(100_000, base_offset=n) for n in range(10)))
    file = disk.open(str(path))
    try:
        assert find_batch(file, 0, file.size(), 9) == BatchLocation(900_000, 100_000, 9)
        assert disk.read["large.log"] <= 10 * HEADER_BLOCK
    finally:
        file.close()


@pytest.mark.parametrize("shift", range(0, 64, 7))
def test_find_batch_across_the_end_of_a_block(tmp_path: Path, shift: int) -> None:
    first = filler(HEADER_BLOCK - shift, base_offset=0)
    with file_of(tmp_path, first, filler(90, base_offset=1), filler(90, base_offset=2)) as file:
        assert find_batch(file, 0, file.size(), 2) == BatchLocation(len(first) + 90, 90, 2)


def test_find_batch_among_the_smallest_old_messages(tmp_path: Path) -> None:
    """26 bytes are fewer than the part of a header with a v2 batch's last offset."""
    messages = [old_message(n, None, magic=0, key=b"") for n in range(400)]
    size = len(messages[0])
    assert size == 26
    with file_of(tmp_path, *messages) as file:
        for offset in (0, 1, 157, 158, 399):
            assert find_batch(file, 0, file.size(), offset) == BatchLocation(
                offset * size, size, offset
            )
        assert find_batch(file, 0, file.size(), 400) is None


def test_find_batch_in_garbage(tmp_path: Path) -> None:
    with file_of(tmp_path, BATCHES[0], b"\0" * 100) as file, pytest.raises(CorruptRecordError):
        find_batch(file, 0, file.size(), 1)


# --- whole batches up to a limit


def test_last_whole_batch_end(tmp_path: Path) -> None:
    with file_of(tmp_path, *BATCHES) as file:
        for n, start in enumerate(STARTS):
            assert last_whole_batch_end(file, 0, start) == start
            if n < len(SIZES):
                assert last_whole_batch_end(file, 0, start + 1) == start
                assert last_whole_batch_end(file, 0, STARTS[n + 1] - 1) == start
        assert last_whole_batch_end(file, STARTS[2], STARTS[4] + 5) == STARTS[4]


def test_last_whole_batch_end_over_many_blocks(tmp_path: Path) -> None:
    parts = [filler(1000, base_offset=n) for n in range(20)]
    with file_of(tmp_path, *parts) as file:
        for limit in (0, 999, 1000, 4096, 4999, 5000, 16_384, 19_999, 20_000):
            assert last_whole_batch_end(file, 0, limit) == limit // 1000 * 1000


def test_last_whole_batch_end_of_the_smallest_old_messages(tmp_path: Path) -> None:
    """One of 26 bytes that ends at the limit is whole; without it a reader would never get on."""
    messages = [old_message(n, None, magic=0, key=b"") for n in range(400)]
    with file_of(tmp_path, *messages) as file:
        for limit in (25, 26, 27, 52, 157 * 26, 158 * 26, 158 * 26 + 17, 400 * 26):
            assert last_whole_batch_end(file, 0, limit) == limit // 26 * 26
