"""Brokers that die at a chosen step, in processes of their own that start within milliseconds.

A helper process has everything imported and forks a broker whenever it is asked for one. Such a
broker counts its appends and ends at once, like after kill -9, before or after the one it was told.

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
from penstock.broker.replica.replica_manager import Replica
from penstock.controller.metadata import Endpoint
from penstock.storage.log.results import LogAppendInfo
from tests.support.broker.in_process import TIMEOUT_S, WireClient

P = ParamSpec("P")
DIED = 77
"""The exit status of a broker that came to the step at which it was to die."""

Moment = Literal["before", "after", "torn"]
"""Around an append: nothing of it is there, all of it, or all but its last byte."""


class Death(NamedTuple):
    step: int
    """The number of the append, from 1 on."""
    moment: Moment


class DyingBroker:
    """A broker of a forge, as the test sees it."""

    def __init__(self, pid: int, address: tuple[str, int], forge: "BrokerForge") -> None:
        self.pid = pid
        self.address = address
        self._forge = forge
        self.status: int | None = None
        """With which it ended; negative: the signal."""

    def connect(self) -> WireClient:
        return WireClient(self.address)

    def wait(self) -> int:
        """Waits for its end; the exit status."""
        if self.status is None:
            self.status = int(self._forge.read_line())
        return self.status

    def kill(self) -> None:
        """Ends it, unless it has ended by itself."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()


class BrokerForge:
    """Starts brokers, one after the other. None outlives it."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.broker.dying_broker"]
        # setpriv lets the kernel end the helper if the test process is itself killed.
        if shutil.which("setpriv"):
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        self._helper = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
            text=True,
        )
        return self

    def __exit__(self, *raised: object) -> None:
        self._helper.communicate(timeout=TIMEOUT_S)

    def start(
        self, folder: Path, settings: Mapping[str, str] | None = None, death: Death | None = None
    ) -> DyingBroker:
        """A broker whose data is in `folder`; what it logs goes to `broker.log` there.

        The one before must have ended.
        """
        job = {"folder": str(folder), "settings": dict(settings or {}), "death": death}
        assert self._helper.stdin is not None
        self._helper.stdin.write(json.dumps(job) + "\n")
        self._helper.stdin.flush()
        pid, _, port = self.read_line().partition(" ")
        assert port, f"the broker did not start: {(folder / 'broker.log').read_text()}"
        return DyingBroker(int(pid), ("127.0.0.1", int(port)), self)

    def read_line(self) -> str:
        assert self._helper.stdout is not None
        return self._helper.stdout.readline().strip()


# --- in the helper


def _until(death: Death, append: Callable[P, LogAppendInfo]) -> Callable[P, LogAppendInfo]:
    """Appends as before, until the one at which this process ends."""
    steps = 0

    def counted(*arguments: P.args, **named: P.kwargs) -> LogAppendInfo:
        nonlocal steps
        steps += 1
        if steps < death.step:
            return append(*arguments, **named)
        if death.moment == "before":
            os._exit(DIED)
        info = append(*arguments, **named)
        if death.moment == "torn" and not info.is_duplicate:
            replica = arguments[0]
            assert isinstance(replica, Replica)
            _tear(Path(replica.log.producers.directory))
        os._exit(DIED)

    return counted


def _tear(folder: Path) -> None:
    newest = max(folder.glob("*.log"))
    os.truncate(newest, newest.stat().st_size - 1)


def _serve(folder: Path, settings: Mapping[str, str], death: Death | None) -> None:
    """The life of one broker."""
    log = os.open(folder / "broker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, sys.stderr.fileno())
    logging.basicConfig(level=logging.WARNING)
    threading.Thread(target=_watch_the_test, daemon=True).start()

    def ready(endpoints: Sequence[Endpoint]) -> None:
        os.write(1, b"%d %d\n" % (os.getpid(), endpoints[0].port))

    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder / "data"),
        **settings,
    }
    append = Replica.append if death is None else _until(death, Replica.append)
    with patch.object(Replica, "append", append):
        run(None, [f"{name}={value}" for name, value in properties.items()], ready)


def _watch_the_test() -> None:
    """Ends this process when the other end of its standard input is gone."""
    os.read(0, 1)
    os._exit(1)


def _main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _serve(Path(job["folder"]), job["settings"], job["death"] and Death(*job["death"]))
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    _main()
