"""Probing the page cache, reads on threads, and files that were deleted."""

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.net.server.file_ranges import (
    FileGoneError,
    FileLoader,
    in_page_cache,
    pin,
    read_small,
)
from penstock.storage.disk import Descriptor, OsDisk, OsFile
from tests.support.broker.net_server import run


class Range(NamedTuple):
    file: OsFile
    position: int
    size: int


@pytest.fixture
def path(disk_directory: Path) -> Path:
    path = disk_directory / "data"
    path.write_bytes(bytes(range(256)) * 4096)
    return path


def test_recently_written_data_is_in_the_page_cache(path: Path) -> None:
    with path.open("rb") as file:
        assert in_page_cache(file.fileno(), 0, 1024 * 1024)
        assert in_page_cache(file.fileno(), 1_000_000, 1)


@pytest.mark.parametrize("cold_byte", [0, 128 * 1024, 256 * 1024, 299_999])
def test_a_cold_page_is_detected_at_each_probe_and_at_the_end(
    cold_byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int) -> int:
        if position == cold_byte:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", preadv)
    assert not in_page_cache(0, 0, 300_000)
    assert in_page_cache(0, 1, 300_000)


def test_data_of_a_file_system_that_cannot_be_probed_counts_as_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "preadv", preadv)
    assert in_page_cache(0, 0, 300_000)


def test_a_small_range_is_read_if_it_is_in_the_page_cache(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk().open(str(path))
    size = path.stat().st_size
    assert bytes(read_small(Range(file, 254, 4)) or b"") == bytes([254, 255, 0, 1])
    assert read_small(Range(file, size - 2, 4)) is None, "the file is shorter"

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", preadv)
    assert read_small(Range(file, 254, 4)) is None, "a thread must read it"
    file.close()
    with pytest.raises(FileGoneError):
        read_small(Range(file, 0, 4))


def test_a_closed_file_has_no_descriptor(path: Path) -> None:
    file = OsDisk().open(str(path))
    assert pin(Range(file, 0, 1)).fileno() == file.pin().fileno()
    file.close()
    with pytest.raises(FileGoneError, match="segment has been deleted"):
        pin(Range(file, 0, 1))


class ClosedWhileUsed(OsFile):
    """A file that the log closes as soon as it is pinned; other files get the next numbers."""

    __slots__ = ("_other", "_reused")

    def __init__(self, path: Path) -> None:
        super().__init__(OsDisk().open(str(path)).pin())
        self._other = path.with_name("other")
        self._other.write_bytes(bytes(1024 * 1024))

    def pin(self) -> Descriptor:
        pinned = super().pin()
        self.close()
        self._reused = [OsDisk().open(str(self._other)) for _ in range(20)]
        return pinned


def test_a_thread_reads_the_right_file_although_it_is_closed_concurrently(path: Path) -> None:
    async def scenario() -> None:
        loader = FileLoader()
        loop = asyncio.get_running_loop()
        for keep, expected in ((True, bytes(range(10, 20))), (False, b"")):
            result: asyncio.Future[bytes | OSError] = loop.create_future()
            file = ClosedWhileUsed(path)
            loader.load(loop, file, 10, 10, result.set_result, keep=keep)
            assert await result == expected
        assert loader.loads == 2
        loader.close()

    run(scenario)


def test_a_file_that_was_closed_before_the_thread_could_read_it(path: Path) -> None:
    async def scenario() -> None:
        loader = FileLoader()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bytes | OSError] = loop.create_future()
        file = OsDisk().open(str(path))
        file.close()
        loader.load(loop, file, 10, 10, result.set_result, keep=True)
        assert "the file is closed" in str(await result)
        loader.close()

    run(scenario)


def test_the_error_of_a_failed_read_is_the_result(path: Path) -> None:
    async def scenario() -> None:
        loader = FileLoader()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bytes | OSError] = loop.create_future()
        file = OsFile(Descriptor(os.open(path, os.O_WRONLY)))
        loader.load(loop, file, 0, 10, result.set_result, keep=True)
        assert isinstance(await result, OSError)
        loader.close()

    run(scenario)
