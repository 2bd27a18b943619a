"""The connections of an executor's Python worker, kept from one task to the next.

To connect, log in and learn the cluster takes longer than to read a small micro-batch, and Spark
uses a worker for many tasks. A client serves any number of readers at once; a few are kept, for a
few clusters or users.
"""

import atexit
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from penstock.client.loop_thread import LoopThread
from penstock.client.network import create_network_client
from penstock.client.settings import ConsumerOptions, from_properties, resolve
from penstock.core.system_clock import SystemClock

MOST_CLIENTS: Final = 4
_METADATA_MAX_IDLE_MS: Final = 300_000

_DEFAULTS: Final[Mapping[str, object]] = {
    "client_id": "penstock-spark",
    # A reader asks for one partition, so that this is an answer's size.
    "max_partition_fetch_bytes": 2 * 1024 * 1024,
}

_Key = tuple[int, frozenset[tuple[str, str]]]


class FetchClient:
    """A thread with a loop, and on it the brokers of one cluster."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """`properties` have Kafka's names; those of other clients, or of Java, are left out."""
        known, _ = from_properties(ConsumerOptions, properties)
        self.settings: ConsumerOptions = resolve(ConsumerOptions, {**_DEFAULTS, **known})
        self.users = 0
        self.thread = LoopThread(f"penstock-{self.settings['client_id']}")
        try:
            self.network = create_network_client(
                self.settings, clock=SystemClock(), metadata_max_idle_ms=_METADATA_MAX_IDLE_MS
            )
            self.thread.run(self.network.start())
        except BaseException:
            self.thread.close()
            raise

    def close(self) -> None:
        try:
            self.thread.run(self.network.close())
        finally:
            self.thread.close()


_lock = threading.Lock()
_clients: dict[_Key, FetchClient] = {}
"""The one used last is at the end."""


@contextmanager
def client_for(properties: Mapping[str, str]) -> Iterator[FetchClient]:
    """The client of these settings; it stays for others when the block ends."""
    # A process that was forked has the clients of its parent, but not their threads.
    key = (os.getpid(), frozenset(properties.items()))
    with _lock:
        client = _clients.pop(key, None) or FetchClient(properties)
        client.users += 1
        _clients[key] = client
    try:
        yield client
    finally:
        with _lock:
            client.users -= 1
            surplus = _take_surplus()
        for each in surplus:
            each.close()


def close_clients() -> None:
    """Close those that nobody uses."""
    with _lock:
        unused = [key for key, client in _clients.items() if not client.users]
        closing = [_clients.pop(key) for key in unused if key[0] == os.getpid()]
    for each in closing:
        each.close()


def _take_surplus() -> list[FetchClient]:
    ours = [key for key in _clients if key[0] == os.getpid()]
    unused = [key for key in ours if not _clients[key].users]
    return [_clients.pop(key) for key in unused[: max(0, len(ours) - MOST_CLIENTS)]]


atexit.register(close_clients)
