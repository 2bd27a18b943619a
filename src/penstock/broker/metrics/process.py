"""Metrics of the process, under the names that Prometheus' own clients use."""

import os
import resource
from pathlib import Path
from typing import NamedTuple

from penstock import __version__
from penstock.broker.metrics.exposition import Exposition

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = resource.getpagesize()


class ProcessStatus(NamedTuple):
    cpu_s: float
    resident_bytes: int
    virtual_bytes: int
    start_s: float
    """Since the epoch; 0 if the system does not say."""
    open_fds: int
    max_fds: int


def read_process() -> ProcessStatus:
    """Reads the state of this process. It may take some ms with many descriptors: use a thread."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    virtual, resident, start_s = _read_proc()
    try:
        open_fds = len(os.listdir("/proc/self/fd"))
    except OSError:
        open_fds = 0
    max_fds, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessStatus(
        usage.ru_utime + usage.ru_stime, resident, virtual, start_s, open_fds, max_fds
    )


def _read_proc() -> tuple[int, int, float]:
    """Returns virtual and resident bytes and the start; zeros where there is no /proc."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
        # The name of the program, in parentheses, may contain spaces.
        stat = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        system = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        boot_s = next(float(line.split()[1]) for line in system if line.startswith("btime "))
    except (OSError, StopIteration, IndexError, ValueError):
        return 0, 0, 0.0
    start_s = boot_s + int(stat[19]) / _TICKS_PER_S
    return int(pages[0]) * _PAGE_BYTES, int(pages[1]) * _PAGE_BYTES, start_s


def collect_process(exposition: Exposition, status: ProcessStatus, broker_id: int) -> None:
    gauge, counter = exposition.gauge, exposition.counter
    gauge("penstock_build_info", "The version of Penstock and the id of the broker.").add(
        1, version=__version__, broker_id=str(broker_id)
    )
    counter("process_cpu_seconds_total", "CPU time of the process, with its threads.").add(
        status.cpu_s
    )
    gauge("process_resident_memory_bytes", "Resident memory.").add(status.resident_bytes)
    gauge("process_virtual_memory_bytes", "Virtual memory, with mapped indexes.").add(
        status.virtual_bytes
    )
    gauge("process_start_time_seconds", "When the process was started, since the epoch.").add(
        status.start_s
    )
    gauge("process_open_fds", "Open file descriptors.").add(status.open_fds)
    gauge("process_max_fds", "The limit of open file descriptors.").add(status.max_fds)
