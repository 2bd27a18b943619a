"""Errors of brokers in admin calls: their meaning and what to do about them."""

from typing import Final

from penstock.client.errors import ClientError, error_of
from penstock.core.errors import ErrorCode, UnsupportedVersionError
from penstock.protocol.api_key import ApiKey

_ADVICE: Final[dict[ErrorCode, tuple[str, str]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "there is no such topic or partition, or this user may not describe it",
        "check the name against `list_topics`, or create the topic",
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: (
        "there is no topic with this id",
        "check it against `list_topics`",
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: ("it exists", "choose another name, or delete it first"),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "the name is not allowed",
        "names have up to 249 letters, digits, dots, underscores and hyphens",
    ),
    ErrorCode.INVALID_PARTITIONS: (
        "the number of partitions is not allowed",
        "give at least one, and more than there are: partitions cannot be removed",
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "the replication factor is larger than the number of brokers",
        "use at most one replica per broker that is up (see `describe_cluster`), or start more",
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: (
        "the replicas are not possible",
        "name brokers that are up, each once, and equally many for every partition",
    ),
    ErrorCode.INVALID_CONFIG: (
        "the setting is not valid",
        "check its name and value (`describe_configs` shows them)",
    ),
    ErrorCode.POLICY_VIOLATION: ("a policy forbids it", "ask the administrator of the cluster"),
    ErrorCode.TOPIC_DELETION_DISABLED: (
        "topics cannot be deleted",
        "set delete.topic.enable=true on the brokers",
    ),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: (
        "a reassignment is under way",
        "wait until it is complete, or cancel it",
    ),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: (
        "no reassignment is under way",
        "`list_partition_reassignments` shows those that are",
    ),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: (
        "the preferred leader is down or not in sync",
        "start its broker and wait until it has caught up",
    ),
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: (
        "no replica can become the leader",
        "start one of its brokers",
    ),
    ErrorCode.LEADER_NOT_AVAILABLE: ("there is no leader now", "start one of its brokers"),
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "the offset is beyond the high watermark, or below the log start offset",
        "`list_offsets` shows both",
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "this user may not do that with the topic",
        "grant the operation with an ACL on the topic",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "this user may not do that with the group",
        "grant the operation with an ACL on the group",
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "this user may not do that with the cluster",
        "grant the operation with an ACL on the cluster, or log in as one of super.users",
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "this user may not do that with the transactional id",
        "grant the operation with an ACL on it",
    ),
    ErrorCode.SECURITY_DISABLED: (
        "the brokers have no authorizer",
        "set authorizer.class.name on them to use ACLs",
    ),
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "the brokers have no delegation tokens",
        "set delegation.token.secret.key on them, the same on all",
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "this connection has no login, or one with a delegation token",
        "log in with SASL or a client certificate, not with a token",
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: (
        "there is no such delegation token",
        "`describe_delegation_token` shows those that this user may see",
    ),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "this user is neither the owner nor a renewer of the token",
        "log in as one of them",
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "this user may not create tokens for the owner",
        "grant CREATE_TOKENS on the user with an ACL",
    ),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: ("the token has expired", "create another"),
    ErrorCode.INVALID_PRINCIPAL_TYPE: (
        "owner and renewers must be users",
        "write them as User:name",
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "there is no such group",
        "check the name against `list_groups`",
    ),
    ErrorCode.NON_EMPTY_GROUP: (
        "the group has members",
        "stop them first (`describe_groups` shows them)",
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "members of the group are subscribed to the topic",
        "stop them first (`describe_groups` shows them)",
    ),
    ErrorCode.INVALID_GROUP_ID: ("the group id is not allowed", "it must not be empty"),
    ErrorCode.UNKNOWN_MEMBER_ID: (
        "the group has no such member, or members of its own that commit its offsets",
        "stop them first (`describe_groups` shows them)",
    ),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (
        "there is no such transactional id",
        "check it against `list_transactions`",
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: (
        "the producer has a newer epoch",
        "`describe_producers` shows the current one",
    ),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
        "the coordinator epoch is older than the partition's",
        "`describe_producers` shows the current one",
    ),
    ErrorCode.LOG_DIR_NOT_FOUND: (
        "the broker has no such directory",
        "`describe_log_dirs` shows those of log.dirs",
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: ("the broker cannot use its disk", "see the broker's log"),
    ErrorCode.REPLICA_NOT_AVAILABLE: (
        "the broker has no replica of the partition",
        "`describe_topics` shows which brokers have",
    ),
    ErrorCode.RESOURCE_NOT_FOUND: (
        "there is no such user or credential",
        "`describe_user_scram_credentials` shows them",
    ),
    ErrorCode.DUPLICATE_RESOURCE: ("it is named more than once", "name it once"),
    ErrorCode.UNACCEPTABLE_CREDENTIAL: (
        "the credential is not accepted",
        "check the password and the number of iterations",
    ),
    ErrorCode.INVALID_UPDATE_VERSION: (
        "the level cannot be set",
        "`describe_features` shows the possible levels; a lower level needs a downgrade",
    ),
    ErrorCode.FEATURE_UPDATE_FAILED: (
        "the level was not set",
        "`describe_features` shows the possible levels",
    ),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (
        "the quota controller_mutation_rate is used up",
        "try again later",
    ),
    ErrorCode.REQUEST_TIMED_OUT: (
        "the broker did not finish in time",
        "it may still be done later: check before you repeat it",
    ),
    ErrorCode.BROKER_ID_NOT_REGISTERED: (
        "there is no such broker",
        "`describe_cluster` shows the brokers",
    ),
}
"""The cause of an error, if the broker sends no message, and the remedy."""

_SINCE: Final[dict[ApiKey, str]] = {
    ApiKey.DESCRIBE_ACLS: "0.11",
    ApiKey.CREATE_ACLS: "0.11",
    ApiKey.DELETE_ACLS: "0.11",
    ApiKey.DESCRIBE_CONFIGS: "0.11",
    ApiKey.ALTER_CONFIGS: "0.11",
    ApiKey.DELETE_RECORDS: "0.11",
    ApiKey.WRITE_TXN_MARKERS: "0.11",
    ApiKey.INIT_PRODUCER_ID: "0.11",
    ApiKey.CREATE_PARTITIONS: "1.0",
    ApiKey.DESCRIBE_LOG_DIRS: "1.0",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "1.0",
    ApiKey.CREATE_DELEGATION_TOKEN: "1.1",
    ApiKey.RENEW_DELEGATION_TOKEN: "1.1",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "1.1",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "1.1",
    ApiKey.DELETE_GROUPS: "1.1",
    ApiKey.ELECT_LEADERS: "2.2",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4",
    ApiKey.OFFSET_DELETE: "2.4",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "2.7",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "2.7",
    ApiKey.UPDATE_FEATURES: "2.7",
    ApiKey.DESCRIBE_CLUSTER: "2.8",
    ApiKey.DESCRIBE_PRODUCERS: "2.8",
    ApiKey.UNREGISTER_BROKER: "2.8",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0",
    ApiKey.LIST_TRANSACTIONS: "3.0",
    ApiKey.DESCRIBE_QUORUM: "3.0",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "3.7",
    ApiKey.LIST_CONFIG_RESOURCES: "3.7",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "3.8",
}
"""The first Kafka that serves an API."""

_ONLY_KRAFT: Final = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.UNREGISTER_BROKER})


class BrokerTooOldError(UnsupportedVersionError):
    """A broker serves an API, but not the version or option that a call needs."""


def broker_error(code: ErrorCode | int, subject: str, message: str | None = None) -> ClientError:
    """Returns the error of a broker about a subject, with its message and what to do.

    A message of more than one sentence has its own remedy, as those of our broker do.
    """
    try:
        error_code = ErrorCode(code)
    except ValueError:
        error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    default = (f"the broker responded with {error_code.name}", "")
    usual_cause, remedy = _ADVICE.get(error_code, default)
    cause = (message or "").strip().rstrip(".:;") or usual_cause
    if ". " in cause:
        remedy = ""
    return error_of(code, cause, subject=subject, remedy=remedy)


def response_error(response: object, subject: str) -> ClientError | None:
    """Returns the error of a response, or of a part of it, about a subject; None if it has none."""
    code: int = getattr(response, "error_code", ErrorCode.NONE)
    if code == ErrorCode.NONE:
        return None
    return broker_error(code, subject, getattr(response, "error_message", None))


def unsupported_error(
    call: str, key: int, broker: str, required: tuple[int, str] | None = None
) -> UnsupportedVersionError:
    """Returns the error of a call that needs an API, or a version, that a broker lacks (E4).

    `required` is the version of the API, and the first Kafka that has it.
    """
    api = ApiKey(key)
    name = f"{api.name.title().replace('_', '')} (API key {key})"
    remedy = "upgrade the broker"
    if required is not None:
        name = f"version {required[0]} of {name}"
        reason = f"Kafka {required[1]} and newer have it"
    elif api in _ONLY_KRAFT:
        reason = f"only KRaft clusters of Kafka {_SINCE[api]} and newer have it, and this is none"
        remedy = ""
    elif api in _SINCE:
        reason = f"Kafka {_SINCE[api]} and newer have it"
    else:
        reason = "client and broker have no version of it in common"
        remedy = "upgrade the older one"
    return BrokerTooOldError(
        f"needs {name}, which {broker} does not serve: {reason}", operation=call, remedy=remedy
    )
