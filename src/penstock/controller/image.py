"""The cluster image: a broker's copy of all cluster metadata, indexed for lookups."""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
    DelegationTokenKey,
    DelegationTokenRecord,
    Delete,
    Endpoint,
    FeaturesRecord,
    IsrChangeKey,
    IsrChangeRecord,
    Key,
    LogDirEventKey,
    LogDirEventRecord,
    LoginSecretRecord,
    PartitionRecord,
    PreferredElectionRecord,
    ProducerIdsRecord,
    Put,
    ReassignPartitionsRecord,
    Record,
    TopicDeletionKey,
    TopicDeletionRecord,
    TopicKey,
    TopicRecord,
)
from penstock.core.ids import TopicId, TopicPartition

_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_REPLICAS: Final[Mapping[TopicPartition, frozenset[int]]] = MappingProxyType({})


class ClusterImage:
    """The sum of all changes so far. Every component may read it; only `apply` changes it."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.login_secret = b""
        self.controller_id = -1
        self.controller_epoch = 0
        self.features: FeaturesRecord | None = None
        self.producer_ids: ProducerIdsRecord | None = None
        self.brokers: dict[int, BrokerRecord] = {}
        self.topics: dict[str, TopicRecord] = {}
        self.topic_names: dict[TopicId, str] = {}
        self.partitions: dict[TopicPartition, PartitionRecord] = {}
        self.offline_replicas: Mapping[TopicPartition, frozenset[int]] = _NO_REPLICAS
        """Replicas in failed log directories of live brokers, as the controller has reported them.

        They are not stored, and are not among the records.
        """
        self.configs: dict[ConfigKey, ConfigRecord] = {}
        self.acls: dict[AclKey, AclRecord] = {}
        self.delegation_tokens: dict[str, DelegationTokenRecord] = {}
        """By id; some may have expired."""
        self.topic_deletions: dict[str, TopicDeletionRecord] = {}
        self.reassign_partitions: ReassignPartitionsRecord | None = None
        self.preferred_election: PreferredElectionRecord | None = None
        self.isr_changes: dict[int, IsrChangeRecord] = {}
        self.log_dir_events: dict[int, LogDirEventRecord] = {}

    def config(self, kind: str, name: str) -> Mapping[str, str]:
        """Returns the settings of an entity with a single kind and name; empty if it has none."""
        record = self.configs.get(ConfigKey(((kind, name),)))
        return _NO_SETTINGS if record is None else record.values

    def partitions_of(self, topic: str) -> list[PartitionRecord]:
        """Returns the partitions of an existing topic, in order."""
        return [
            self.partitions[TopicPartition(topic, index)]
            for index in sorted(self.topics[topic].assignments)
        ]

    def has_topic(self, topic: str) -> bool:
        """Returns whether a topic exists for clients: until its deletion is requested."""
        return topic in self.topics and topic not in self.topic_deletions

    def is_deleting(self, topic: str) -> bool:
        """Returns whether the deletion of a topic has been requested but is not complete."""
        return topic in self.topic_deletions

    def leader_of(self, topic: str, index: int) -> tuple[int, int]:
        """Returns leader and leader epoch of a partition; both are -1 if it does not exist."""
        record = self.partitions.get(TopicPartition(topic, index))
        return (-1, -1) if record is None else (record.leader, record.leader_epoch)

    def broker_endpoints(self, listener: str) -> Iterator[tuple[BrokerRecord, Endpoint]]:
        """Yields the brokers that are up with their endpoint for clients of this listener."""
        for record in self.brokers.values():
            for endpoint in record.endpoints:
                if endpoint.listener == listener:
                    yield record, endpoint

    def apply(self, changes: Iterable[Change]) -> None:
        """Applies changes in their order; what is deleted need not exist."""
        for change in changes:
            if isinstance(change, Put):
                self._put(change.record)
            else:
                self._delete(change.key)

    def changes_to(
        self, records: Iterable[Record], is_included: Callable[[Key], bool] = lambda _key: True
    ) -> list[Change]:
        """Returns the changes that turn this image into that of `records`, deletions first.

        Records of keys that are not included stay as they are.

        A topic that was deleted and created again in between is deleted with its partitions first,
        so that no component takes the new topic for the old one.
        """
        return self._changes_between(
            (record for record in self._records() if is_included(record.key)), records
        )

    def metadata_changes_to(self, records: Iterable[Record]) -> list[Change]:
        """Like `changes_to`, for brokers, topics and partitions only.

        It may run on another thread while settings and ACLs change.
        """
        return self._changes_between(self._metadata_records(), records)

    def _changes_between(
        self, current_records: Iterable[Record], records: Iterable[Record]
    ) -> list[Change]:
        current = {record.key: record for record in current_records}
        target = {record.key: record for record in records}
        replaced_topics = {
            topic.topic
            for topic in self.topics.values()
            if isinstance(new := target.get(topic.key), TopicRecord)
            and new.topic_id != topic.topic_id
        }
        removed = [key for key in current if key not in target or _topic_of(key) in replaced_topics]
        removed.sort(key=lambda key: not isinstance(key, TopicPartition))
        for key in removed:
            del current[key]
        return [
            *map(Delete, removed),
            *(Put(record) for key, record in target.items() if current.get(key) != record),
        ]

    def _records(self) -> Iterator[Record]:
        """The records that the image was built from; the controller's without its timestamp."""
        if self.cluster_id:
            yield ClusterIdRecord(self.cluster_id)
        if self.login_secret:
            yield LoginSecretRecord(self.login_secret)
        if self.controller_id != -1:
            yield ControllerRecord(self.controller_id, -1)
        if self.controller_epoch:
            yield ControllerEpochRecord(self.controller_epoch)
        if self.features is not None:
            yield self.features
        if self.producer_ids is not None:
            yield self.producer_ids
        yield from self._metadata_records()
        yield from self.configs.values()
        yield from self.acls.values()
        yield from self.delegation_tokens.values()
        yield from self.topic_deletions.values()
        if self.reassign_partitions is not None:
            yield self.reassign_partitions
        if self.preferred_election is not None:
            yield self.preferred_election
        yield from self.isr_changes.values()
        yield from self.log_dir_events.values()

    def _metadata_records(self) -> Iterator[Record]:
        yield from self.brokers.values()
        yield from self.topics.values()
        yield from self.partitions.values()

    def _put(self, record: Record) -> None:
        match record:
            case TopicRecord():
                previous = self.topics.get(record.topic)
                if previous is not None and previous.topic_id != record.topic_id:
                    self.topic_names.pop(previous.topic_id, None)
                self.topics[record.topic] = record
                self.topic_names[record.topic_id] = record.topic
            case PartitionRecord():
                self.partitions[record.key] = record
            case ConfigRecord():
                self.configs[record.key] = record
            case AclRecord():
                self.acls[record.key] = record
            case DelegationTokenRecord():
                self.delegation_tokens[record.token_id] = record
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
            case LoginSecretRecord():
                self.login_secret = record.secret
            case TopicDeletionRecord():
                self.topic_deletions[record.topic] = record
            case ReassignPartitionsRecord():
                self.reassign_partitions = record
            case PreferredElectionRecord():
                self.preferred_election = record
            case IsrChangeRecord():
                self.isr_changes[record.sequence] = record
            case LogDirEventRecord():
                self.log_dir_events[record.sequence] = record

    def _delete(self, key: Key) -> None:
        match key:
            case TopicKey():
                record = self.topics.pop(key.topic, None)
                if record is not None:
                    self.topic_names.pop(record.topic_id, None)
            case TopicPartition():
                self.partitions.pop(key, None)
            case ConfigKey():
                self.configs.pop(key, None)
            case AclKey():
                self.acls.pop(key, None)
            case DelegationTokenKey():
                self.delegation_tokens.pop(key.token_id, None)
            case BrokerKey():
                self.brokers.pop(key.broker_id, None)
            case ClusterKey("controller"):
                self.controller_id = -1
            case TopicDeletionKey():
                del self.topic_deletions[key.topic]
            case ClusterKey("reassign_partitions"):
                self.reassign_partitions = None
            case ClusterKey("preferred_election"):
                self.preferred_election = None
            case IsrChangeKey():
                del self.isr_changes[key.sequence]
            case LogDirEventKey():
                del self.log_dir_events[key.sequence]
            case ClusterKey():
                raise ValueError(f"{key.name} is never deleted")


def _topic_of(key: Key) -> str | None:
    """Returns the topic that a topic's or a partition's key belongs to."""
    match key:
        case TopicKey(topic) | TopicPartition(topic, _):
            return topic
    return None
