"""Single segments on real files, without a log around them."""

from pathlib import Path
from typing import Self

from penstock.records.batch import split
from penstock.storage.disk import OsDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.log_segment import LogSegment, LogSlice
from penstock.storage.segment.timestamp_scan import TimestampAndOffset
from tests.support.storage.logs import NOW, batches_in, filler

CONFIG = LogConfig(segment_bytes=1024 * 1024, segment_index_bytes=1200, index_interval_bytes=150)


class SegmentDirectory:
    """Opens segments when called, and closes them at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._opened: list[LogSegment] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for segment in self._opened:
            segment.close_handlers()

    def __call__(
        self,
        base_offset: int = 0,
        *,
        config: LogConfig = CONFIG,
        create: bool = True,
        now_ms: int = NOW,
        suffix: str = "",
        roll_jitter_ms: int = 0,
    ) -> LogSegment:
        segment = LogSegment(
            OsDisk(),
            str(self.directory),
            base_offset,
            config,
            now_ms,
            create=create,
            suffix=suffix,
            roll_jitter_ms=roll_jitter_ms,
        )
        self._opened.append(segment)
        return segment

    def size(self, base_offset: int, suffix: str) -> int:
        return self.path(base_offset, suffix).stat().st_size

    def path(self, base_offset: int, suffix: str) -> Path:
        return self.directory / f"{base_offset:020d}{suffix}"


def append(segment: LogSegment, *parts: bytearray) -> None:
    for part in parts:
        segment.append(part, [header for _, header in split(part)])


def fill(segment: LogSegment, *, count: int = 20, size: int = 100, step_ms: int = 10) -> None:
    """Appends batches of one record each, one every `step_ms`."""
    base = segment.base_offset
    for offset in range(base, base + count):
        append(segment, filler(size, base_offset=offset, timestamp=NOW + step_ms * (offset - base)))


def offsets_of(result: LogSlice | None) -> list[int]:
    assert result is not None
    return [header.base_offset for _, _, header in batches_in(result)]


def read(
    segment: LogSegment, offset: int, max_bytes: int, *, min_one: bool = True
) -> LogSlice | None:
    return segment.read(offset, max_bytes, segment.size, min_one=min_one)


def at(timestamp: int, offset: int, epoch: int = -1) -> TimestampAndOffset:
    return TimestampAndOffset(timestamp, offset, epoch)


def index_offsets(segment: LogSegment) -> list[int]:
    index = segment.indexes.offset_index
    return [index.entry(n).offset for n in range(index.entries)]
