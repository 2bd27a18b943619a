"""Which APIs this broker serves, in which versions: what is not in the table is not advertised.

The handler of an API is the function `handle` of a module that is imported with the first request.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from penstock.broker.request import HandlerResult, Request
from penstock.protocol.api_key import ApiKey

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

Handler: TypeAlias = Callable[["Broker", Request, Any], HandlerResult]
"""`handle(broker, request, body)`; `body` is of the request class of the API."""


class Served(NamedTuple):
    """The versions are told here, so that a client's first question does not import every API."""

    module: str
    min_version: int
    max_version: int

    def load(self) -> Handler:
        handler: Handler = import_module(f"penstock.broker.handlers.{self.module}").handle
        return handler


SERVED: Final[dict[ApiKey, Served]] = {
    ApiKey.PRODUCE: Served("k00_produce", 0, 13),
    ApiKey.FETCH: Served("k01_fetch", 0, 18),
    ApiKey.LIST_OFFSETS: Served("k02_list_offsets", 0, 11),
    ApiKey.METADATA: Served("k03_metadata", 0, 13),
    ApiKey.OFFSET_COMMIT: Served("k08_offset_commit", 0, 10),
    ApiKey.OFFSET_FETCH: Served("k09_offset_fetch", 0, 10),
    ApiKey.FIND_COORDINATOR: Served("k10_find_coordinator", 0, 6),
    ApiKey.JOIN_GROUP: Served("k11_join_group", 0, 9),
    ApiKey.HEARTBEAT: Served("k12_heartbeat", 0, 4),
    ApiKey.LEAVE_GROUP: Served("k13_leave_group", 0, 5),
    ApiKey.SYNC_GROUP: Served("k14_sync_group", 0, 5),
    ApiKey.DESCRIBE_GROUPS: Served("k15_describe_groups", 0, 6),
    ApiKey.LIST_GROUPS: Served("k16_list_groups", 0, 5),
    ApiKey.SASL_HANDSHAKE: Served("k17_sasl_handshake", 0, 1),
    ApiKey.API_VERSIONS: Served("k18_api_versions", 0, 5),
    ApiKey.CREATE_TOPICS: Served("k19_create_topics", 0, 7),
    ApiKey.DELETE_TOPICS: Served("k20_delete_topics", 0, 6),
    ApiKey.DELETE_RECORDS: Served("k21_delete_records", 0, 2),
    ApiKey.INIT_PRODUCER_ID: Served("k22_init_producer_id", 0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Served("k23_offset_for_leader_epoch", 0, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: Served("k24_add_partitions_to_txn", 0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: Served("k25_add_offsets_to_txn", 0, 4),
    ApiKey.END_TXN: Served("k26_end_txn", 0, 5),
    ApiKey.WRITE_TXN_MARKERS: Served("k27_write_txn_markers", 0, 2),
    ApiKey.TXN_OFFSET_COMMIT: Served("k28_txn_offset_commit", 0, 6),
    ApiKey.DESCRIBE_ACLS: Served("k29_describe_acls", 0, 3),
    ApiKey.CREATE_ACLS: Served("k30_create_acls", 0, 3),
    ApiKey.DELETE_ACLS: Served("k31_delete_acls", 0, 3),
    ApiKey.DESCRIBE_CONFIGS: Served("k32_describe_configs", 0, 4),
    ApiKey.ALTER_CONFIGS: Served("k33_alter_configs", 0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Served("k34_alter_replica_log_dirs", 0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Served("k35_describe_log_dirs", 0, 5),
    ApiKey.SASL_AUTHENTICATE: Served("k36_sasl_authenticate", 0, 2),
    ApiKey.CREATE_PARTITIONS: Served("k37_create_partitions", 0, 3),
    ApiKey.DELETE_GROUPS: Served("k42_delete_groups", 0, 3),
    ApiKey.ELECT_LEADERS: Served("k43_elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Served("k44_incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Served("k45_alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Served("k46_list_partition_reassignments", 0, 0),
    ApiKey.OFFSET_DELETE: Served("k47_offset_delete", 0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Served("k48_describe_client_quotas", 0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Served("k49_alter_client_quotas", 0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Served("k50_describe_user_scram_credentials", 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Served("k51_alter_user_scram_credentials", 0, 0),
    ApiKey.UPDATE_FEATURES: Served("k57_update_features", 0, 2),
    ApiKey.DESCRIBE_CLUSTER: Served("k60_describe_cluster", 0, 2),
    ApiKey.DESCRIBE_PRODUCERS: Served("k61_describe_producers", 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Served("k65_describe_transactions", 0, 0),
    ApiKey.LIST_TRANSACTIONS: Served("k66_list_transactions", 0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Served("k68_consumer_group_heartbeat", 0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Served("k69_consumer_group_describe", 0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Served("k71_get_telemetry_subscriptions", 0, 0),
    ApiKey.PUSH_TELEMETRY: Served("k72_push_telemetry", 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Served("k74_list_config_resources", 0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Served("k75_describe_topic_partitions", 0, 0),
}
