"""The log cleaner: throughput, memory per key, and delays of other threads (S5)."""

import random
import tempfile
import time
from dataclasses import replace
from threading import Thread

from bench.report import Row
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record
from penstock.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from penstock.storage.cleaner.offset_map import OffsetMap
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager

PARTITION = TopicPartition("bench", 0)
LOG_BYTES = 64 * 1024 * 1024
BATCH_BYTES = 16 * 1024
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=16 * 1024 * 1024,
)
UPDATES_PER_KEY = 4


def fill(log: Log, value_bytes: int, compression: Compression) -> int:
    """Writes about 64 MB in which each key occurs four times; returns the number of records."""
    rng = random.Random(1)
    per_batch = BATCH_BYTES // (value_bytes + 20)
    batches = LOG_BYTES // BATCH_BYTES
    keys = per_batch * batches // UPDATES_PER_KEY
    # Half of each value compresses, half does not.
    half = value_bytes // 2
    values = [rng.randbytes(half) + bytes(value_bytes - half) for _ in range(64)]
    for n in range(batches):
        records = [
            Record(i, n, b"%016d" % rng.randrange(keys), values[(n + i) & 63])
            for i in range(per_batch)
        ]
        log.append_as_leader(build_batch(records, compression=compression), 0)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    return per_batch * batches


def clean(value_bytes: int, compression: Compression) -> list[Row]:
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as directory:
        manager = LogManager(OsDisk(), [directory], clock)
        manager.startup(lambda topic: CONFIG, node_id=1)
        log = manager.get_or_create(PARTITION, replace(CONFIG))
        count = fill(log, value_bytes, compression)
        size = log.size
        cleaner = LogCleaner(manager, clock, CleanerSettings())
        start = time.perf_counter()
        cleaned = cleaner.clean()
        elapsed = time.perf_counter() - start
        remaining = log.size
        manager.shutdown()
    if cleaned != 1 or remaining >= size:
        raise RuntimeError(f"nothing was cleaned: {size} bytes became {remaining}")
    name = f"values of {value_bytes} bytes, {compression.codec_name}"
    return [
        Row(f"clean, {name}", size / elapsed / 1e6, "MB/s"),
        Row(f"clean, {name}", count / elapsed / 1e6, "M rec/s"),
    ]


def wait_of_another_thread() -> list[Row]:
    """Returns the delays of a thread that runs every millisecond while a log is cleaned."""
    clock = SystemClock()
    late: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        manager = LogManager(OsDisk(), [directory], clock)
        manager.startup(lambda topic: CONFIG, node_id=1)
        log = manager.get_or_create(PARTITION, CONFIG)
        fill(log, 100, Compression.NONE)
        cleaner = LogCleaner(manager, clock, CleanerSettings())
        task = cleaner.begin()
        while task is not None:
            runner = Thread(target=task.run)
            runner.start()
            while runner.is_alive():
                before = time.perf_counter()
                time.sleep(0.001)
                late.append(time.perf_counter() - before - 0.001)
            task = cleaner.finish(task)
        manager.shutdown()
    late.sort()
    return [
        Row(
            f"wait of another thread while it runs, {share} %",
            late[len(late) * share // 100] * 1e3,
            "ms",
        )
        for share in (50, 90)
    ]


def map_of_keys() -> list[Row]:
    count = 200_000
    offsets = OffsetMap(24 * count * 10 // 9)
    records = [Record(n, 0, b"%016d" % n, b"") for n in range(count)]
    batch = build_batch(records)
    start = time.perf_counter()
    offsets.put_records(batch, 61, len(batch), count, 0, 0)
    elapsed = time.perf_counter() - start
    return [
        Row("put keys into the map", count / elapsed / 1e6, "M keys/s"),
        Row("memory of the map per key, full", offsets.memory / offsets.size, "bytes"),
    ]


def run() -> list[Row]:
    rows: list[Row] = []
    for value_bytes in (100, 1024):
        for compression in (Compression.NONE, Compression.LZ4):
            rows += clean(value_bytes, compression)
    return [*rows, *map_of_keys(), *wait_of_another_thread()]
