"""A broker that measures the stalls of its event loop.

On SIGUSR1 it prints the longest stall since the last signal, in seconds.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from unittest.mock import patch

from penstock.broker import garbage, main
from penstock.controller.metadata import Endpoint

INTERVAL_S = 0.001


async def heartbeat() -> None:
    """Wakes up every millisecond and notes how late it is."""
    longest = 0.0

    def report() -> None:
        nonlocal longest
        print(f"{longest:.6f}", flush=True)
        longest = 0.0

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, report)
    due = time.perf_counter() + INTERVAL_S
    while True:
        await asyncio.sleep(INTERVAL_S)
        now = time.perf_counter()
        longest = max(longest, now - due)
        due = now + INTERVAL_S


def ready(endpoints: Sequence[Endpoint]) -> None:
    print(f"ready on {endpoints[0].host}:{endpoints[0].port}", flush=True)


def run(settings: list[str]) -> None:

    async def with_heartbeat() -> None:
        await asyncio.gather(garbage.collect_garbage(), heartbeat())

    with patch.object(main, "collect_garbage", with_heartbeat):
        main.run(None, settings, ready)


if __name__ == "__main__":
    run(sys.argv[1:])
