"""The cluster as a broker knows it now: the sum of all changes, indexed for look-ups."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from penstock.controller.metadata import (
    AclKey,
    AclRecord,
    BrokerKey,
    BrokerRecord,
    Change,
    ClusterIdRecord,
    ClusterKey,
    ConfigKey,
    ConfigRecord,
    ControllerEpochRecord,
    ControllerRecord,
    FeaturesRecord,
    Key,
    PartitionRecord,
    ProducerIdsRecord,
    Put,
    Record,
    TopicKey,
    TopicRecord,
)
from penstock.core.ids import TopicId, TopicPartition

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ClusterImage:
    """Read by everybody, changed by `apply` alone."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = -1
        self.controller_epoch = 0
        self.features: FeaturesRecord | None = None
        self.producer_ids: ProducerIdsRecord | None = None
        self.brokers: dict[int, BrokerRecord] = {}
        self.topics: dict[str, TopicRecord] = {}
        self.topic_names: dict[TopicId, str] = {}
        self.partitions: dict[TopicPartition, PartitionRecord] = {}
        self.configs: dict[ConfigKey, ConfigRecord] = {}
        self.acls: dict[AclKey, AclRecord] = {}

    def config(self, kind: str, name: str) -> Mapping[str, str]:
        """The settings of an entity that is named by one kind and name; empty where it has none."""
        record = self.configs.get(ConfigKey(((kind, name),)))
        return _NOTHING if record is None else record.values

    def partitions_of(self, topic: str) -> list[PartitionRecord]:
        """The partitions of a topic that exists, in order."""
        return [
            self.partitions[TopicPartition(topic, index)]
            for index in sorted(self.topics[topic].assignments)
        ]

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, Put):
                self._put(change.record)
            else:
                self._delete(change.key)

    def _put(self, record: Record) -> None:
        match record:
            case TopicRecord():
                known = self.topics.get(record.topic)
                if known is not None and known.topic_id != record.topic_id:
                    del self.topic_names[known.topic_id]
                self.topics[record.topic] = record
                self.topic_names[record.topic_id] = record.topic
            case PartitionRecord():
                self.partitions[record.key] = record
            case ConfigRecord():
                self.configs[record.key] = record
            case AclRecord():
                self.acls[record.key] = record
            case BrokerRecord():
                self.brokers[record.broker_id] = record
            case ControllerRecord():
                self.controller_id = record.broker_id
            case ControllerEpochRecord():
                self.controller_epoch = record.epoch
            case FeaturesRecord():
                self.features = record
            case ProducerIdsRecord():
                self.producer_ids = record
            case ClusterIdRecord():
                self.cluster_id = record.cluster_id

    def _delete(self, key: Key) -> None:
        match key:
            case TopicKey():
                record = self.topics.pop(key.topic)
                del self.topic_names[record.topic_id]
            case TopicPartition():
                del self.partitions[key]
            case ConfigKey():
                del self.configs[key]
            case AclKey():
                del self.acls[key]
            case BrokerKey():
                del self.brokers[key.broker_id]
            case ClusterKey("controller"):
                self.controller_id = -1
            case ClusterKey():
                raise ValueError(f"{key.name} is never deleted")
