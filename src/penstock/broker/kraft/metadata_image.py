"""The metadata of a Kafka cluster in KRaft mode, and the changes that give it to a new store.

image = KraftImage()
for record in read_metadata(directory):
    image.apply(record)
changes = image.changes(cluster_image, broker_id, partitions_with_logs)
"""

from collections.abc import Collection
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker.metadata.features import SUPPORTED_FEATURES
from penstock.controller.acls import Binding, create_acls
from penstock.controller.configs import ENTITY_KINDS
from penstock.controller.entity_configs import Entity, replace_configs
from penstock.controller.features import finalize_levels
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    AccessControlEntry,
    AclKey,
    Assignment,
    Change,
    DelegationTokenRecord,
    PartitionRecord,
    Put,
    TopicRecord,
)
from penstock.core.ids import TopicPartition
from penstock.protocol.enums import ConfigResourceType
from penstock.protocol.fields import Message
from penstock.protocol.stored import cluster_metadata as kraft
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from penstock.security.quota_entities import altered_values, entity_of_wire
from penstock.security.scram_credential import ScramCredential, ScramMechanism

_NO_LEADER: Final = -1
_SAME_LEADER: Final = -2


class _Partition(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    leader_epoch: int
    leader_recovery_state: int


class KraftImage:
    """The state that the records of a metadata log add up to."""

    def __init__(self) -> None:
        self._names: dict[UUID, str] = {}
        self._partitions: dict[UUID, dict[int, _Partition]] = {}
        self._configs: dict[Entity, dict[str, str]] = {}
        self._acls: dict[UUID, Binding] = {}
        self._tokens: dict[str, DelegationTokenRecord] = {}
        self._features: dict[str, int] = {}
        self.last_producer_id = -1
        """The last id of the blocks that were allocated."""
        self._transaction: list[Message] | None = None
        """The records of a transaction that has not ended."""

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._names.values())

    # --- records

    def apply(self, record: Message) -> None:
        match record:
            case kraft.BeginTransactionRecord():
                self._transaction = []
            case kraft.EndTransactionRecord():
                records, self._transaction = self._transaction or [], None
                for pending in records:
                    self._apply(pending)
            case kraft.AbortTransactionRecord():
                self._transaction = None
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record)

    def _apply(self, record: Message) -> None:
        match record:
            case kraft.TopicRecord():
                self._names[record.topic_id] = record.name
                self._partitions[record.topic_id] = {}
            case kraft.RemoveTopicRecord():
                name = self._names.pop(record.topic_id, "")
                self._partitions.pop(record.topic_id, None)
                self._configs.pop((("topics", name),), None)
            case kraft.PartitionRecord():
                self._partitions[record.topic_id][record.partition_id] = _Partition(
                    tuple(record.replicas),
                    tuple(record.adding_replicas),
                    tuple(record.removing_replicas),
                    tuple(record.isr),
                    tuple(record.eligible_leader_replicas or ()),
                    record.leader_epoch,
                    record.leader_recovery_state,
                )
            case kraft.PartitionChangeRecord():
                partitions = self._partitions[record.topic_id]
                before = partitions[record.partition_id]
                partitions[record.partition_id] = _changed(before, record)
            case kraft.ConfigRecord():
                kind = ENTITY_KINDS.get(ConfigResourceType.from_code(record.resource_type))
                if kind is not None:
                    name = record.resource_name or DEFAULT_ENTITY
                    self._set(((kind, name),), record.name, record.value)
            case kraft.ClientQuotaRecord():
                entity = entity_of_wire(
                    (part.entity_type, part.entity_name) for part in record.entity
                )
                value = None if record.remove else record.value
                self._configs[entity] = altered_values(
                    entity, self._configs.get(entity, {}), [(record.key, value)]
                )
            case kraft.UserScramCredentialRecord():
                credential = ScramCredential(
                    record.salt, record.stored_key, record.server_key, record.iterations
                )
                self._set_credential(record.name, record.mechanism, credential.to_text())
            case kraft.RemoveUserScramCredentialRecord():
                self._set_credential(record.name, record.mechanism, None)
            case kraft.AccessControlEntryRecord():
                self._acls[record.id] = _binding(record)
            case kraft.RemoveAccessControlEntryRecord():
                self._acls.pop(record.id, None)
            case kraft.DelegationTokenRecord():
                self._tokens[record.token_id] = _token(record)
            case kraft.RemoveDelegationTokenRecord():
                self._tokens.pop(record.token_id, None)
            case kraft.FeatureLevelRecord():
                self._features[record.name] = record.feature_level
            case kraft.ProducerIdsRecord():
                self.last_producer_id = record.next_producer_id - 1

    def _set(self, entity: Entity, name: str, value: str | None) -> None:
        values = self._configs.setdefault(entity, {})
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value

    def _set_credential(self, user: str, mechanism: int, value: str | None) -> None:
        self._set((("users", user),), ScramMechanism(mechanism).mechanism_name, value)

    # --- changes

    def changes(
        self, image: ClusterImage, broker_id: int, logs: Collection[TopicPartition]
    ) -> list[Change]:
        """Returns the changes that add all of it to a store without topics, except producer ids.

        `logs` are the partitions that this broker has a log of. It is the first one of the cluster
        that starts, and leads those whose ISR it is in; the others get a leader when one of their
        brokers starts. Feature levels that are higher than this broker's are lowered to them:
        nothing that Kafka has written needs them.
        """
        changes: list[Change] = []
        for topic_id, name in self._names.items():
            partitions = self._partitions[topic_id]
            assignments = {
                number: Assignment(partition.replicas, partition.adding, partition.removing)
                for number, partition in sorted(partitions.items())
            }
            changes.append(Put(TopicRecord(name, topic_id, assignments)))
            for number, partition in sorted(partitions.items()):
                has_log = TopicPartition(name, number) in logs or partition.isr == (broker_id,)
                candidate = broker_id if has_log else _NO_LEADER
                state = _with_leader(name, number, partition, candidate, image.controller_epoch)
                changes.append(Put(state))
        for entity, values in self._configs.items():
            changes += replace_configs(image, entity, values)
        changes += create_acls(image, self._acls.values())
        changes += map(Put, self._tokens.values())
        levels = {
            name: min(self._features.get(name, 0), highest)
            for name, (_, highest) in SUPPORTED_FEATURES.items()
        }
        changes += finalize_levels(image, levels)
        return changes


def _changed(before: _Partition, record: kraft.PartitionChangeRecord) -> _Partition:
    def new(value: list[int] | None, current: tuple[int, ...]) -> tuple[int, ...]:
        return current if value is None else tuple(value)

    has_new_leader = record.leader != _SAME_LEADER
    recovery_state = record.leader_recovery_state
    return _Partition(
        new(record.replicas, before.replicas),
        new(record.adding_replicas, before.adding),
        new(record.removing_replicas, before.removing),
        new(record.isr, before.isr),
        new(record.eligible_leader_replicas, before.eligible),
        before.leader_epoch + has_new_leader,
        before.leader_recovery_state if recovery_state < 0 else recovery_state,
    )


def _with_leader(
    topic: str, number: int, partition: _Partition, candidate: int, controller_epoch: int
) -> PartitionRecord:
    """Returns the state of a partition that the candidate leads if it has all committed records."""
    leader, isr, eligible = _NO_LEADER, partition.isr, partition.eligible
    if candidate in isr:
        leader = candidate
    elif candidate in eligible:
        leader, isr = candidate, (candidate,)
    return PartitionRecord(
        topic,
        number,
        leader,
        partition.leader_epoch + 1,
        isr,
        controller_epoch,
        0,
        partition.leader_recovery_state,
        tuple(member for member in eligible if member not in isr),
    )


def _binding(record: kraft.AccessControlEntryRecord) -> Binding:
    key = AclKey(
        ResourceType.from_code(record.resource_type).name,
        PatternType.from_code(record.pattern_type).name,
        record.resource_name,
    )
    operation = AclOperation.from_code(record.operation).name
    permission = AclPermission.from_code(record.permission_type).name
    return key, AccessControlEntry(record.principal, record.host, operation, permission)


def _token(record: kraft.DelegationTokenRecord) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )
