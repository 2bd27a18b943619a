"""The other end of `child`: orders from the parent, and the end when it is gone."""

import json
import os
import signal
import sys
from typing import Any

LEASH = 0
"""The socket to the parent is standard input."""
_PR_SET_PDEATHSIG = 1


def first_order() -> dict[str, Any]:
    """Waits for the line that says what to do; no other comes before it is answered."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(LEASH, 65536)
        if not more:
            os._exit(1)
        line += more
    order: dict[str, Any] = json.loads(line)
    return order


def say(answer: dict[str, object]) -> None:
    os.write(LEASH, json.dumps(answer).encode() + b"\n")


def let_the_kernel_watch(wanted: bool) -> None:
    """For a process that is about to be stopped (SIGSTOP), and will not see the leash break.

    Not otherwise: the kernel ends it as soon as the thread that started it ends, and as it stands.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL if wanted else 0)
