"""Processes that never outlive the one that started them.

A child holds one end of a socket, as its standard input. Over it come its orders, as lines of JSON;
when it breaks, the parent has gone, and so does the child.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.testing.errors import BrokerError

ANSWER_SECONDS = 20.0
LOG_LINES = 40


class Child:
    """A module of ours, run as a program of its own; what it prints goes to the end of `log`."""

    def __init__(self, module: str, order: Mapping[str, object], *, log: Path) -> None:
        self.log = log
        self._answers = b""
        self._turn = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs, log.open("ab") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=theirs.fileno(),
                stdout=printed,
                stderr=printed,
                cwd=log.parent,
                process_group=0,  # Ctrl-C is for the tests
            )
        try:
            self.tell(order)
        except BrokerError:
            self._socket.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def tell(self, order: Mapping[str, object]) -> None:
        try:
            self._socket.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            raise BrokerError(self._ended()) from None

    def ask(self, order: Mapping[str, object]) -> dict[str, object]:
        """What it answers to an order; threads take turns."""
        with self._turn:
            self.tell(order)
            return self.hear(ANSWER_SECONDS)

    def hear(self, seconds: float) -> dict[str, object]:
        """Its next line; BrokerError where it ends instead, or says nothing for so long."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._answers:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                more = self._socket.recv(4096)
            except TimeoutError:
                raise BrokerError(
                    f"no answer within {seconds} s; its log ends so:\n{self.log_end()}"
                ) from None
            except OSError:
                more = b""
            if not more:
                raise BrokerError(self._ended())
            self._answers += more
        line, _, self._answers = self._answers.partition(b"\n")
        said: dict[str, object] = json.loads(line)
        return said

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None while it runs."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._socket.close()
        return code

    def kill(self) -> None:
        """At once, and it is reaped."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def log_end(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def _ended(self) -> str:
        self._process.kill()
        code = self._process.wait()
        return f"the process ended with {code}; its log ends so:\n{self.log_end()}"
