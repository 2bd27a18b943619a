"""The rights that each API needs, for the documentation: docs/security-apis.md.

The handlers check them through `RequestAuthorizer`. A test compares what they ask for with this
table, and the answers of a broker with those of Apache Kafka.
"""

from typing import Final, NamedTuple, TypeAlias

from penstock.protocol.api_key import ApiKey
from penstock.security.acl import AclOperation, ResourceType

Right: TypeAlias = tuple[ResourceType, AclOperation]


class Need(NamedTuple):
    """Rights one of which a client needs, and for what; none if something else decides."""

    any_of: tuple[Right, ...]
    purpose: str = ""
    """Empty if every request needs it."""


def _need(resource: ResourceType, operation: AclOperation, purpose: str = "") -> Need:
    return Need(((resource, operation),), purpose)


_TOPIC, _GROUP, _TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_CLUSTER, _USER = ResourceType.CLUSTER, ResourceType.USER
_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

_BROKER: Final = (_need(_CLUSTER, AclOperation.CLUSTER_ACTION),)
_READ_GROUP: Final = (_need(_GROUP, _READ),)
_ALTER_CLUSTER: Final = (_need(_CLUSTER, _ALTER),)
_DESCRIBE_CLUSTER: Final = (_need(_CLUSTER, _DESCRIBE),)
_CREATE_TOPIC: Final = ((_CLUSTER, _CREATE), (_TOPIC, _CREATE))
_ALTER_RESOURCES: Final = (
    _need(_TOPIC, _ALTER_CONFIGS, "topics"),
    _need(_GROUP, _ALTER_CONFIGS, "groups"),
    _need(_CLUSTER, _ALTER_CONFIGS, "brokers, their loggers, client metrics"),
)

RIGHTS: Final[dict[ApiKey, tuple[Need, ...]]] = {
    ApiKey.PRODUCE: (
        _need(_TOPIC, _WRITE),
        _need(_TXN, _WRITE, "transactional records"),
    ),
    ApiKey.FETCH: (
        _need(_TOPIC, _READ, "consumers"),
        _need(_CLUSTER, AclOperation.CLUSTER_ACTION, "followers"),
    ),
    ApiKey.LIST_OFFSETS: (_need(_TOPIC, _DESCRIBE),),
    ApiKey.METADATA: (
        _need(_TOPIC, _DESCRIBE, "each topic"),
        Need(_CREATE_TOPIC, "topics that are created automatically"),
        _need(_CLUSTER, _DESCRIBE, "the operations on the cluster"),
    ),
    ApiKey.LEADER_AND_ISR: _BROKER,
    ApiKey.STOP_REPLICA: _BROKER,
    ApiKey.UPDATE_METADATA: _BROKER,
    ApiKey.CONTROLLED_SHUTDOWN: _BROKER,
    ApiKey.OFFSET_COMMIT: (*_READ_GROUP, _need(_TOPIC, _READ, "each topic")),
    ApiKey.OFFSET_FETCH: (
        _need(_GROUP, _DESCRIBE),
        _need(_TOPIC, _DESCRIBE, "each topic"),
    ),
    ApiKey.FIND_COORDINATOR: (
        _need(_GROUP, _DESCRIBE, "groups"),
        _need(_TXN, _DESCRIBE, "transactional ids"),
    ),
    ApiKey.JOIN_GROUP: _READ_GROUP,
    ApiKey.HEARTBEAT: _READ_GROUP,
    ApiKey.LEAVE_GROUP: _READ_GROUP,
    ApiKey.SYNC_GROUP: _READ_GROUP,
    ApiKey.DESCRIBE_GROUPS: (_need(_GROUP, _DESCRIBE),),
    ApiKey.LIST_GROUPS: (
        Need(((_CLUSTER, _DESCRIBE), (_GROUP, _DESCRIBE)), "each group; others are not listed"),
    ),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: (
        Need(_CREATE_TOPIC),
        _need(_TOPIC, _DESCRIBE_CONFIGS, "the settings in the response"),
    ),
    ApiKey.DELETE_TOPICS: (
        _need(_TOPIC, _DELETE),
        _need(_TOPIC, _DESCRIBE, "that a topic does not exist, and names of topic ids"),
    ),
    ApiKey.DELETE_RECORDS: (_need(_TOPIC, _DELETE),),
    ApiKey.INIT_PRODUCER_ID: (
        _need(_TXN, _WRITE, "transactional producers"),
        Need(
            ((_TOPIC, _WRITE), (_CLUSTER, AclOperation.IDEMPOTENT_WRITE)),
            "idempotent producers; any topic",
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Need(((_CLUSTER, AclOperation.CLUSTER_ACTION), (_TOPIC, _DESCRIBE))),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _need(_TXN, _WRITE, "clients"),
        _need(_TOPIC, _WRITE, "clients, each topic"),
        _need(_CLUSTER, AclOperation.CLUSTER_ACTION, "brokers, from version 4"),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_need(_TXN, _WRITE), *_READ_GROUP),
    ApiKey.END_TXN: (_need(_TXN, _WRITE),),
    ApiKey.WRITE_TXN_MARKERS: (
        Need(((_CLUSTER, _ALTER), (_CLUSTER, AclOperation.CLUSTER_ACTION))),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        _need(_TXN, _WRITE),
        *_READ_GROUP,
        _need(_TOPIC, _READ, "each topic"),
    ),
    ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
    ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
    ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS: (
        _need(_TOPIC, _DESCRIBE_CONFIGS, "topics"),
        _need(_GROUP, _DESCRIBE_CONFIGS, "groups"),
        _need(_CLUSTER, _DESCRIBE_CONFIGS, "brokers, their loggers, client metrics"),
    ),
    ApiKey.ALTER_CONFIGS: _ALTER_RESOURCES,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE_CLUSTER,
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_PARTITIONS: (_need(_TOPIC, _ALTER),),
    ApiKey.CREATE_DELEGATION_TOKEN: (
        _need(_USER, AclOperation.CREATE_TOKENS, "tokens of another user"),
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: (Need((), "the owner and the renewers of the token"),),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (Need((), "the owner and the renewers of the token"),),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        Need(
            (
                (ResourceType.DELEGATION_TOKEN, _DESCRIBE),
                (_USER, AclOperation.DESCRIBE_TOKENS),
            ),
            "tokens of other users; others are not listed",
        ),
    ),
    ApiKey.DELETE_GROUPS: (_need(_GROUP, _DELETE),),
    ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTER_RESOURCES,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
    ApiKey.OFFSET_DELETE: (_need(_GROUP, _DELETE), _need(_TOPIC, _READ, "each topic")),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_need(_CLUSTER, _DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_need(_CLUSTER, _ALTER_CONFIGS),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE_CLUSTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER_CLUSTER,
    ApiKey.ALTER_PARTITION: _BROKER,
    ApiKey.UPDATE_FEATURES: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_CLUSTER: (_need(_CLUSTER, _DESCRIBE, "the operations on the cluster"),),
    ApiKey.DESCRIBE_PRODUCERS: (_need(_TOPIC, _READ),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _need(_TXN, _DESCRIBE),
        _need(_TOPIC, _DESCRIBE, "each topic; others are not listed"),
    ),
    ApiKey.LIST_TRANSACTIONS: (_need(_TXN, _DESCRIBE, "each one; others are not listed"),),
    ApiKey.ALLOCATE_PRODUCER_IDS: _BROKER,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        *_READ_GROUP,
        _need(_TOPIC, _DESCRIBE, "each topic; those of a pattern that lack it are left out"),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _need(_GROUP, _DESCRIBE),
        _need(_TOPIC, _DESCRIBE, "all topics of the members"),
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (),
    ApiKey.PUSH_TELEMETRY: (),
    ApiKey.LIST_CONFIG_RESOURCES: (_need(_CLUSTER, _DESCRIBE_CONFIGS),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_need(_TOPIC, _DESCRIBE, "each topic"),),
}
