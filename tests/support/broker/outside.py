"""Raw connections to a broker of `penstock.testing`."""

from penstock.testing import Broker
from tests.support.broker.in_process import WireClient
from tests.support.protocol.requests import produce_values


def connect(broker: Broker, listener: str | None = None) -> WireClient:
    host, _, port = broker.address(listener).rpartition(":")
    return WireClient((host, int(port)))


def write(broker: Broker, topic: str, *values: bytes) -> int:
    """Produces a batch that the broker must acknowledge; returns its first offset."""
    with connect(broker) as client:
        return produce_values(client, topic, *values)
