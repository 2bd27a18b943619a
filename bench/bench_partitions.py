"""Many partitions with few descriptors (X5): time, memory, and the event loop's time for each tick.

`PARTITIONS=100000 python -m bench partitions` measures as many; the default is 10,000. A tenth of
that number, or 20,000 at most, is the limit of descriptors. Each measurement of a start is a
process of its own.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import Row, at_most, best_seconds
from penstock.broker.descriptor_budget import raise_descriptor_limit
from penstock.core.errors import KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.core.system_clock import SystemClock
from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.storage.disk import OsDisk
from penstock.storage.log_config import LogConfig
from penstock.storage.manager.log_creation import NewLog
from penstock.storage.manager.log_manager import LogManager

COUNT = int(os.environ.get("PARTITIONS", "10000"))
MAX_DESCRIPTORS = min(COUNT // 10, 20_000)
KEYS = [TopicPartition(f"t{n // 10}", n % 10) for n in range(COUNT)]
CONFIG = LogConfig()
_CREATE_AT_ONCE = 1000
_MIB = 1024 * 1024
_MAX_TICK_MS = 50


def run() -> list[Row]:
    directory = tempfile.mkdtemp()
    try:
        rows: list[Row] = []
        for part in ("create", "start"):
            output = subprocess.run(
                [sys.executable, "-m", "bench.bench_partitions", part, directory],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            for line in output.splitlines():
                name, figure, unit = line.split("\t")
                limit = MAX_DESCRIPTORS if unit == "files" else _MAX_TICK_MS
                if unit in ("files", "ms"):
                    rows.append(at_most(name, float(figure), unit, limit))
                else:
                    rows.append(Row(name, float(figure), unit))
        return rows
    finally:
        shutil.rmtree(directory)


@contextmanager
def _opened(directory: str) -> Iterator[LogManager]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS, MAX_DESCRIPTORS))
    disk = OsDisk(raise_descriptor_limit().files)
    manager = LogManager(disk, [directory], SystemClock())
    manager.startup(lambda topic: CONFIG, node_id=1)
    yield manager
    manager.shutdown()


def _print(name: str, figure: float, unit: str) -> None:
    print(f"{COUNT:,} partitions, {name}\t{figure}\t{unit}")


def _timed(name: str, action: Callable[[], object]) -> None:
    start = time.perf_counter()
    action()
    _print(name, time.perf_counter() - start, "s")


def _print_usage(name: str) -> None:
    resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    _print(f"resident {name}", resident_pages * os.sysconf("SC_PAGESIZE") / _MIB, "MiB")
    _print(f"open files {name}", len(os.listdir("/proc/self/fd")), "files")
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").count("\n")
    _print(f"mappings {name}", maps, "mappings")


def _create(manager: LogManager) -> None:
    for first in range(0, COUNT, _CREATE_AT_ONCE):
        keys = KEYS[first : first + _CREATE_AT_ONCE]
        creation = manager.begin_create([NewLog(key, CONFIG, None, 0) for key in keys])
        creation.run()
        results = manager.finish_create(creation)
        assert not any(isinstance(log, KafkaStorageError) for log in results.values())


def _append_to_all(manager: LogManager) -> None:
    """Appends to every partition, and flushes logs whenever one is refused."""
    for key in KEYS:
        log = manager.get(key)
        assert log is not None
        while True:
            try:
                log.append_as_leader(build_batch([Record(0, 1, None, bytes(5000))]), 0)
                break
            except KafkaStorageError:
                for flushed_log, task in manager.maintenance.due_flushes():
                    task.run()
                    flushed_log.finish_flush(task)


def _print_ticks(manager: LogManager) -> None:
    for name, action in (
        ("due_flushes", manager.maintenance.due_flushes),
        ("begin_removals", manager.maintenance.begin_removals),
        ("apply_retention", manager.maintenance.apply_retention),
        ("reloads", manager.reloads.begin),
    ):
        _print(f"event loop, {name}", best_seconds(action) * 1000, "ms")


def _main(part: str, directory: str) -> None:
    start = time.perf_counter()
    with _opened(directory) as manager:
        if part == "create":
            _timed("create", lambda: _create(manager))
            _print_usage("after creation")
            _timed("append to each", lambda: _append_to_all(manager))
            _print_usage("after an append to each")
            _print_ticks(manager)
        else:
            _print("clean start", time.perf_counter() - start, "s")
            _print_usage("after a start")


if __name__ == "__main__":
    _main(*sys.argv[1:])
