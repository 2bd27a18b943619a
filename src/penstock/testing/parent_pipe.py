"""A child's connection to its parent: receives commands, and sends responses. See `child`."""

import json
import os
import signal
import sys
from typing import Any

PARENT_FD = 0
"""The socket to the parent is standard input."""
_PR_SET_PDEATHSIG = 1


def receive_first_command() -> dict[str, Any]:
    """Waits for the first command; the parent sends no other before it has a response."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(PARENT_FD, 65536)
        if not data:
            os._exit(1)
        line += data
    command: dict[str, Any] = json.loads(line)
    return command


def send_response(response: dict[str, object]) -> None:
    os.write(PARENT_FD, json.dumps(response).encode() + b"\n")


def set_kill_on_parent_exit(enabled: bool) -> None:
    """Lets the kernel kill this process when the parent ends (Linux only).

    A process that is stopped (SIGSTOP) cannot notice that the socket closes. It is not enabled
    otherwise, because the kernel also kills when only the thread ends that started the process.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL if enabled else 0)
