"""The processes of brokers: what a cluster needs of each kind, and those of Penstock."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests.support.history.process_end import end_process


class BrokerProcess(Protocol):
    """A broker process that was started."""

    @property
    def is_running(self) -> bool: ...

    def wait_until_ready(self) -> bool:
        """Returns False if the process ends before it is ready."""

    def command(self, text: str) -> None:
        """Sends a command of the test; one that was killed does not receive it."""

    def send_signal(self, number: signal.Signals) -> None: ...

    def end(self, number: signal.Signals, timeout_s: float = 60.0) -> None:
        """Ends the process with a signal, or kills it after the timeout."""


class PenstockProcess:
    """A broker whose standard input carries the commands of the test."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        command = [sys.executable, "-m", "tests.support.history.broker_main", *arguments]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=Path(__file__).parents[3],
            )
        self._is_ready = False

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self) -> bool:
        assert self._process.stdout is not None
        self._is_ready = self._is_ready or bool(self._process.stdout.readline())
        return self._is_ready

    def command(self, text: str) -> None:
        assert self._process.stdin is not None
        if not self.is_running:
            return
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{text}\n".encode())
            self._process.stdin.flush()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals, timeout_s: float = 60.0) -> None:
        end_process(self._process, number, timeout_s)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
