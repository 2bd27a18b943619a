"""Logs on real files, opened, crashed and read back, and the batches to fill them with."""

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Self
from uuid import UUID
from zlib import crc32

import pytest

from penstock.core.errors import KafkaError
from penstock.core.ids import TopicPartition
from penstock.records.batch import BatchHeader
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.disk import Descriptor, Disk, OsDisk, OsFile
from penstock.storage.log.local_log import LocalLog
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import ProducerLimits, load_log
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log_config import LogConfig
from penstock.storage.segment.batch_scan import header_at
from penstock.storage.segment.log_segment import LogSlice
from tests.support.clock import ManualClock

PARTITION = TopicPartition("orders", 3)
NOW = 1_700_000_000_000


def remove_deleted_segments(log: Log) -> int:
    """Removes the files of deleted segments whose delay has passed; returns how many segments."""
    return remove_deleted(log.local, log.clock.now_ms())


def remove_deleted(local: LocalLog, now_ms: int) -> int:
    """Does for a `LocalLog` what `remove_deleted_segments` does for a `Log`."""
    segments = local.take_removable_segments(now_ms)
    for segment in segments:
        segment.delete()
    return len(segments)


class LogDirectory:
    """The directory of one partition, and its open log.

    `open` and `reopen` use checkpoints as a `LogDir` would: offsets that are not passed come from
    the log that was open before.
    """

    def __init__(
        self,
        path: Path,
        config: LogConfig | None = None,
        *,
        disk: Disk | None = None,
        clock: ManualClock | None = None,
        limits: ProducerLimits | None = None,
        roll_jitter: Callable[[int], int] = lambda limit: 0,
    ) -> None:
        self.path = path / str(PARTITION)
        self.config = config or LogConfig()
        self.disk = disk or OsDisk()
        self.clock = clock or ManualClock(NOW)
        self.failures: list[Exception] = []
        self._limits = limits or ProducerLimits()
        self._roll_jitter = roll_jitter
        self._log: Log | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.crash()

    @property
    def log(self) -> Log:
        assert self._log is not None, "no log is open"
        return self._log

    def open(
        self,
        *,
        clean: bool = False,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        cleaned_to: int = 0,
        high_watermark: int = 0,
        topic_id: UUID | None = None,
    ) -> Log:
        """Opens the log as it is on disk."""
        assert self._log is None, "a log is open already"
        self._log = load_log(
            self.disk,
            str(self.path),
            PARTITION,
            self.config,
            self.clock,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            cleaned_to=cleaned_to,
            high_watermark=high_watermark,
            topic_id=topic_id,
            limits=self._limits,
            on_failure=self.failures.append,
            roll_jitter=self._roll_jitter,
        )
        return self._log

    def close(self) -> None:
        """A clean stop."""
        log, self._log = self.log, None
        log.close()

    def crash(self) -> None:
        """Simulates a kill -9: written bytes survive, nothing is sealed or flushed."""
        log, self._log = self._log, None
        if log is not None:
            log.local.close_handlers()

    def reopen(self, *, clean: bool = True) -> Log:
        """Stops and starts, with the checkpoints that a broker would have."""
        log = self.log
        if clean:
            self.close()
        else:
            self.crash()
        return self.open(
            clean=clean,
            log_start_offset=log.log_start_offset,
            recovery_point=log.recovery_point,
            high_watermark=log.high_watermark,
        )

    # --- files

    def names(self, suffix: str = "") -> list[str]:
        return sorted(path.name for path in self.path.iterdir() if path.name.endswith(suffix))

    def file(self, base_offset: int, suffix: str = ".log") -> Path:
        return self.path / f"{base_offset:020d}{suffix}"

    def sizes(self, suffix: str = ".log") -> dict[int, int]:
        """Sizes of the files by base offset."""
        return {int(name[:20]): (self.path / name).stat().st_size for name in self.names(suffix)}


# --- batches


def batch(
    *values: bytes,
    timestamp: int = NOW,
    timestamps: tuple[int, ...] | None = None,
    keys: tuple[bytes | None, ...] | None = None,
    base_offset: int = 0,
    offsets: tuple[int, ...] | None = None,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """Returns a batch with these values; with `producer_id` it is idempotent, with epoch 0."""
    if producer_id >= 0 and producer_epoch < 0:
        producer_epoch = 0
    times = timestamps or (timestamp,) * len(values)
    places = offsets or tuple(range(base_offset, base_offset + len(values)))
    names = keys or (None,) * len(values)
    records = [Record(*parts) for parts in zip(places, times, names, values, strict=True)]
    return build_batch(
        records,
        base_offset=base_offset,
        last_offset=last_offset,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        partition_leader_epoch=leader_epoch,
        is_transactional=transactional,
    )


def filler(size: int, *, base_offset: int = 0, timestamp: int = NOW) -> bytearray:
    """A batch of one record with exactly `size` bytes, at least 69."""
    length = size - 69
    for _ in range(4):
        data = batch(b"x" * length, base_offset=base_offset, timestamp=timestamp)
        if len(data) == size:
            return data
        length += size - len(data)
    raise ValueError(f"no batch of one record has {size} bytes")


def marker(
    producer_id: int,
    *,
    commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    base_offset: int = 0,
    timestamp: int = NOW,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a transaction, from the bytes that Kafka writes."""
    key = pack(">hh", 0, 1 if commit else 0)
    value = pack(">hi", 0, coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def old_message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    timestamp: int = NOW,
    key: bytes = b"k",
    attributes: int = 0,
) -> bytes:
    """A message of format v0 or v1, as brokers before 0.11 wrote them."""
    time = pack(">q", timestamp) if magic else b""
    length = -1 if value is None else len(value)
    body = pack(">bb", magic, attributes) + time + pack(">i", len(key)) + key + pack(">i", length)
    body += value or b""
    return pack(">qiI", offset, len(body) + 4, crc32(body)) + body


# --- appending


def refused(log: Log, data: bytearray, epoch: int = 0) -> KafkaError:
    """The error of an append that must leave the log and its files as they were."""
    before = (log.log_end_offset, log.size, log.local.segments.base_offsets, log.epochs.entries())
    with pytest.raises(KafkaError) as error:
        log.append_as_leader(data, epoch)
    after = (log.log_end_offset, log.size, log.local.segments.base_offsets, log.epochs.entries())
    assert after == before
    assert log.failure is None
    return error.value


# --- reading back


def batches_in(data: bytes | LogSlice) -> Iterator[tuple[memoryview, int, BatchHeader]]:
    """Returns the batches in some bytes, each with the buffer and its position."""
    view = memoryview(data.read() if isinstance(data, LogSlice) else data)
    position = 0
    while position < len(view):
        header = header_at(view, position)
        yield view, position, header
        position += header.size


def records_in(data: bytes | LogSlice) -> list[Record]:
    """All records in some batches."""
    return [
        record for view, position, _ in batches_in(data) for record in read_records(view, position)
    ]


def headers_of(log: Log, start: int | None = None) -> list[BatchHeader]:
    """The headers of all batches from `start` on, read as a follower does, a bit at a time."""
    headers: list[BatchHeader] = []
    offset = log.log_start_offset if start is None else start
    while True:
        fetched = log.read(offset, 1000, FetchIsolation.LOG_END)
        if fetched.records is None:
            return headers
        results = [header for _, _, header in batches_in(fetched.records)]
        assert results, f"a read at {offset} found nothing but did not say so"
        headers += results
        offset = results[-1].next_offset


def read_all(
    log: Log, isolation: FetchIsolation = FetchIsolation.LOG_END, *, start: int | None = None
) -> list[Record]:
    """The records that a reader sees from `start` on, control records included."""
    records: list[Record] = []
    first = offset = log.log_start_offset if start is None else start
    while True:
        fetched = log.read(offset, 1000, isolation)
        if fetched.records is None:
            return records
        result = records_in(fetched.records)
        last = list(batches_in(fetched.records))[-1][2]
        records += [record for record in result if record.offset >= first]
        offset = last.next_offset


def values(log: Log, isolation: FetchIsolation = FetchIsolation.LOG_END) -> list[bytes | None]:
    return [record.value for record in read_all(log, isolation)]


def offsets(log: Log, isolation: FetchIsolation = FetchIsolation.LOG_END) -> list[int]:
    return [record.offset for record in read_all(log, isolation)]


# --- disks


class CountingFile(OsFile):
    """A file that counts what is read from it."""

    __slots__ = ("_count",)

    def __init__(self, descriptor: Descriptor, count: Callable[[int], None]) -> None:
        super().__init__(descriptor)
        self._count = count

    def read_at(self, position: int, size: int) -> bytes:
        data = super().read_at(position, size)
        self._count(len(data))
        return data


class CountingDisk(OsDisk):
    """The real disk; `read` has the number of bytes read from each file, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.read: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False) -> OsFile:
        name = Path(path).name
        file = super().open(path, create=create)

        def count(size: int) -> None:
            self.read[name] = self.read.get(name, 0) + size

        return CountingFile(file.pin(), count)
