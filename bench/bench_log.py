"""The log: append and a bare write loop, finding an offset in 10 GB, recovery (S2, S6, S7)."""

import os
import random
import shutil
import tempfile
import time
from pathlib import Path

from bench.report import Row, at_least, at_most, best_seconds
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.records.batch import HEADER, BatchHeader
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log.log_loader import load_log
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log_config import LogConfig

PARTITION = TopicPartition("bench", 0)
T = 1_700_000_000_000
BATCHES = 4096
"""Of 16 KB each: 64 MB, which the page cache takes without a pause."""
ROUNDS = 12


def batches_of(size: int, count: int) -> list[bytearray]:
    """Batches of 100-byte records, `size` bytes each or a little more, a millisecond apart."""
    record_count = size // 108
    return [
        build_batch([Record(i, T + n, None, b"v" * 100) for i in range(record_count)])
        for n in range(count)
    ]


def open_log(directory: str) -> Log:
    return load_log(OsDisk(), directory, PARTITION, LogConfig(), SystemClock())


def bare_write(directory: str, batches: list[bytearray]) -> float:
    """Returns the seconds that only writing the batches takes."""
    path = f"{directory}/bare"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    start = time.perf_counter()
    for data in batches:
        os.write(fd, data)
    elapsed = time.perf_counter() - start
    os.close(fd)
    os.unlink(path)
    return elapsed


def leader_append(directory: str, batches: list[bytearray]) -> float:
    """Returns the seconds that appends of batches from producers take."""
    for data in batches:
        data[:8] = bytes(8)
    log = open_log(f"{directory}/log")
    start = time.perf_counter()
    for data in batches:
        log.append_as_leader(data, 0)
    return _finish(log, start)


def follower_append(directory: str, batches: list[bytearray]) -> float:
    """Returns the seconds that appends of batches from a leader take, which have offsets."""
    log = open_log(f"{directory}/log")
    start = time.perf_counter()
    for data in batches:
        log.append_as_follower(data)
    return _finish(log, start)


def _finish(log: Log, start: float) -> float:
    elapsed = time.perf_counter() - start
    log.local.close_handlers()
    shutil.rmtree(log.directory)
    return elapsed


def find_offset(directory: str) -> float:
    """Returns the microseconds to find a random offset in a log of 10 GB, mostly holes."""
    log = open_log(directory)
    size = 64 * 1024
    offset = 0
    for _ in range(10 * 1024**3 // (log.config.segment_bytes // size * size)):
        if offset:
            log.roll()
        segment = log.local.segments.active
        for position in range(0, log.config.segment_bytes - size, size):
            header = BatchHeader(
                offset, size - 12, 0, 2, 0, 0, 599, offset, offset + 599, -1, -1, -1, 600
            )
            segment.file.write_at(HEADER.pack(*header), position)
            segment.index(header, position)
            offset += 600
        segment.file.truncate(log.config.segment_bytes - size)
        segment.size = log.config.segment_bytes - size
        log.local.next_offset = offset
    rng = random.Random(7)
    targets = [rng.randrange(offset) for _ in range(20_000)]

    def look() -> None:
        for target in targets:
            log.read(target, 1, FetchIsolation.LOG_END)

    look()
    seconds = best_seconds(look)
    log.local.close_handlers()
    return seconds / len(targets) * 1e6


def recover(directory: str, batches: list[bytearray]) -> float:
    """Returns the GB/s of a recovery that reads every batch."""
    log = open_log(directory)
    for _ in range(16):
        for data in batches:
            data[:8] = bytes(8)
            log.append_as_leader(data, 0)
    size = log.size
    log.local.close_handlers()

    def load() -> None:
        open_log(directory).local.close_handlers()

    return size / best_seconds(load, 3) / 1e9


def side_by_side(directory: str, batches: list[bytearray]) -> list[float]:
    """Returns the shortest time of each. They alternate, so that noise affects all alike."""
    measures = (bare_write, leader_append, follower_append)
    rounds = [[measure(directory, batches) for measure in measures] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def run() -> list[Row]:
    batches = batches_of(16 * 1024, BATCHES)
    megabytes = sum(map(len, batches)) / 1e6
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as directory:
        bare, leader, follower = side_by_side(directory, batches)
        return [
            Row("bare os.write, 16 KB", megabytes / bare, "MB/s"),
            Row("leader append, 16 KB batches", megabytes / leader, "MB/s"),
            Row("follower append, 16 KB batches", megabytes / follower, "MB/s"),
            at_least("leader append / bare os.write", bare / leader * 100, "%", 60),
            at_least("follower append / bare os.write", bare / follower * 100, "%", 60),
            at_most("find a random offset in 10 GB", find_offset(f"{directory}/find"), "µs", 20),
            at_least("recovery scan", recover(f"{directory}/recover", batches), "GB/s", 1),
        ]


if __name__ == "__main__":
    for row in run():
        print(row)
