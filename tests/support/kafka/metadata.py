"""Metadata of all kinds in a cluster, made and described with the admin client."""

from penstock.client.admin.admin import Admin
from penstock.client.admin.model_configs import ConfigOp, ConfigResource
from penstock.client.admin.model_security import (
    AclBinding,
    AclBindingFilter,
    ClientQuotaEntity,
    Quota,
    ScramDeletion,
    ScramUpsertion,
)
from penstock.client.admin.model_topics import NewTopic
from penstock.protocol.enums import ConfigOpType, ConfigResourceType, ConfigSource
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from penstock.security.scram_credential import ScramMechanism

COMPACTED = ConfigResource(ConfigResourceType.TOPIC, "compacted")
TOPICS = ("compacted", "grown", "created-again")
BROKER_DEFAULTS = ConfigResource(ConfigResourceType.BROKER, "")
ACLS = [
    AclBinding(
        ResourceType.TOPIC,
        name,
        pattern,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )
    for name, pattern in (("compacted", PatternType.LITERAL), ("gr", PatternType.PREFIXED))
]


def change_everything(admin: Admin) -> None:
    """Makes changes of all kinds, and takes some of them back."""
    admin.create_topics(
        [
            NewTopic("compacted", 1, 1, configs={"cleanup.policy": "compact"}),
            NewTopic("grown", 2, 1),
            NewTopic("created-again", 3, 1, configs={"retention.ms": "1"}),
        ]
    )
    admin.create_partitions({"grown": 4})
    admin.delete_topics(["created-again"])
    admin.create_topics([NewTopic("created-again", 1, 1)])
    admin.incremental_alter_configs(
        {
            COMPACTED: [ConfigOp("segment.ms", "1234567"), ConfigOp("retention.bytes", "99")],
            BROKER_DEFAULTS: [ConfigOp("message.max.bytes", "2000000")],
        }
    )
    admin.incremental_alter_configs(
        {COMPACTED: [ConfigOp("retention.bytes", None, ConfigOpType.DELETE)]}
    )
    admin.create_acls(ACLS)
    denied = ACLS[0]._replace(permission=AclPermission.DENY)
    admin.create_acls([denied])
    admin.delete_acls([AclBindingFilter(*denied)])
    admin.alter_user_scram_credentials(
        [
            ScramUpsertion("ann", ScramMechanism.SCRAM_SHA_256, "secret"),
            ScramUpsertion("bob", ScramMechanism.SCRAM_SHA_512, "secret", 8192),
        ]
    )
    admin.alter_user_scram_credentials([ScramDeletion("bob", ScramMechanism.SCRAM_SHA_512)])
    admin.alter_client_quotas(
        {
            ClientQuotaEntity(user="ann"): {"producer_byte_rate": 1_000_000.0},
            ClientQuotaEntity(client_id=Quota.DEFAULT): {"request_percentage": 12.5},
        }
    )


def metadata_of(admin: Admin) -> dict[str, object]:
    """Returns what the admin client says about the cluster."""
    described = admin.describe_topics(TOPICS)
    configs = admin.describe_configs(
        [
            *(ConfigResource(ConfigResourceType.TOPIC, name) for name in TOPICS),
            ConfigResource(ConfigResourceType.TOPIC, "__consumer_offsets"),
            BROKER_DEFAULTS,
        ]
    )
    own_sources = (
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    return {
        "topics": {
            name: (topic.topic_id, [partition.replicas for partition in topic.partitions])
            for name, topic in described.items()
        },
        "configs": {
            (resource.name, entry.name): entry.value
            for resource, entries in configs.items()
            for entry in entries.values()
            if entry.source in own_sources
        },
        "acls": sorted(admin.describe_acls()),
        "users": admin.describe_user_scram_credentials(),
        "quotas": admin.describe_client_quotas(),
    }
