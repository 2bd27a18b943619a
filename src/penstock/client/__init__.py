"""Clients for any Kafka: `Producer`, `Consumer`, `Admin`, and their twins in `penstock.client.aio`.

from penstock.client import Producer

with Producer(bootstrap_servers="localhost:9092") as producer:
    producer.send("orders", b"value", key=b"key").result()
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin as Admin
    from penstock.client.consumer.consumer import Consumer as Consumer
    from penstock.client.producer.producer import Producer as Producer

_HOMES = {
    "Admin": "penstock.client.admin.admin",
    "Consumer": "penstock.client.consumer.consumer",
    "Producer": "penstock.client.producer.producer",
}


def __getattr__(name: str) -> object:
    """Who only produces does not wait for the consumer's modules."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
