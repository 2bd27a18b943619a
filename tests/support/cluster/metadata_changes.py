"""Sample records of every kind, and a model of a metadata store."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from penstock.cluster.paths import path_of
from penstock.cluster.store import StoreConflictError, expected_version, is_ephemeral
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    UNASSIGNED_SEQUENCE,
    AccessControlEntry,
    AclRecord,
    Assignment,
    BrokerRecord,
    Change,
    ClusterIdRecord,
    ConfigRecord,
    ControllerEpochRecord,
    ControllerRecord,
    DelegationTokenRecord,
    Delete,
    Endpoint,
    FeaturesRecord,
    IsrChangeRecord,
    Key,
    LogDirEventRecord,
    LoginSecretRecord,
    PartitionRecord,
    PreferredElectionRecord,
    ProducerIdsRecord,
    Put,
    ReassignPartitionsRecord,
    Record,
    SecurityProtocol,
    TopicDeletionRecord,
    TopicKey,
    TopicRecord,
)
from penstock.core.ids import TopicPartition


def topic(name: str, partitions: int = 1, number: int = 1) -> TopicRecord:
    """A topic on broker 1 whose id has the value `number`."""
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


PERSISTENT_RECORDS: tuple[Record, ...] = (
    ClusterIdRecord("cX8sHPs6QTSsO1oMyyOjCw"),
    LoginSecretRecord(b"secret"),
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
    DelegationTokenRecord("id", "User:CN=ann, O=é~", "User:bob", ("User:c", "User:d:e"), 1, 9, 5),
    TopicDeletionRecord("t"),
    ReassignPartitionsRecord({TopicPartition("t", 1): (1, 2), TopicPartition("t", 0): (2,)}),
    PreferredElectionRecord((TopicPartition("t", 1), TopicPartition("t", 0))),
    IsrChangeRecord(3, (TopicPartition("t", 0),)),
    LogDirEventRecord(5, 1),
)
"""One record of each persistent kind, in an order in which they can be put."""

EPHEMERAL_RECORDS: tuple[Record, ...] = (ControllerRecord(1, 1_700_000_000_000), broker())
"""One record of each ephemeral kind."""


def image_of(records: Sequence[Record]) -> dict[str, object]:
    """The attributes of a cluster image that is built from these records, for comparison."""
    image = ClusterImage()
    image.apply([Put(record) for record in records])
    return dict(vars(image))


def key_of(change: Change) -> Key:
    return change.key if isinstance(change, Delete) else change.record.key


class StoreModel:
    """The records of a store by key, according to the rules of `MetadataStore` alone."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self._versions: dict[Key, int] = {}

    def commit(self, changes: Sequence[Change], transaction: int) -> list[Change]:
        """Returns the changes as an image applies them; raises StoreConflictError on a conflict."""
        records, versions = dict(self.records), dict(self._versions)
        partitions = Counter(key.topic for key in records if isinstance(key, TopicPartition))
        applied: list[Change] = []
        for change in changes:
            key = key_of(change)
            if isinstance(change, Delete):
                if isinstance(key, TopicKey) and partitions[key.topic]:
                    raise StoreConflictError(path_of(key), "still has partitions")
                if key not in records:
                    raise StoreConflictError(path_of(key), "is missing")
                if isinstance(key, TopicPartition):
                    partitions[key.topic] -= 1
                del records[key], versions[key]
                applied.append(change)
                continue
            record = self._with_sequence(change.record, records, transaction)
            key = record.key
            version, expected = versions.get(key, -1), expected_version(record)
            if expected is not None and expected >= 0 and expected != version:
                raise StoreConflictError(path_of(key), f"does not have version {expected}")
            if isinstance(key, TopicPartition) and TopicKey(key.topic) not in records:
                raise StoreConflictError(path_of(TopicKey(key.topic)), "is missing")
            if expected not in (None, version):
                raise StoreConflictError(path_of(key), "exists already")
            if isinstance(record, BrokerRecord):
                previous = records.get(key)
                epoch = previous.epoch if isinstance(previous, BrokerRecord) else transaction
                record = msgspec.structs.replace(record, epoch=epoch)
            if isinstance(key, TopicPartition) and key not in records:
                partitions[key.topic] += 1
            records[key], versions[key] = record, version + 1
            applied.append(Put(record))
        self.records, self._versions = records, versions
        return applied

    def _with_sequence(
        self, record: Record, records: Mapping[Key, Record], transaction: int
    ) -> Record:
        if isinstance(record, IsrChangeRecord | LogDirEventRecord):
            while record.sequence == UNASSIGNED_SEQUENCE or (
                transaction <= record.sequence and record.key in records
            ):
                number = max(record.sequence + 1, transaction)
                record = msgspec.structs.replace(record, sequence=number)
        return record

    def end_session(self, keys: Iterable[Key] | None = None) -> list[Change]:
        """Removes these ephemeral records, or all of them; returns the changes."""
        if keys is None:
            keys = [key for key, record in self.records.items() if is_ephemeral(record)]
        changes: list[Change] = []
        for key in keys:
            del self.records[key], self._versions[key]
            changes.append(Delete(key))
        return changes
