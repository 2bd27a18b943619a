"""A cluster of brokers in processes of their own, under one supervisor (`penstock serve`)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from bench.broker_process import CORES, Server

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_MIB: Final = os.sysconf("SC_PAGE_SIZE") / (1024 * 1024)


class ClusterProcess:
    """`penstock serve --brokers N` with free ports; stopped at the end of the block."""

    def __init__(
        self, directory: Path, brokers: int, settings: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir()
        all_settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory / "data"),
            **(settings or {}),
        }
        arguments = ["penstock", "serve", "--brokers", str(brokers)]
        for name, value in all_settings.items():
            arguments += ["--set", f"{name}={value}"]
        self._server = Server(arguments, directory / "brokers.log")
        self.address = self._server.address
        pid = self._server.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.pids = [int(child) for child in children]
        """The processes of the brokers, without the supervisor."""
        for broker_pid in self.pids:
            # Three brokers on one core would evict each other's data from its caches.
            os.sched_setaffinity(broker_pid, CORES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.__exit__(*raised)

    @property
    def log_lines(self) -> list[str]:
        return self._server.log_lines()

    def cpu_seconds(self) -> float:
        """Returns the processor time of the brokers and the supervisor so far."""
        return sum(map(process_cpu_seconds, self.pids)) + self._server.cpu_seconds()

    def broker_cpu_seconds(self) -> list[float]:
        return [process_cpu_seconds(pid) for pid in self.pids]

    def broker_memory(self) -> list[float]:
        """Returns the resident memory of each broker in MiB."""
        return [process_memory_mib(pid) for pid in self.pids]


def process_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def process_memory_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_MIB
