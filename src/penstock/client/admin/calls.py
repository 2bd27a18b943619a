"""All calls of the admin client."""

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
    """The calls of the admin client.

    Every call takes `timeout_ms`, by default `default_api_timeout_ms`; within that time retriable
    errors are retried. Calls with many keys complete all that they can; if some keys fail, they
    raise `AdminError`, which has the errors and the other results. Errors of a call as a whole are
    DisconnectError or KafkaTimeoutError (no broker responds), AuthenticationError,
    AuthorizationError, and UnsupportedVersionError (the broker does not support the call).
    """
