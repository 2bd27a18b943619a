"""Cuts of the network between processes: the directions in which no bytes pass."""

import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

CLIENTS = "clients"
STORE = "store"
FIRST_REQUEST = struct.Struct(">ihhih")
"""The start of a connection's first request: size, API key, version, correlation id, length of the
client id."""
_BROKER_ID = re.compile(
    rb"(?:broker-|AddPartitionsManager-client-)?(\d+)(?:-fetcher-\d+|-txn-marker-sender)?"
)
"""Of the client ids that Penstock and Kafka 3.9 have between brokers."""


def broker_name(broker_id: int) -> str:
    """Returns the name of a broker's process in a `Direction`."""
    return f"broker {broker_id}"


def source_of(client_id: bytes) -> str | None:
    """Returns the broker whose requests have this client id, None if it is not that of a broker."""
    match = _BROKER_ID.fullmatch(client_id)
    return None if match is None else broker_name(int(match[1]))


class Direction(NamedTuple):
    """Bytes from one process to another."""

    source: str
    target: str

    def reversed(self) -> "Direction":
        return Direction(self.target, self.source)


def isolation(broker_id: int, broker_ids: Iterable[int]) -> set[Direction]:
    """Returns the cuts that separate a broker from clients, the store and all other brokers."""
    name = broker_name(broker_id)
    others = {CLIENTS, STORE, *map(broker_name, broker_ids)} - {name}
    return {Direction(name, other) for other in others} | {
        Direction(other, name) for other in others
    }
