"""Clients for any Kafka: `Producer`, `Consumer`, `Admin`, and for asyncio in `penstock.client.aio`.

    from penstock.client import Producer

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("orders", b"value", key=b"key").result()

Settings are keyword arguments with Kafka's names in snake_case; `penstock.client.settings` lists
them. Errors are in `penstock.client.errors`, the values of `Admin` in `penstock.client.admin`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin as Admin
    from penstock.client.consumer.consumer import Consumer as Consumer
    from penstock.client.consumer.record import ConsumerGroupMetadata as ConsumerGroupMetadata
    from penstock.client.consumer.record import ConsumerRecord as ConsumerRecord
    from penstock.client.consumer.record import OffsetAndMetadata as OffsetAndMetadata
    from penstock.client.consumer.record import OffsetAndTimestamp as OffsetAndTimestamp
    from penstock.client.consumer.record import RebalanceListener as RebalanceListener
    from penstock.client.producer.future import RecordFuture as RecordFuture
    from penstock.client.producer.future import RecordMetadata as RecordMetadata
    from penstock.client.producer.producer import Producer as Producer
    from penstock.core.errors import KafkaError as KafkaError
    from penstock.core.ids import TopicPartition as TopicPartition

_MODULES = {
    "Admin": "penstock.client.admin.admin",
    "Consumer": "penstock.client.consumer.consumer",
    "ConsumerGroupMetadata": "penstock.client.consumer.record",
    "ConsumerRecord": "penstock.client.consumer.record",
    "KafkaError": "penstock.core.errors",
    "OffsetAndMetadata": "penstock.client.consumer.record",
    "OffsetAndTimestamp": "penstock.client.consumer.record",
    "Producer": "penstock.client.producer.producer",
    "RebalanceListener": "penstock.client.consumer.record",
    "RecordFuture": "penstock.client.producer.future",
    "RecordMetadata": "penstock.client.producer.future",
    "TopicPartition": "penstock.core.ids",
}


def __getattr__(name: str) -> object:
    """Imports the modules of a client on first use: a program that only produces does not load the
    consumer."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
