"""A cache of the clients of an executor's Python worker, kept from one task to the next.

Connecting, logging in and fetching metadata takes longer than reading a small micro-batch, and
Spark uses a worker for many tasks. A client serves any number of readers at once; a few clients are
kept, for a few clusters or users.
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
    # A reader fetches one partition, so this is the size of a response.
    "max_partition_fetch_bytes": 2 * 1024 * 1024,
}

_Key = tuple[int, frozenset[tuple[str, str]]]


class FetchClient:
    """A thread with an event loop, and the connections to the brokers of one cluster."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """`properties` have Kafka's names; those of other clients or of Java are ignored."""
        settings, _ = from_properties(ConsumerOptions, properties)
        self.settings: ConsumerOptions = resolve(ConsumerOptions, {**_DEFAULTS, **settings})
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
"""The most recently used one is the last."""


@contextmanager
def client_for(properties: Mapping[str, str]) -> Iterator[FetchClient]:
    """Returns the client with these settings, which stays open for others after the block."""
    # A forked process inherits the clients of its parent, but not their threads.
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
        for unused_client in surplus:
            unused_client.close()


def close_clients() -> None:
    """Closes the clients that are not in use."""
    with _lock:
        unused = [key for key, client in _clients.items() if not client.users]
        closing = [_clients.pop(key) for key in unused if key[0] == os.getpid()]
    for client in closing:
        client.close()


def _take_surplus() -> list[FetchClient]:
    own_keys = [key for key in _clients if key[0] == os.getpid()]
    unused = [key for key in own_keys if not _clients[key].users]
    return [_clients.pop(key) for key in unused[: max(0, len(own_keys) - MOST_CLIENTS)]]


atexit.register(close_clients)
