"""The metadata of a stopped cluster as the records of a KRaft controller: the way back to Kafka.

It is the reverse of `metadata_image`. No broker is up, so no partition has a leader: Kafka's
controller elects one of the ISR when its broker has registered.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from penstock.broker.config.broker_settings import BROKER_SETTINGS
from penstock.broker.config.settings import Setting
from penstock.broker.config.topic_config import TOPIC_SETTINGS
from penstock.broker.metadata.features import SUPPORTED_FEATURES
from penstock.controller.configs import ENTITY_KINDS
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    AclRecord,
    Assignment,
    ConfigRecord,
    DelegationTokenRecord,
    PartitionRecord,
    TopicRecord,
)
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import ZERO_UUID, Message
from penstock.protocol.stored import cluster_metadata as kraft
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from penstock.security.quota_entities import entity_to_wire, quota_values
from penstock.security.scram_credential import ScramCredential, ScramMechanism

METADATA_VERSION: Final = 25
"""The level of `metadata.version` that Kafka 4.0 has, so that every Kafka 4 can read it."""
PARTITION_VERSION: Final = 2
"""The version of partition records at that level: they have directory ids."""

_NO_LEADER: Final = -1
_ACL_IDS: Final = UUID("7b4b1c7e-5a0c-4c57-9d3c-51a4a0f2d7c9")
_RESOURCE_TYPES: Final = {kind: resource_type for resource_type, kind in ENTITY_KINDS.items()}
_NO_TABLE: Final[Mapping[str, Setting]] = {}
_TABLES: Final[Mapping[str, Mapping[str, Setting]]] = {
    "topics": TOPIC_SETTINGS,
    "brokers": BROKER_SETTINGS,
}
_MECHANISMS: Final = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}

DirectoryIds = Mapping[tuple[int, TopicPartition], UUID]
"""The id of the log directory that has the log of a partition, by broker."""


class KraftRecords(NamedTuple):
    """The records of a snapshot, and what they do not contain."""

    records: list[Message]
    omissions: list[str]
    """A sentence about each thing that Kafka cannot take over."""


def to_kraft_records(image: ClusterImage, directory_ids: DirectoryIds) -> KraftRecords:
    """Returns records that add up to this image.

    They are the same on every node, so that the controllers of a cluster start with one state.
    """
    omissions: list[str] = []
    records: list[Message] = [kraft.FeatureLevelRecord("metadata.version", METADATA_VERSION)]
    records += _feature_records(image, omissions)
    for name, topic in sorted(image.topics.items()):
        if image.is_deleting(name):
            omissions.append(f"topic {name}: its deletion was requested")
        else:
            records += _topic_records(image, topic, directory_ids, omissions)
    for _, config in sorted(image.configs.items()):
        kind, name = config.entity[0]
        if kind != "topics" or image.has_topic(name):
            records += _config_records(config, omissions)
        elif not image.is_deleting(name):
            omissions.append(f"settings of topic {name}: there is no such topic")
    for _, acl in sorted(image.acls.items()):
        records += _acl_records(acl)
    records += map(_token_record, (token for _, token in sorted(image.delegation_tokens.items())))
    if image.producer_ids is not None:
        block = image.producer_ids
        records.append(kraft.ProducerIdsRecord(block.broker_id, -1, block.block_end + 1))
    return KraftRecords(records, omissions)


def _feature_records(image: ClusterImage, omissions: list[str]) -> Iterator[Message]:
    levels = {} if image.features is None else image.features.levels
    for name, level in sorted(levels.items()):
        if name not in SUPPORTED_FEATURES:
            omissions.append(f"level {level} of feature {name}: set it in Kafka if it has it")
        elif level:
            yield kraft.FeatureLevelRecord(name, level)


def _topic_records(
    image: ClusterImage, topic: TopicRecord, directory_ids: DirectoryIds, omissions: list[str]
) -> Iterator[Message]:
    yield kraft.TopicRecord(topic.topic, topic.topic_id)
    for number, assignment in sorted(topic.assignments.items()):
        key = TopicPartition(topic.topic, number)
        state = image.partitions.get(key)
        if state is None:
            # The controller stopped between the two nodes of a new topic.
            state = PartitionRecord(topic.topic, number, -1, 0, assignment.replicas, 0, 0)
        yield _partition_record(topic, state, assignment, directory_ids, omissions)


def _partition_record(
    topic: TopicRecord,
    state: PartitionRecord,
    assignment: Assignment,
    directory_ids: DirectoryIds,
    omissions: list[str],
) -> Message:
    isr = list(state.isr)
    if not isr:
        # They have every committed record, which is what the ISR stands for.
        isr = list(state.eligible_leader_replicas)
    elif state.eligible_leader_replicas:
        omissions.append(f"eligible leader replicas of {state.key}: its ISR is kept")
    return kraft.PartitionRecord(
        partition_id=state.partition,
        topic_id=topic.topic_id,
        replicas=list(assignment.replicas),
        isr=isr,
        removing_replicas=list(assignment.removing),
        adding_replicas=list(assignment.adding),
        leader=_NO_LEADER,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=[
            directory_ids.get((broker_id, state.key), ZERO_UUID)
            for broker_id in assignment.replicas
        ],
    )


def _config_records(config: ConfigRecord, omissions: list[str]) -> Iterator[Message]:
    kind, name = config.entity[0]
    resource_type = _RESOURCE_TYPES.get(kind)
    if resource_type is None:
        yield from _client_records(config, omissions)
        return
    table = _TABLES.get(kind, _NO_TABLE)
    for key, value in sorted(config.values.items()):
        if key in table and table[key].old:
            omissions.append(f"{key}={value} of {kind} {name}: Kafka 4 has no such setting")
        else:
            resource_name = "" if name == DEFAULT_ENTITY else name
            yield kraft.ConfigRecord(resource_type, resource_name, key, value)


def _client_records(config: ConfigRecord, omissions: list[str]) -> Iterator[Message]:
    """Yields the quotas and the credentials of users, client ids and IP addresses."""
    entity = [kraft.EntityData(*part) for part in entity_to_wire(config.entity)]
    quotas = quota_values(config.values)
    for key, value in sorted(config.values.items()):
        if key in quotas:
            yield kraft.ClientQuotaRecord(entity, key, quotas[key])
        elif key in _MECHANISMS and len(config.entity) == 1:
            credential = ScramCredential.from_text(value)
            yield kraft.UserScramCredentialRecord(
                config.entity[0][1],
                _MECHANISMS[key],
                credential.salt,
                credential.stored_key,
                credential.server_key,
                credential.iterations,
            )
        else:
            names = ", ".join(f"{kind} {name}" for kind, name in config.entity)
            omissions.append(f"{key} of {names}: neither a quota nor a credential")


def _token_record(token: DelegationTokenRecord) -> Message:
    return kraft.DelegationTokenRecord(
        token.owner,
        token.requester,
        list(token.renewers),
        token.issue_ms,
        token.max_ms,
        token.expiry_ms,
        token.token_id,
    )


def _acl_records(acl: AclRecord) -> Iterator[Message]:
    for entry in sorted(acl.entries):
        yield kraft.AccessControlEntryRecord(
            uuid5(_ACL_IDS, "\0".join((*acl.key, *entry))),
            ResourceType[acl.resource_type],
            acl.name,
            PatternType[acl.pattern_type],
            entry.principal,
            entry.host,
            AclOperation[entry.operation],
            AclPermission[entry.permission],
        )
