"""Waiting for what other threads or processes do."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """Polls until the condition holds; fails after a timeout."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.002)
