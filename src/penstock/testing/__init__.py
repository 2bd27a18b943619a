"""Real brokers for tests: in processes of their own, on free ports, with faults on demand.

with Broker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

For pytest there are fixtures: see `docs/testing.md`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.protocol.api_key import ApiKey as ApiKey
    from penstock.testing.broker import Broker as Broker
    from penstock.testing.cluster import Cluster as Cluster
    from penstock.testing.errors import BrokerError as BrokerError
    from penstock.testing.faults import LostReplies as LostReplies

_MODULES = {
    "ApiKey": "penstock.protocol.api_key",
    "Broker": "penstock.testing.broker",
    "BrokerError": "penstock.testing.errors",
    "Cluster": "penstock.testing.cluster",
    "LostReplies": "penstock.testing.faults",
}

__all__ = ["ApiKey", "Broker", "BrokerError", "Cluster", "LostReplies"]


def __getattr__(name: str) -> object:
    """Imports a name on first use: every run of pytest imports this package, but few use it."""
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
