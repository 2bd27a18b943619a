"""Encoding and decoding of records as node contents: Kafka 3.9's JSON in ZooKeeper.

The bytes equal Kafka's wherever the order of fields is defined. A record is one node. The nodes in
between (`/brokers/topics/<topic>/partitions`, `…/partitions/0`) are empty; a store that needs them
creates them as it commits.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from urllib.parse import unquote
from uuid import UUID

from msgspec import UNSET

from penstock.cluster.paths import key_of, pascal_case, sanitize
from penstock.cluster.znode_json import (
    AclEntryJson,
    AclsJson,
    BrokerJson,
    ClusterIdJson,
    ConfigJson,
    ControllerJson,
    DamagedNodeError,
    DelegationTokenJson,
    FeatureLevelJson,
    FeatureRangeJson,
    FeaturesJson,
    LogDirEventJson,
    LoginSecretJson,
    PartitionJson,
    PartitionNameJson,
    PartitionNamesJson,
    PartitionReplicasJson,
    ProducerIdsJson,
    ReassignPartitionsJson,
    TopicJson,
    encode_json,
    parse,
)
from penstock.controller.metadata import (
    AccessControlEntry,
    AclKey,
    AclRecord,
    Assignment,
    BrokerKey,
    BrokerRecord,
    ClusterIdRecord,
    ClusterKey,
    ConfigKey,
    ConfigRecord,
    ControllerEpochRecord,
    ControllerRecord,
    DelegationTokenKey,
    DelegationTokenRecord,
    Endpoint,
    FeaturesRecord,
    IsrChangeKey,
    IsrChangeRecord,
    LogDirEventKey,
    LogDirEventRecord,
    LoginSecretRecord,
    PartitionRecord,
    PreferredElectionRecord,
    ProducerIdsRecord,
    ReassignPartitionsRecord,
    Record,
    SecurityProtocol,
    TopicDeletionKey,
    TopicDeletionRecord,
    TopicKey,
    TopicRecord,
)
from penstock.core.ids import TopicId, TopicPartition

NO_TOPIC_ID: Final = TopicId(int=0)
"""The id of a topic that Kafka before 2.8 created: the controller has to assign one."""

_OPERATIONS: Final = {
    pascal_case(name): name
    for name in (
        "ALL",
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
        "CREATE_TOKENS",
        "DESCRIBE_TOKENS",
    )
}
_PERMISSIONS: Final = {"Allow": "ALLOW", "Deny": "DENY"}
_ENDPOINT: Final = re.compile(r"([^:]+)://(?:\[([^\]]*)\]|([^:]*)):([0-9]{1,5})")


# --- encoding


def encode(record: Record) -> bytes:
    """Returns the content of the record's node, without what its path or version contains."""
    match record:
        case PartitionRecord():
            return encode_json(
                PartitionJson(
                    controller_epoch=record.controller_epoch,
                    leader=record.leader,
                    leader_recovery_state=record.leader_recovery_state or UNSET,
                    leader_epoch=record.leader_epoch,
                    isr=record.isr,
                    eligible_leader_replicas=record.eligible_leader_replicas or UNSET,
                )
            )
        case TopicRecord():
            return encode_json(_topic_json(record))
        case ConfigRecord():
            return encode_json(ConfigJson(config=dict(sorted(record.values.items()))))
        case AclRecord():
            entries = [
                AclEntryJson(
                    e.principal, pascal_case(e.permission), e.host, pascal_case(e.operation)
                )
                for e in sorted(record.entries)
            ]
            return encode_json(AclsJson(acls=entries))
        case DelegationTokenRecord():
            return encode_json(_token_json(record))
        case BrokerRecord():
            return encode_json(_broker_json(record))
        case ControllerRecord():
            return encode_json(
                ControllerJson(brokerid=record.broker_id, timestamp=str(record.timestamp_ms))
            )
        case ControllerEpochRecord():
            return str(record.epoch).encode()
        case FeaturesRecord():
            levels = {name: FeatureLevelJson(level) for name, level in record.levels.items()}
            return encode_json(FeaturesJson(features=levels))
        case ProducerIdsRecord():
            return encode_json(
                ProducerIdsJson(
                    broker=record.broker_id,
                    block_start=str(record.block_start),
                    block_end=str(record.block_end),
                )
            )
        case ClusterIdRecord():
            return encode_json(ClusterIdJson(id=record.cluster_id))
        case LoginSecretRecord():
            return encode_json(LoginSecretJson(secret=record.secret))
        case TopicDeletionRecord():
            return b""
        case ReassignPartitionsRecord():
            moves = [
                PartitionReplicasJson(*partition, replicas)
                for partition, replicas in record.replicas.items()
            ]
            return encode_json(ReassignPartitionsJson(partitions=moves))
        case PreferredElectionRecord() | IsrChangeRecord():
            names = [PartitionNameJson(*partition) for partition in record.partitions]
            return encode_json(PartitionNamesJson(partitions=names))
        case LogDirEventRecord():
            return encode_json(LogDirEventJson(broker=record.broker_id))


def _topic_json(record: TopicRecord) -> TopicJson:
    by_partition = sorted(record.assignments.items())
    return TopicJson(
        partitions={partition: a.replicas for partition, a in by_partition},
        topic_id=_base64(record.topic_id),
        adding_replicas={partition: a.adding for partition, a in by_partition if a.adding},
        removing_replicas={partition: a.removing for partition, a in by_partition if a.removing},
    )


def _broker_json(record: BrokerRecord) -> BrokerJson:
    plain = next(
        (e for e in record.endpoints if e.security_protocol is SecurityProtocol.PLAINTEXT), None
    )
    return BrokerJson(
        features={name: FeatureRangeJson(*span) for name, span in record.features.items()},
        listener_security_protocol_map={
            e.listener: e.security_protocol.value for e in record.endpoints
        },
        endpoints=[
            f"{e.listener}://{f'[{e.host}]' if ':' in e.host else e.host}:{e.port}"
            for e in record.endpoints
        ],
        rack=UNSET if record.rack is None else record.rack,
        port=-1 if plain is None else plain.port,
        host=None if plain is None else plain.host,
        timestamp=str(record.timestamp_ms),
        unclean=record.is_unclean if record.reports_losses else UNSET,
    )


def _token_json(record: DelegationTokenRecord) -> DelegationTokenJson:
    return DelegationTokenJson(
        owner=sanitize(record.owner),
        token_requester=sanitize(record.requester),
        renewers=tuple(map(sanitize, record.renewers)),
        issue_timestamp=record.issue_ms,
        max_timestamp=record.max_ms,
        expiry_timestamp=record.expiry_ms,
        token_id=record.token_id,
    )


def _base64(topic_id: TopicId) -> str:
    return urlsafe_b64encode(topic_id.bytes)[:22].decode()


# --- decoding


def decode(path: str, data: bytes, version: int, created: int = -1) -> Record | None:
    """Returns the record at `path`; None for a node whose content was removed, or is yet to come.

    `version` is the node's version. `created` is the transaction that created the node, which is
    the epoch of a broker. Raises `DamagedNodeError`.
    """
    match key_of(path):
        case TopicPartition(topic, partition):
            state = parse(path, data, PartitionJson)
            _check_version(path, state.version, (1,))
            return PartitionRecord(
                topic=topic,
                partition=partition,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                controller_epoch=state.controller_epoch,
                partition_epoch=version,
                leader_recovery_state=(
                    0 if state.leader_recovery_state is UNSET else state.leader_recovery_state
                ),
                eligible_leader_replicas=(
                    ()
                    if state.eligible_leader_replicas is UNSET
                    else state.eligible_leader_replicas
                ),
            )
        case TopicKey(topic):
            return _topic_record(path, topic, parse(path, data, TopicJson))
        case ConfigKey(entity):
            return _config_record(path, entity, data)
        case AclKey() as acl_key:
            return _acl_record(path, acl_key, data)
        case DelegationTokenKey(token_id):
            return _token_record(path, token_id, data)
        case BrokerKey(broker_id):
            return _broker_record(path, broker_id, parse(path, data, BrokerJson), created)
        case TopicDeletionKey(topic):
            return TopicDeletionRecord(topic)
        case IsrChangeKey(sequence):
            return IsrChangeRecord(sequence, _partition_names(path, data))
        case LogDirEventKey(sequence):
            return LogDirEventRecord(sequence, parse(path, data, LogDirEventJson).broker)
        case ClusterKey(name):
            return _single_record(path, name, data, version)
        case None:
            raise DamagedNodeError(path, "no record has this path")


def _single_record(path: str, name: str, data: bytes, version: int) -> Record | None:
    match name:
        case "cluster_id":
            return ClusterIdRecord(parse(path, data, ClusterIdJson).id)
        case "login_secret":
            return LoginSecretRecord(parse(path, data, LoginSecretJson).secret)
        case "controller":
            controller = parse(path, data, ControllerJson)
            return ControllerRecord(
                controller.brokerid, _long(path, "timestamp", controller.timestamp)
            )
        case "controller_epoch":
            return ControllerEpochRecord(_long(path, "epoch", data.decode(errors="replace")))
        case "features":
            features = parse(path, data, FeaturesJson)
            _check_version(path, features.version, (1, 2))
            enabled = features.features if features.status == 1 else {}
            levels = {name: level.max_version_level for name, level in enabled.items()}
            return FeaturesRecord(levels, epoch=version)
        case "reassign_partitions":
            moves = parse(path, data, ReassignPartitionsJson).partitions
            return ReassignPartitionsRecord(
                {TopicPartition(move.topic, move.partition): move.replicas for move in moves}
            )
        case "preferred_election":
            return PreferredElectionRecord(_partition_names(path, data))
        case _ if not data:
            return None  # Kafka creates the node of producer ids before it allocates the first
        case _:
            block = parse(path, data, ProducerIdsJson)
            return ProducerIdsRecord(
                block.broker,
                _long(path, "block_start", block.block_start),
                _long(path, "block_end", block.block_end),
            )


def _partition_names(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    names = parse(path, data, PartitionNamesJson).partitions
    return tuple(TopicPartition(name.topic, name.partition) for name in names)


def _topic_record(path: str, topic: str, json: TopicJson) -> TopicRecord:
    _check_version(path, json.version, (1, 2, 3))
    if sorted(json.partitions) != list(range(len(json.partitions))):
        raise DamagedNodeError(path, f"its partitions {sorted(json.partitions)} have a gap")
    assignments = {
        partition: Assignment(
            replicas,
            json.adding_replicas.get(partition, ()),
            json.removing_replicas.get(partition, ()),
        )
        for partition, replicas in sorted(json.partitions.items())
    }
    topic_id = NO_TOPIC_ID if json.topic_id is None else _uuid(path, json.topic_id)
    return TopicRecord(topic, topic_id, assignments)


def _config_record(
    path: str, entity: tuple[tuple[str, str], ...], data: bytes
) -> ConfigRecord | None:
    if not data:
        return None
    json = parse(path, data, ConfigJson)
    _check_version(path, json.version, (1,))
    return ConfigRecord(entity, json.config) if json.config else None


def _acl_record(path: str, key: AclKey, data: bytes) -> AclRecord | None:
    if not data:
        return None
    json = parse(path, data, AclsJson)
    _check_version(path, json.version, (1,))
    entries = set()
    for entry in json.acls:
        operation = _OPERATIONS.get(entry.operation)
        permission = _PERMISSIONS.get(entry.permission_type)
        if operation is None or permission is None:
            raise DamagedNodeError(
                path, f"{entry.permission_type} {entry.operation} is not a permission"
            )
        entries.add(AccessControlEntry(entry.principal, entry.host, operation, permission))
    return AclRecord(*key, entries=frozenset(entries)) if entries else None


def _token_record(path: str, token_id: str, data: bytes) -> DelegationTokenRecord | None:
    if not data:
        return None
    json = parse(path, data, DelegationTokenJson)
    _check_version(path, json.version, (1, 2, 3))
    if json.token_id != token_id:
        raise DamagedNodeError(path, f"its tokenId is {json.token_id!r}")
    owner = unquote(json.owner)
    requester = owner if json.token_requester is None else unquote(json.token_requester)
    renewers = tuple(map(unquote, json.renewers))
    for principal in (owner, requester, *renewers):
        if ":" not in principal:
            raise DamagedNodeError(path, f"{principal!r} is not a principal")
    return DelegationTokenRecord(
        token_id,
        owner,
        requester,
        renewers,
        json.issue_timestamp,
        json.max_timestamp,
        json.expiry_timestamp,
    )


def _broker_record(path: str, broker_id: int, json: BrokerJson, created: int) -> BrokerRecord:
    _check_version(path, json.version, (2, 3, 4, 5))
    protocols = json.listener_security_protocol_map
    endpoints = []
    for text in json.endpoints:
        match = _ENDPOINT.fullmatch(text)
        if match is None:
            raise DamagedNodeError(path, f"{text!r} is not an endpoint")
        listener, bracketed, host, port = match.groups()
        name = listener if protocols is None else protocols.get(listener, "")
        if name not in SecurityProtocol.__members__:
            raise DamagedNodeError(path, f"listener {listener} has no known security protocol")
        endpoints.append(
            Endpoint(listener, bracketed or host or "", int(port), SecurityProtocol(name))
        )
    return BrokerRecord(
        broker_id=broker_id,
        endpoints=tuple(endpoints),
        rack=None if json.rack is UNSET else json.rack,
        timestamp_ms=_long(path, "timestamp", json.timestamp),
        features={
            name: (span.min_version, span.max_version)
            for name, span in (json.features or {}).items()
        },
        epoch=created,
        is_unclean=json.unclean is True,
        reports_losses=json.unclean is not UNSET,
    )


def _check_version(path: str, version: int, supported: tuple[int, ...]) -> None:
    if version not in supported:
        raise DamagedNodeError(path, f"its version {version} is higher than {supported[-1]}")


def _long(path: str, name: str, text: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,19}", text) is None:
        raise DamagedNodeError(path, f"{name} {text!r} is not a number")
    return int(text)


def _uuid(path: str, text: str) -> TopicId:
    try:
        topic_id = UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise DamagedNodeError(path, f"topic_id {text!r} is not a topic id") from error
    if _base64(topic_id) != text:
        raise DamagedNodeError(path, f"topic_id {text!r} is not a topic id")
    return topic_id
