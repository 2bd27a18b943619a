"""Our broker as users run it: `penstock serve` in its own process."""

import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

READY = re.compile(r"ready on (\S+:\d+(?:, \S+:\d+)*)")
START_SECONDS = 20.0
STOP_SECONDS = 30.0


class BrokerError(Exception):
    """The broker did not start or stop; the message has its output."""


class PenstockBroker:
    """`penstock serve` on a free port of the loopback address.

    Its files are in `directory`: its data in `data`, its log in `broker.log`. It can
    be stopped and started again, on another port. As a context manager, it stops at the end of the
    block; without an exception, it must be a clean stop.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 1,
        max_open_files: int | None = None,
    ) -> None:
        """`max_open_files` limits the descriptors of the process (RLIMIT_NOFILE).

        With several `brokers`, the process is their supervisor, and `bootstrap` has all addresses.
        """
        self._brokers = brokers
        self._max_open_files = max_open_files
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "broker.log"
        self.bootstrap = ""
        self._settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self.data),
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self._process is None:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        if error is None:
            self.stop()
        else:
            self.kill()

    @property
    def pid(self) -> int:
        return self._running().pid

    def broker_pids(self) -> list[int]:
        """The broker processes of a supervisor, in the order of their start."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    @property
    def is_running(self) -> bool:
        """Whether it has been started, and neither stopped nor killed since."""
        return self._process is not None

    def start(self) -> None:
        """Starts the broker and waits for the line with its address."""
        self.spawn()
        self.wait_until_ready()

    def spawn(self) -> None:
        """Starts the process. The kernel ends it when the calling thread ends."""
        if self._process is not None:
            raise BrokerError("this broker is running already")
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [str(Path(sys.executable).with_name("penstock")), "serve"]
        if self._brokers > 1:
            command += ["--brokers", str(self._brokers)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        if self._max_open_files is not None:
            command = ["sh", "-c", f'ulimit -n {self._max_open_files}; exec "$@"', "sh", *command]
        # setpriv lets the kernel end the broker if the test process is killed.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
            )

    def wait_until_ready(self, timeout_s: float = START_SECONDS) -> None:
        """Waits for the line with the address of a process that `spawn` has started."""
        try:
            self.bootstrap = self._ready_address(self._running(), timeout_s)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Sends SIGTERM; the broker must exit with 0."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"the broker did not stop:\n{self._log_end()}") from None
        self._process = None
        if process.returncode != 0:
            raise BrokerError(f"the broker ended with {process.returncode}:\n{self._log_end()}")

    def kill(self) -> None:
        """Kills the broker with SIGKILL and waits for its exit."""
        process = self._running()
        process.kill()
        process.communicate()
        self._process = None

    def partition_directory(self, topic: str, partition: int) -> Path:
        return self.data / f"{topic}-{partition}"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerError("this broker is not running")
        return self._process

    def _ready_address(self, process: subprocess.Popen[bytes], timeout_s: float) -> str:
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        printed = ""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                line = process.stdout.readline().decode(errors="replace")
                if not line:
                    break
                printed += line
                if match := READY.search(line):
                    addresses = match[1].split(", ")
                    return ",".join(addresses if self._brokers > 1 else addresses[:1])
        output = f"{printed}{self._log_end()}"
        raise BrokerError(f"the broker was not ready within {timeout_s} s:\n{output}")

    def _log_end(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-40:])


def start_broker(directory: Path, settings: Mapping[str, str] | None = None) -> PenstockBroker:
    """Starts a broker that the caller must stop or use as a context manager."""
    broker = PenstockBroker(directory, settings)
    broker.start()
    return broker
