"""Records of every kind, and a model of what a metadata store does with changes to them."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from penstock.cluster.store import expected_version, is_ephemeral
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    AccessControlEntry,
    AclRecord,
    Assignment,
    BrokerRecord,
    Change,
    ClusterIdRecord,
    ConfigRecord,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    Endpoint,
    FeaturesRecord,
    Key,
    PartitionRecord,
    ProducerIdsRecord,
    Put,
    Record,
    SecurityProtocol,
    TopicKey,
    TopicRecord,
)
from penstock.core.ids import TopicPartition


def topic(name: str, partitions: int = 1, number: int = 1) -> TopicRecord:
    """A topic on broker 1 whose id is made of `number`."""
    assignments = {index: Assignment((1,)) for index in range(partitions)}
    return TopicRecord(name, UUID(int=number), assignments)


def partition(name: str, index: int = 0, epoch: int = 0) -> PartitionRecord:
    return PartitionRecord(
        topic=name,
        partition=index,
        leader=1,
        leader_epoch=epoch,
        isr=(1,),
        controller_epoch=1,
        partition_epoch=epoch,
    )


def broker(broker_id: int = 1, rack: str | None = None) -> BrokerRecord:
    return BrokerRecord(
        broker_id=broker_id,
        endpoints=(
            Endpoint("PLAINTEXT", "localhost", 9092, SecurityProtocol.PLAINTEXT),
            Endpoint("OUTSIDE", "::1", 9093, SecurityProtocol.SASL_SSL),
        ),
        rack=rack,
        timestamp_ms=1_700_000_000_000,
        features={"metadata.version": (1, 21)},
        epoch=0,
    )


def config(*entity: tuple[str, str], **values: str) -> ConfigRecord:
    return ConfigRecord(entity, values)


def acl(name: str, pattern_type: str = "LITERAL", operation: str = "READ") -> AclRecord:
    entry = AccessControlEntry("User:ann", "*", operation, "ALLOW")
    return AclRecord("TOPIC", pattern_type, name, frozenset({entry}))


LASTING: tuple[Record, ...] = (
    ClusterIdRecord("cX8sHPs6QTSsO1oMyyOjCw"),
    ControllerEpochRecord(7),
    FeaturesRecord({"metadata.version": 21}, epoch=0),
    ProducerIdsRecord(1, 1000, 1999),
    topic("t", partitions=2),
    partition("t", 0),
    partition("t", 1),
    config(("topics", "t"), retention="1"),
    config(("brokers", DEFAULT_ENTITY), threads="3"),
    config(("clients", "a/b *"), rate="1.0"),
    config(("users", "CN=ann, O=é~"), scram="salt=…"),
    config(("users", "ann"), ("clients", DEFAULT_ENTITY), rate="2.0"),
    config(("ips", "::1"), connections="5"),
    config(("groups", "g/1"), timeout="1000"),
    config(("client-metrics", "m"), interval="1000"),
    acl("*"),
    acl("a/b", "PREFIXED"),
)
"""One record of each kind that outlives a session, in an order in which they can be put."""

PASSING: tuple[Record, ...] = (ControllerRecord(1, 1_700_000_000_000), broker())
"""One record of each ephemeral kind."""


def image_of(records: Sequence[Record]) -> dict[str, object]:
    """What a cluster image that is built from these records knows, to compare."""
    image = ClusterImage()
    image.apply([Put(record) for record in records])
    return dict(vars(image))


class StoreModel:
    """What a store has, by key, told by the rules of `MetadataStore` alone."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self._versions: dict[Key, int] = {}

    def commit(self, changes: Sequence[Change], transaction: int) -> list[Change] | None:
        """The changes as an image has to apply them, or None where they conflict."""
        records, versions = dict(self.records), dict(self._versions)
        done: list[Change] = []
        for change in changes:
            key = change.key if isinstance(change, Delete) else change.record.key
            if isinstance(change, Delete):
                has_partitions = isinstance(key, TopicKey) and any(
                    isinstance(other, TopicPartition) and other.topic == key.topic
                    for other in records
                )
                if key not in records or has_partitions:
                    return None
                del records[key], versions[key]
                done.append(change)
            else:
                record = change.record
                version = versions.get(key, -1)
                orphan = isinstance(key, TopicPartition) and TopicKey(key.topic) not in records
                if orphan or expected_version(record) not in (None, version):
                    return None
                if isinstance(record, BrokerRecord):
                    known = records.get(key)
                    epoch = known.epoch if isinstance(known, BrokerRecord) else transaction
                    record = msgspec.structs.replace(record, epoch=epoch)
                records[key], versions[key] = record, version + 1
                done.append(Put(record))
        self.records, self._versions = records, versions
        return done

    def end_session(self) -> list[Change]:
        """Drop what is ephemeral; gives the changes that are."""
        gone = [key for key, record in self.records.items() if is_ephemeral(record)]
        for key in gone:
            del self.records[key], self._versions[key]
        return [Delete(key) for key in gone]
