"""The matrix's requests that administer topics, settings, quotas, users and ACLs.

They change nothing: they only validate, or fail after the authorization.
"""

from typing import Final
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.enums import ConfigResourceType
from penstock.protocol.fields import Message
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from penstock.protocol.messages.alter_configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_acls import DescribeAclsRequest
from penstock.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from tests.support.security.case import Case
from tests.support.security.principals import ALLOWED_PREFIX
from tests.support.security.world import (
    DOOMED,
    GROUP,
    MISSING,
    NODE_ID,
    OTHER,
    OTHER_DOOMED,
    OTHER_GROUP,
    TOPIC,
    World,
    restore_topics,
)

_NAMES: Final = (TOPIC, MISSING, OTHER)
_FIRST_DELETION_WITH_STATES: Final = 6
_SET: Final = 0
_TIMEOUT_MS: Final = 10_000
_CONFIGS: Final = {
    ConfigResourceType.TOPIC: "retention.ms",
    ConfigResourceType.BROKER: "log.cleaner.threads",
    ConfigResourceType.GROUP: "consumer.session.timeout.ms",
}
"""A setting of each kind of resource."""
_VALUES: Final = {
    "retention.ms": "86400000",
    "log.cleaner.threads": "1",
    "consumer.session.timeout.ms": "45000",
}
_RESOURCES: Final = (
    *((ConfigResourceType.TOPIC, name) for name in _NAMES),
    (ConfigResourceType.BROKER, NODE_ID),
    (ConfigResourceType.GROUP, GROUP),
    (ConfigResourceType.GROUP, OTHER_GROUP),
)
_KINDS_OF_VERSION_0: Final = 4
"""So many of them are topics and brokers."""


def _create_topics(version: int, *names: str) -> Message:
    topics = [CreatableTopic(name, 1, 1) for name in names]
    return CreateTopicsRequest(topics, _TIMEOUT_MS, validate_only=version >= 1)


def _delete_topics(world: World, version: int) -> Message:
    names = (DOOMED, MISSING, OTHER_DOOMED)
    if version < _FIRST_DELETION_WITH_STATES:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=_TIMEOUT_MS)
    states = [DeleteTopicState(name) for name in names]
    return DeleteTopicsRequest(states, timeout_ms=_TIMEOUT_MS)


def _delete_topics_by_id(world: World, version: int) -> Message:
    ids = (world.topic_ids[DOOMED], UUID(int=77), world.topic_ids[OTHER_DOOMED])
    states = [DeleteTopicState(None, topic_id) for topic_id in ids]
    return DeleteTopicsRequest(states, timeout_ms=_TIMEOUT_MS)


def _delete_records(world: World, version: int) -> Message:
    partitions = [DeleteRecordsPartition(0, 0)]
    topics = [DeleteRecordsTopic(name, partitions) for name in _NAMES]
    return DeleteRecordsRequest(topics, _TIMEOUT_MS)


def _write_markers(world: World, version: int) -> Message:
    topics = [WritableTxnMarkerTopic(MISSING, [0])]
    return WriteTxnMarkersRequest([WritableTxnMarker(123_456, 0, True, topics)])


def _describe_acls(world: World, version: int) -> Message:
    request = DescribeAclsRequest(
        ResourceType.TOPIC,
        ALLOWED_PREFIX,
        principal_filter="User:topic_read",
        host_filter="*",
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )
    if version >= 1:
        request.pattern_type_filter = PatternType.PREFIXED
    return request


def _create_acls(world: World, version: int) -> Message:
    creation = AclCreation(
        ResourceType.TOPIC,
        "unrelated",
        principal="User:nobody",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermission.ALLOW,
    )
    return CreateAclsRequest([creation])


def _delete_acls(world: World, version: int) -> Message:
    no_match = DeleteAclsFilter(
        ResourceType.TOPIC,
        "without-acls",
        principal_filter="User:nobody",
        host_filter="*",
        operation=AclOperation.READ,
        permission_type=AclPermission.ALLOW,
    )
    return DeleteAclsRequest([no_match])


def _describe_configs(world: World, version: int) -> Message:
    resources = _RESOURCES[:_KINDS_OF_VERSION_0]
    if version >= 1:
        resources = (
            *_RESOURCES,
            (ConfigResourceType.BROKER_LOGGER, NODE_ID),
            (ConfigResourceType.CLIENT_METRICS, "unknown"),
        )
    return DescribeConfigsRequest(
        [DescribeConfigsResource(kind, name, None) for kind, name in resources]
    )


def _alter_configs(world: World, version: int) -> Message:
    resources = []
    for kind, resource in _RESOURCES:
        name = _CONFIGS[kind]
        configs = [AlterConfigsAlterableConfig(name, _VALUES[name])]
        resources.append(AlterConfigsResource(kind, resource, configs))
    return AlterConfigsRequest(resources, validate_only=True)


def _incremental_alter_configs(world: World, version: int) -> Message:
    interval = IncrementalAlterConfigsAlterableConfig("interval.ms", _SET, "60000")
    metrics = ConfigResourceType.CLIENT_METRICS
    resources = [IncrementalAlterConfigsResource(metrics, "new-metrics", [interval])]
    for kind, resource in _RESOURCES:
        name = _CONFIGS[kind]
        configs = [IncrementalAlterConfigsAlterableConfig(name, _SET, _VALUES[name])]
        resources.append(IncrementalAlterConfigsResource(kind, resource, configs))
    return IncrementalAlterConfigsRequest(resources, validate_only=True)


def _alter_replica_log_dirs(world: World, version: int) -> Message:
    topics = [AlterReplicaLogDirTopic(name, [0]) for name in _NAMES]
    return AlterReplicaLogDirsRequest([AlterReplicaLogDir("/no-such-log-dir", topics)])


def _create_partitions(world: World, version: int) -> Message:
    topics = [CreatePartitionsTopic(name, 2, None) for name in _NAMES]
    return CreatePartitionsRequest(topics, _TIMEOUT_MS, validate_only=True)


def _elect_leaders(world: World, version: int) -> Message:
    topics = [ElectLeadersTopicPartitions(name, [0]) for name in _NAMES]
    return ElectLeadersRequest(topic_partitions=topics, timeout_ms=_TIMEOUT_MS)


def _cancel_reassignments(world: World, version: int) -> Message:
    topics = [ReassignableTopic(name, [ReassignablePartition(0, None)]) for name in _NAMES]
    return AlterPartitionReassignmentsRequest(_TIMEOUT_MS, topics=topics)


def _alter_quotas(world: World, version: int) -> Message:
    entity = [AlterClientQuotasRequestEntityData("user", "nobody")]
    entry = AlterClientQuotasRequestEntryData(entity, [OpData("producer_byte_rate", 1e6)])
    return AlterClientQuotasRequest([entry], validate_only=True)


def _delete_credential(world: World, version: int) -> Message:
    return AlterUserScramCredentialsRequest([ScramCredentialDeletion("nobody", 1)])


def _update_features(world: World, version: int) -> Message:
    return UpdateFeaturesRequest(_TIMEOUT_MS, [FeatureUpdateKey("no.such.feature", 1)])


def _list_config_resources(world: World, version: int) -> Message:
    kinds = [ConfigResourceType.TOPIC, ConfigResourceType.GROUP, ConfigResourceType.BROKER]
    return ListConfigResourcesRequest([int(kind) for kind in kinds] if version else [])


ADMIN_CASES: Final = (
    Case(
        "of topics that exist",
        ApiKey.CREATE_TOPICS,
        lambda world, version: _create_topics(version, TOPIC, OTHER),
    ),
    Case(
        "of new topics",
        ApiKey.CREATE_TOPICS,
        lambda world, version: _create_topics(version, "allowed-new", "other-new"),
        first=1,
    ),
    Case("by name", ApiKey.DELETE_TOPICS, _delete_topics, restore=restore_topics),
    Case("by id", ApiKey.DELETE_TOPICS, _delete_topics_by_id, first=6, restore=restore_topics),
    Case("", ApiKey.DELETE_RECORDS, _delete_records),
    Case("", ApiKey.WRITE_TXN_MARKERS, _write_markers),
    Case("", ApiKey.DESCRIBE_ACLS, _describe_acls),
    Case("", ApiKey.CREATE_ACLS, _create_acls),
    Case("", ApiKey.DELETE_ACLS, _delete_acls),
    Case("", ApiKey.DESCRIBE_CONFIGS, _describe_configs),
    Case("", ApiKey.ALTER_CONFIGS, _alter_configs),
    Case("", ApiKey.INCREMENTAL_ALTER_CONFIGS, _incremental_alter_configs),
    Case("", ApiKey.ALTER_REPLICA_LOG_DIRS, _alter_replica_log_dirs),
    Case("", ApiKey.DESCRIBE_LOG_DIRS, lambda world, version: DescribeLogDirsRequest(None)),
    Case("", ApiKey.CREATE_PARTITIONS, _create_partitions),
    Case("", ApiKey.ELECT_LEADERS, _elect_leaders),
    Case("that cancels", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _cancel_reassignments),
    Case(
        "",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        lambda world, version: ListPartitionReassignmentsRequest(_TIMEOUT_MS),
    ),
    Case(
        "",
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        lambda world, version: DescribeClientQuotasRequest(),
    ),
    Case("", ApiKey.ALTER_CLIENT_QUOTAS, _alter_quotas),
    Case(
        "",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        # Of all users: Kafka never responds to those who may not ask.
        lambda world, version: DescribeUserScramCredentialsRequest([UserName("scram-user")]),
    ),
    Case("", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, _delete_credential),
    Case("", ApiKey.UPDATE_FEATURES, _update_features),
    Case("", ApiKey.DESCRIBE_CLUSTER, lambda world, version: DescribeClusterRequest(True)),
    Case("", ApiKey.LIST_CONFIG_RESOURCES, _list_config_resources),
)
