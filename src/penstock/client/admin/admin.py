"""The blocking admin client."""

from typing import Self, Unpack

from penstock.client.admin.calls import AdminCalls
from penstock.client.loop_thread import LoopThread, blocking
from penstock.client.network import create_network_client
from penstock.client.settings import AdminOptions, resolve
from penstock.core.system_clock import SystemClock


class Admin:
    """Administers a cluster. All methods may be called from any thread.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("orders", num_partitions=3)])

    Nothing is sent before the first call. See `AdminCalls` for the errors of calls. Close it with
    `with` or `close()`.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        settings = resolve(AdminOptions, options)
        self._loop_thread = LoopThread(f"penstock-{settings['client_id']}")
        try:
            self._calls = self._loop_thread.run(_start(settings))
        except BaseException:
            self._loop_thread.close()
            raise

    create_topics = blocking(AdminCalls.create_topics)
    delete_topics = blocking(AdminCalls.delete_topics)
    list_topics = blocking(AdminCalls.list_topics)
    describe_topics = blocking(AdminCalls.describe_topics)
    create_partitions = blocking(AdminCalls.create_partitions)
    delete_records = blocking(AdminCalls.delete_records)
    list_offsets = blocking(AdminCalls.list_offsets)
    list_replica_end_offsets = blocking(AdminCalls.list_replica_end_offsets)
    elect_leaders = blocking(AdminCalls.elect_leaders)
    alter_partition_reassignments = blocking(AdminCalls.alter_partition_reassignments)
    list_partition_reassignments = blocking(AdminCalls.list_partition_reassignments)
    describe_configs = blocking(AdminCalls.describe_configs)
    incremental_alter_configs = blocking(AdminCalls.incremental_alter_configs)
    alter_configs = blocking(AdminCalls.alter_configs)
    list_config_resources = blocking(AdminCalls.list_config_resources)
    describe_cluster = blocking(AdminCalls.describe_cluster)
    describe_features = blocking(AdminCalls.describe_features)
    update_features = blocking(AdminCalls.update_features)
    describe_log_dirs = blocking(AdminCalls.describe_log_dirs)
    describe_replica_log_dirs = blocking(AdminCalls.describe_replica_log_dirs)
    alter_replica_log_dirs = blocking(AdminCalls.alter_replica_log_dirs)
    describe_quorum = blocking(AdminCalls.describe_quorum)
    unregister_broker = blocking(AdminCalls.unregister_broker)
    api_versions = blocking(AdminCalls.api_versions)
    list_groups = blocking(AdminCalls.list_groups)
    describe_groups = blocking(AdminCalls.describe_groups)
    delete_groups = blocking(AdminCalls.delete_groups)
    list_group_offsets = blocking(AdminCalls.list_group_offsets)
    alter_group_offsets = blocking(AdminCalls.alter_group_offsets)
    delete_group_offsets = blocking(AdminCalls.delete_group_offsets)
    remove_members = blocking(AdminCalls.remove_members)
    describe_acls = blocking(AdminCalls.describe_acls)
    create_acls = blocking(AdminCalls.create_acls)
    delete_acls = blocking(AdminCalls.delete_acls)
    describe_client_quotas = blocking(AdminCalls.describe_client_quotas)
    alter_client_quotas = blocking(AdminCalls.alter_client_quotas)
    describe_user_scram_credentials = blocking(AdminCalls.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(AdminCalls.alter_user_scram_credentials)
    create_delegation_token = blocking(AdminCalls.create_delegation_token)
    renew_delegation_token = blocking(AdminCalls.renew_delegation_token)
    expire_delegation_token = blocking(AdminCalls.expire_delegation_token)
    describe_delegation_token = blocking(AdminCalls.describe_delegation_token)
    list_transactions = blocking(AdminCalls.list_transactions)
    describe_transactions = blocking(AdminCalls.describe_transactions)
    describe_producers = blocking(AdminCalls.describe_producers)
    abort_transaction = blocking(AdminCalls.abort_transaction)
    fence_producers = blocking(AdminCalls.fence_producers)
    force_terminate_transaction = blocking(AdminCalls.force_terminate_transaction)

    def close(self) -> None:
        """Closes all connections and ends the thread; calls under way fail. May be called twice."""
        if not self._loop_thread.loop.is_closed():
            self._loop_thread.run(self._calls.close())
            self._loop_thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


async def _start(settings: AdminOptions) -> AdminCalls:
    calls = AdminCalls(
        create_network_client(settings, clock=SystemClock()),
        retries=settings["retries"],
        default_api_timeout_ms=settings["default_api_timeout_ms"],
    )
    await calls.start()
    return calls
