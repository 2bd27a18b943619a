"""Brokers that exit at a chosen append, in processes that start within milliseconds.

A server process has all modules imported and forks brokers on request. Such a broker counts its
appends and exits at once, as with kill -9, before or after a given one.

with BrokerForge() as forge:
    broker = forge.start(tmp_path, settings, Death(3, "before"))
    ...
    assert broker.wait() == DIED
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, ParamSpec, Self
from unittest.mock import patch

from penstock.broker.main import run
from penstock.broker.replica.replica import Replica
from penstock.controller.metadata import Endpoint
from penstock.storage.log.results import LogAppendInfo
from tests.support.broker.in_process import TIMEOUT_S, WireClient

P = ParamSpec("P")
DIED = 77
"""The exit status of a broker that reached its last step."""

Moment = Literal["before", "after", "torn"]
"""The append is not written, written, or written without its last byte."""


class Death(NamedTuple):
    step: int
    """The number of the append, from 1 on."""
    moment: Moment


class DyingBroker:
    """A broker that a forge has started."""

    def __init__(
        self,
        pid: int | None,
        address: tuple[str, int] | None,
        forge: "BrokerForge",
        status: int | None = None,
    ) -> None:
        self.pid = pid
        self.address = address
        self._forge = forge
        self.status = status
        """The exit status; negative for a signal."""

    def connect(self) -> WireClient:
        if self.address is None:
            raise ConnectionRefusedError("the broker died before it listened")
        return WireClient(self.address)

    def wait(self) -> int:
        """Waits for the exit of the broker; returns its status."""
        if self.status is None:
            self.status = int(self._forge.read_line())
        return self.status

    def kill(self) -> None:
        """Kills the broker unless it has exited."""
        if self.status is None and self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()


class BrokerForge:
    """Starts brokers, one after the other; they are killed with it."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.broker.dying_broker"]
        # setpriv lets the kernel end the process if the test process is killed.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
            text=True,
        )
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.communicate(timeout=TIMEOUT_S)

    def start(
        self, directory: Path, settings: Mapping[str, str] | None = None, death: Death | None = None
    ) -> DyingBroker:
        """Starts a broker with its data in `directory`, which logs to `broker.log` there.

        The previous broker must have exited. A broker that reaches its last append before it
        listens, because it completes transactions of its predecessor, has no address.
        """
        job = {"directory": str(directory), "settings": dict(settings or {}), "death": death}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        first, _, port = self.read_line().partition(" ")
        if port:
            return DyingBroker(int(first), ("127.0.0.1", int(port)), self)
        log = (directory / "broker.log").read_text()
        assert int(first) == DIED, f"the broker did not start: {log}"
        return DyingBroker(None, None, self, status=DIED)

    def read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


# --- child process


def _exit_at(death: Death, append: Callable[P, LogAppendInfo]) -> Callable[P, LogAppendInfo]:
    """Returns an append that ends the process at the given step."""
    steps = 0

    def counted(*arguments: P.args, **kwargs: P.kwargs) -> LogAppendInfo:
        nonlocal steps
        steps += 1
        if steps < death.step:
            return append(*arguments, **kwargs)
        if death.moment == "before":
            os._exit(DIED)
        info = append(*arguments, **kwargs)
        if death.moment == "torn" and not info.is_duplicate:
            replica = arguments[0]
            assert isinstance(replica, Replica)
            _truncate_last_byte(Path(replica.log.producers.directory))
        os._exit(DIED)

    return counted


def _truncate_last_byte(directory: Path) -> None:
    newest = max(directory.glob("*.log"))
    os.truncate(newest, newest.stat().st_size - 1)


def _serve(directory: Path, settings: Mapping[str, str], death: Death | None) -> None:
    """Runs one broker."""
    log = os.open(directory / "broker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, sys.stderr.fileno())
    logging.basicConfig(level=logging.WARNING)
    threading.Thread(target=_exit_with_the_test, daemon=True).start()

    def ready(endpoints: Sequence[Endpoint]) -> None:
        os.write(1, b"%d %d\n" % (os.getpid(), endpoints[0].port))

    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory / "data"),
        **settings,
    }
    append = Replica.append if death is None else _exit_at(death, Replica.append)
    with patch.object(Replica, "append", append):
        run(None, [f"{name}={value}" for name, value in properties.items()], ready)


def _exit_with_the_test() -> None:
    """Ends this process when its standard input is closed."""
    os.read(0, 1)
    os._exit(1)


def _main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _serve(
                    Path(job["directory"]), job["settings"], job["death"] and Death(*job["death"])
                )
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    _main()
