"""Servers in their own processes: the broker, and the bare loops."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

READY_SECONDS = 20.0
STOP_SECONDS = 30.0
_ADDRESS = re.compile(r"ready on (\S+):(\d+)")
_PORT = re.compile(r":(\d+)(?=,|$)")
_TICKS = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """Megabytes (of 1024 * 1024) of a process that are in memory."""

    resident: float
    own: float
    """Without pages of files, which the kernel can reclaim."""


CORES: Final = sorted(os.sched_getaffinity(0))


@contextmanager
def clients_on_a_core() -> Iterator[None]:
    """Clients, which run in this process, keep to one core; servers have another (`Server`).

    Otherwise the measurement would include how the scheduler moves them.
    """
    os.sched_setaffinity(0, CORES[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)


class Server:
    """A command that prints `ready on HOST:PORT`; stopped by SIGTERM at the end of the block."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        # Bytecode is cached for every user, so it is here.
        environment = {
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        os.sched_setaffinity(self._process.pid, CORES[-1:])
        try:
            self.address = self._ready()
        except BaseException:
            self._process.kill()
            self._process.communicate()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise RuntimeError(f"the server did not stop:\n{self.output}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def longest_stall(self) -> float:
        """Returns the seconds that `bench.hostile_broker` prints on SIGUSR1."""
        self._process.send_signal(signal.SIGUSR1)
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def log_lines(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines()

    @property
    def output(self) -> str:
        """Returns the end of its log."""
        return "\n".join(self.log_lines()[-40:])

    def cpu_seconds(self) -> float:
        """Returns the processor time of all its threads so far, in user space and in the kernel."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> Memory:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
        )
        return Memory(
            int(status["VmRSS"].split()[0]) / 1024, int(status["RssAnon"].split()[0]) / 1024
        )

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def open_sockets(self) -> int:
        """Returns how many of the open files are sockets."""
        directory = f"/proc/{self.pid}/fd"
        sockets = 0
        for name in os.listdir(directory):
            with suppress(FileNotFoundError):
                sockets += os.readlink(f"{directory}/{name}").startswith("socket:")
        return sockets

    def _ready(self) -> tuple[str, int]:
        output = self._process.stdout
        assert output is not None
        deadline = time.monotonic() + READY_SECONDS
        while select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]:
            line = output.readline().decode()
            if match := _ADDRESS.search(line):
                self.ports = [int(port) for port in _PORT.findall(line.strip())]
                """The ports of all its listeners, in the order of `listeners`."""
                return match[1], int(match[2])
            if not line:
                break
        raise RuntimeError(f"the server was not ready within {READY_SECONDS} s:\n{self.output}")


def start_broker(directory: Path, settings: Mapping[str, str] | None = None) -> Server:
    """`penstock serve` with its data in `directory` and a free port; Kafka's defaults otherwise."""
    directory.mkdir(exist_ok=True)
    all_settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory / "data"),
        **(settings or {}),
    }
    arguments = ["penstock", "serve"]
    for name, value in all_settings.items():
        arguments += ["--set", f"{name}={value}"]
    return Server(arguments, directory / "broker.log")


def start_bare(directory: Path, kind: str, *arguments: str) -> Server:
    """A bare loop of `bench.broker_bare`."""
    directory.mkdir()
    return Server(["bench.broker_bare", kind, *arguments], directory / "bare.log")
