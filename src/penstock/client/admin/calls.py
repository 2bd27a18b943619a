"""All calls of the admin client, on one loop."""

from penstock.client.admin.acls import AclCalls
from penstock.client.admin.cluster import ClusterCalls
from penstock.client.admin.configs import ConfigCalls
from penstock.client.admin.group_offsets import GroupOffsetCalls
from penstock.client.admin.log_dirs import LogDirCalls
from penstock.client.admin.partitions import PartitionCalls
from penstock.client.admin.quotas import QuotaCalls
from penstock.client.admin.replicas import ReplicaCalls
from penstock.client.admin.topics import TopicCalls
from penstock.client.admin.transactions import TransactionCalls
from penstock.client.admin.users import UserCalls


class AdminCalls(
    TopicCalls,
    PartitionCalls,
    ReplicaCalls,
    ConfigCalls,
    ClusterCalls,
    LogDirCalls,
    GroupOffsetCalls,
    AclCalls,
    QuotaCalls,
    UserCalls,
    TransactionCalls,
):
    """What can be asked of a cluster, or done to it.

    Every call takes `timeout_ms` (else `default_api_timeout_ms`): within that time it is retried as
    long as there is hope. Calls about many things do all they can; where some fail they raise
    `AdminError`, which has the errors and the other results. What concerns a call as a whole is
    raised as itself: DisconnectError or KafkaTimeoutError (no broker answers), AuthenticationError,
    AuthorizationError, UnsupportedVersionError (the broker does not serve it).
    """
