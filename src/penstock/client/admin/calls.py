"""All calls of the admin client, by subject."""

from penstock.client.admin import (
    acls,
    cluster,
    configs,
    describe_topics,
    group_offsets,
    groups,
    log_dirs,
    partitions,
    quotas,
    replicas,
    tokens,
    topics,
    transactions,
    users,
)
from penstock.client.admin.api_driver import AdminApiDriver


class AdminCalls(AdminApiDriver):
    """The calls of the admin client.

    Every call takes `timeout_ms`, by default `default_api_timeout_ms`; within that time retriable
    errors are retried. Calls with many keys complete all that they can; if some keys fail, they
    raise `AdminError`, which has the errors and the other results. Errors of a call as a whole are
    DisconnectError or KafkaTimeoutError (no broker responds), AuthenticationError,
    AuthorizationError, and UnsupportedVersionError (the broker does not support the call).
    """

    create_topics = topics.create_topics
    delete_topics = topics.delete_topics
    list_topics = topics.list_topics
    describe_topics = describe_topics.describe_topics
    create_partitions = topics.create_partitions
    delete_records = partitions.delete_records
    list_offsets = partitions.list_offsets
    list_replica_end_offsets = partitions.list_replica_end_offsets
    elect_leaders = replicas.elect_leaders
    alter_partition_reassignments = replicas.alter_partition_reassignments
    list_partition_reassignments = replicas.list_partition_reassignments
    describe_configs = configs.describe_configs
    incremental_alter_configs = configs.incremental_alter_configs
    alter_configs = configs.alter_configs
    list_config_resources = configs.list_config_resources
    describe_cluster = cluster.describe_cluster
    describe_features = cluster.describe_features
    update_features = cluster.update_features
    describe_quorum = cluster.describe_quorum
    unregister_broker = cluster.unregister_broker
    api_versions = cluster.api_versions
    describe_log_dirs = log_dirs.describe_log_dirs
    describe_replica_log_dirs = log_dirs.describe_replica_log_dirs
    alter_replica_log_dirs = log_dirs.alter_replica_log_dirs
    list_groups = groups.list_groups
    describe_groups = groups.describe_groups
    delete_groups = groups.delete_groups
    list_group_offsets = group_offsets.list_group_offsets
    alter_group_offsets = group_offsets.alter_group_offsets
    delete_group_offsets = group_offsets.delete_group_offsets
    remove_members = group_offsets.remove_members
    describe_acls = acls.describe_acls
    create_acls = acls.create_acls
    delete_acls = acls.delete_acls
    describe_client_quotas = quotas.describe_client_quotas
    alter_client_quotas = quotas.alter_client_quotas
    describe_user_scram_credentials = users.describe_user_scram_credentials
    alter_user_scram_credentials = users.alter_user_scram_credentials
    create_delegation_token = tokens.create_delegation_token
    renew_delegation_token = tokens.renew_delegation_token
    expire_delegation_token = tokens.expire_delegation_token
    describe_delegation_token = tokens.describe_delegation_token
    list_transactions = transactions.list_transactions
    describe_transactions = transactions.describe_transactions
    describe_producers = transactions.describe_producers
    abort_transaction = transactions.abort_transaction
    fence_producers = transactions.fence_producers
    force_terminate_transaction = transactions.force_terminate_transaction
