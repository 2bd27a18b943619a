"""A tour of the log: write, read by offset and by time, crash and recover, compact, look inside.

    python examples/log_tour.py [DIRECTORY]

The files are Apache Kafka's, byte for byte. They go to DIRECTORY, a temporary one if none is named.
"""

import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.storage.cleaner.log_cleaner import LogCleaner
from penstock.storage.disk import OsDisk
from penstock.storage.log.log import Log
from penstock.storage.log.results import FetchIsolation
from penstock.storage.log.timestamp_search import offset_for_timestamp
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_manager import LogManager

ORDERS = TopicPartition("orders", 0)
CUSTOMERS = TopicPartition("customers", 0)
CLOCK = SystemClock()
CONFIGS = {
    "orders": LogConfig(segment_bytes=64 * 1024),
    "customers": LogConfig(
        segment_bytes=16 * 1024,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.0,
    ),
}


def say(text: str) -> None:
    print(text, flush=True)


def start(directory: str) -> LogManager:
    manager = LogManager(OsDisk(), [directory], CLOCK)
    manager.startup(CONFIGS.__getitem__, node_id=1)
    return manager


def write_orders(log: Log) -> None:
    """Appends batches of all codecs; the log assigns the offsets."""
    for n in range(200):
        records = [
            Record(i, CLOCK.now_ms(), b"order-%d" % (n * 10 + i), b"x" * 100) for i in range(10)
        ]
        log.append_as_leader(build_batch(records, compression=Compression(n % 5)), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    say(
        f"wrote {log.log_end_offset} orders: {log.size} bytes in {len(log.local.segments)} segments"
    )


def read_orders(log: Log) -> None:
    data = log.read(1234, max_bytes=4096, isolation=FetchIsolation.HIGH_WATERMARK)
    assert data.records is not None
    records = read_records(data.records.read())
    say(f"offset 1234 is in the batch of offsets {records[0].offset} to {records[-1].offset}")
    first = offset_for_timestamp(log, records[0].timestamp)
    assert first is not None
    say(f"the first order of that millisecond has offset {first.offset}")


def crash_and_recover(directory: str) -> None:
    """Simulates a process that dies during a write and leaves half a batch."""
    script = (
        "import os, signal, examples.log_tour as tour\n"
        f"manager = tour.start({directory!r})\n"
        "log = manager.get(tour.ORDERS)\n"
        "tour.write_orders(log)\n"
        "file = log.local.segments.active.file\n"
        "file.write_at(b'half a batch', file.size())\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = str(Path(__file__).resolve().parent.parent)
    died = subprocess.run([sys.executable, "-c", script], cwd=root, check=False)
    say(f"the writer was killed (exit code {died.returncode}); opening its directory:")
    manager = start(directory)
    log = manager.get(ORDERS)
    assert log is not None
    say(f"recovered {log.log_end_offset} orders, the half batch is gone")
    manager.shutdown()


def compact(manager: LogManager) -> None:
    """Compacts the log, which keeps only the last value of each key."""
    log = manager.get_or_create(CUSTOMERS, CONFIGS["customers"])
    for n in range(500):
        records = [Record(i, CLOCK.now_ms(), b"customer-%d" % i, b"%d" % n) for i in range(10)]
        log.append_as_leader(build_batch(records), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    before = log.size
    cleaner = LogCleaner(manager, CLOCK)
    task = cleaner.begin()
    while task is not None:
        task.run()
        task = cleaner.finish(task)
    say(f"compacted {log.log_end_offset} changes of 10 customers: {before} bytes to {log.size}")


def tour(directory: str) -> None:
    manager = start(directory)
    log = manager.get_or_create(ORDERS, CONFIGS["orders"])
    write_orders(log)
    read_orders(log)
    compact(manager)
    manager.shutdown()
    crash_and_recover(directory)
    files = Path(directory, str(CUSTOMERS)).glob("*.log")
    compacted = max(files, key=lambda file: file.stat().st_size)
    say(f"\n$ penstock dump-log {compacted.parent.name}/{compacted.name}")
    command = [str(Path(sys.executable).with_name("penstock")), "dump-log", str(compacted)]
    subprocess.run(command, check=True, env={**os.environ, "NO_COLOR": "1"})


def main() -> None:
    logging.basicConfig(format="  %(message)s", level=logging.WARNING)
    if len(sys.argv) > 1:
        tour(sys.argv[1])
        return
    with tempfile.TemporaryDirectory(prefix="penstock-tour-") as directory:
        tour(directory)


if __name__ == "__main__":
    main()
