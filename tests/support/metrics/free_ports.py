"""Ports that follow each other, for brokers of one supervisor."""

import random
import socket
from contextlib import ExitStack


def free_port_range(count: int) -> range:
    """Returns `count` successive ports below the ephemeral ones, which were free just now."""
    for _ in range(100):
        start = random.randrange(20_000, 30_000)
        with ExitStack() as stack:
            try:
                for port in range(start, start + count):
                    sock = stack.enter_context(socket.socket())
                    sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return range(start, start + count)
    raise RuntimeError(f"no {count} successive ports are free")
