"""Child processes that never outlive the process that started them.

A child's standard input is one end of a socket. Over it the parent sends commands, and the child
responds, as lines of JSON. When the socket closes, the parent has ended, and the child exits, too.
`parent_pipe` is the child's side.
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

RESPONSE_SECONDS = 20.0
LOG_LINES = 40


class Child:
    """A module of this package, run as a program; its output is appended to `log`."""

    def __init__(self, module: str, *, log: Path) -> None:
        """Starts the module, which waits for its first command."""
        self.log = log
        self._received = b""
        self._lock = threading.Lock()
        self._socket, child_socket = socket.socketpair()
        with child_socket, log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=child_socket.fileno(),
                stdout=output,
                stderr=output,
                cwd=log.parent,
                process_group=0,  # Ctrl-C is for the tests
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, command: Mapping[str, object]) -> None:
        """Sends a command. Raises `BrokerError` if the child has ended."""
        try:
            self._socket.sendall(json.dumps(command).encode() + b"\n")
        except OSError:
            raise BrokerError(self._describe_end()) from None

    def request(self, command: Mapping[str, object]) -> dict[str, object]:
        """Sends a command and returns the response. Threads may call it concurrently."""
        with self._lock:
            self.send(command)
            return self.receive(RESPONSE_SECONDS)

    def receive(self, seconds: float) -> dict[str, object]:
        """Returns the child's next line. Raises `BrokerError` if it ends or none comes in time."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self._socket.recv(4096)
            except TimeoutError:
                raise BrokerError(
                    f"no response within {seconds} s; the log ends with:\n{self.log_end()}"
                ) from None
            except OSError:
                data = b""
            if not data:
                raise BrokerError(self._describe_end())
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        response: dict[str, object] = json.loads(line)
        return response

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        """Returns the exit code, or None if the child still runs after `seconds`."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._socket.close()
        return code

    def kill(self) -> None:
        """Kills the child and reaps it."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def log_end(self) -> str:
        """Returns the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def _describe_end(self) -> str:
        self._process.kill()
        code = self._process.wait()
        return f"the process ended with {code}; its log ends with:\n{self.log_end()}"
