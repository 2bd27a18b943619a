"""The handler table: the APIs that this broker serves, and their versions.

An API that is not in the table is not advertised; those of `CLUSTER_APIS` are served only by
brokers of a cluster (see `ApiVersionManager`). Adding one takes a module `kNN_name.py` with a
function `handle(context, request, body)`, and a line here. The module declares what its handler
needs as a frozen dataclass `Context` of fields of `Broker`; `HandlerSpec.bind` fills it by name.
The module is imported with the first request for its API.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from penstock.broker.request import HandlerResult, Request
from penstock.protocol.api_key import ApiKey

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

Handler: TypeAlias = Callable[[Request, Any], HandlerResult]
"""`handler(request, body)`, where `body` has the request class of the API."""


class HandlerSpec(NamedTuple):
    """One API. It states the versions so that ApiVersions need not import every message."""

    module: str
    min_version: int
    max_version: int

    def bind(self, broker: "Broker") -> Handler:
        """Returns the handler with its context; imports the module."""
        module = import_module(f"penstock.broker.handlers.{self.module}")
        context = module.Context(
            **{field.name: getattr(broker, field.name) for field in fields(module.Context)}
        )
        return partial(module.handle, context)


HANDLERS: Final[dict[ApiKey, HandlerSpec]] = {
    ApiKey.PRODUCE: HandlerSpec("k00_produce", 0, 13),
    ApiKey.FETCH: HandlerSpec("k01_fetch", 0, 18),
    ApiKey.LIST_OFFSETS: HandlerSpec("k02_list_offsets", 0, 11),
    ApiKey.METADATA: HandlerSpec("k03_metadata", 0, 13),
    ApiKey.LEADER_AND_ISR: HandlerSpec("k04_leader_and_isr", 0, 7),
    ApiKey.STOP_REPLICA: HandlerSpec("k05_stop_replica", 0, 4),
    ApiKey.UPDATE_METADATA: HandlerSpec("k06_update_metadata", 0, 8),
    ApiKey.CONTROLLED_SHUTDOWN: HandlerSpec("k07_controlled_shutdown", 0, 3),
    ApiKey.OFFSET_COMMIT: HandlerSpec("k08_offset_commit", 0, 10),
    ApiKey.OFFSET_FETCH: HandlerSpec("k09_offset_fetch", 0, 10),
    ApiKey.FIND_COORDINATOR: HandlerSpec("k10_find_coordinator", 0, 6),
    ApiKey.JOIN_GROUP: HandlerSpec("k11_join_group", 0, 9),
    ApiKey.HEARTBEAT: HandlerSpec("k12_heartbeat", 0, 4),
    ApiKey.LEAVE_GROUP: HandlerSpec("k13_leave_group", 0, 5),
    ApiKey.SYNC_GROUP: HandlerSpec("k14_sync_group", 0, 5),
    ApiKey.DESCRIBE_GROUPS: HandlerSpec("k15_describe_groups", 0, 6),
    ApiKey.LIST_GROUPS: HandlerSpec("k16_list_groups", 0, 5),
    ApiKey.SASL_HANDSHAKE: HandlerSpec("k17_sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: HandlerSpec("k18_api_versions", 0, 5),
    ApiKey.CREATE_TOPICS: HandlerSpec("k19_create_topics", 0, 7),
    ApiKey.DELETE_TOPICS: HandlerSpec("k20_delete_topics", 0, 6),
    ApiKey.DELETE_RECORDS: HandlerSpec("k21_delete_records", 0, 2),
    ApiKey.INIT_PRODUCER_ID: HandlerSpec("k22_init_producer_id", 0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: HandlerSpec("k23_offset_for_leader_epoch", 0, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: HandlerSpec("k24_add_partitions_to_txn", 0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: HandlerSpec("k25_add_offsets_to_txn", 0, 4),
    ApiKey.END_TXN: HandlerSpec("k26_end_txn", 0, 5),
    ApiKey.WRITE_TXN_MARKERS: HandlerSpec("k27_write_txn_markers", 0, 2),
    ApiKey.TXN_OFFSET_COMMIT: HandlerSpec("k28_txn_offset_commit", 0, 6),
    ApiKey.DESCRIBE_ACLS: HandlerSpec("k29_describe_acls", 0, 3),
    ApiKey.CREATE_ACLS: HandlerSpec("k30_create_acls", 0, 3),
    ApiKey.DELETE_ACLS: HandlerSpec("k31_delete_acls", 0, 3),
    ApiKey.DESCRIBE_CONFIGS: HandlerSpec("k32_describe_configs", 0, 4),
    ApiKey.ALTER_CONFIGS: HandlerSpec("k33_alter_configs", 0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: HandlerSpec("k34_alter_replica_log_dirs", 0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: HandlerSpec("k35_describe_log_dirs", 0, 5),
    ApiKey.SASL_AUTHENTICATE: HandlerSpec("k36_sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: HandlerSpec("k37_create_partitions", 0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: HandlerSpec("k38_create_delegation_token", 0, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: HandlerSpec("k39_renew_delegation_token", 0, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: HandlerSpec("k40_expire_delegation_token", 0, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: HandlerSpec("k41_describe_delegation_token", 0, 3),
    ApiKey.DELETE_GROUPS: HandlerSpec("k42_delete_groups", 0, 3),
    ApiKey.ELECT_LEADERS: HandlerSpec("k43_elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: HandlerSpec("k44_incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: HandlerSpec("k45_alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: HandlerSpec("k46_list_partition_reassignments", 0, 0),
    ApiKey.OFFSET_DELETE: HandlerSpec("k47_offset_delete", 0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: HandlerSpec("k48_describe_client_quotas", 0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: HandlerSpec("k49_alter_client_quotas", 0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: HandlerSpec(
        "k50_describe_user_scram_credentials", 0, 0
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: HandlerSpec("k51_alter_user_scram_credentials", 0, 0),
    ApiKey.ALTER_PARTITION: HandlerSpec("k56_alter_partition", 0, 3),
    ApiKey.UPDATE_FEATURES: HandlerSpec("k57_update_features", 0, 2),
    ApiKey.DESCRIBE_CLUSTER: HandlerSpec("k60_describe_cluster", 0, 2),
    ApiKey.DESCRIBE_PRODUCERS: HandlerSpec("k61_describe_producers", 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: HandlerSpec("k65_describe_transactions", 0, 0),
    ApiKey.LIST_TRANSACTIONS: HandlerSpec("k66_list_transactions", 0, 2),
    ApiKey.ALLOCATE_PRODUCER_IDS: HandlerSpec("k67_allocate_producer_ids", 0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: HandlerSpec("k68_consumer_group_heartbeat", 0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: HandlerSpec("k69_consumer_group_describe", 0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: HandlerSpec("k71_get_telemetry_subscriptions", 0, 0),
    ApiKey.PUSH_TELEMETRY: HandlerSpec("k72_push_telemetry", 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: HandlerSpec("k74_list_config_resources", 0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: HandlerSpec("k75_describe_topic_partitions", 0, 0),
}

CLUSTER_APIS: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""APIs that only other brokers use. Without an authorizer every client may send them, and remove
replicas with them, so a broker that is alone in its cluster does not serve them."""
