"""Error messages of groups, with their remedies (E1)."""

from penstock.client.consumer.group.actions import MemberSettings
from penstock.client.errors import ClientError, RebalanceInProgressError, error_of
from penstock.core.errors import ErrorCode


def coordinator_error(
    code: ErrorCode, settings: MemberSettings, broker_message: str | None = None
) -> ClientError:
    """Returns the error for a code of the group coordinator."""
    group = f"group {settings.group_id}"
    match code:
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            text = f"this client may not join {group}; its user needs the ACL READ on it"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            text = f"{group}: this client may not describe a topic that it subscribes to"
        case ErrorCode.GROUP_MAX_SIZE_REACHED:
            text = f"{group} is full; raise group.max.size of the broker, or use fewer members"
        case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            text = (
                f"the members of {group} have no assignor in common with this one, or are not "
                "consumers; give all members a common `partition_assignment_strategy`"
            )
        case ErrorCode.INVALID_SESSION_TIMEOUT:
            text = (
                f"{group}: `session_timeout_ms`={settings.session_timeout_ms} is outside of the "
                "broker's limits (group.min.session.timeout.ms to group.max.session.timeout.ms)"
            )
        case ErrorCode.INVALID_GROUP_ID:
            text = (
                f"{settings.group_id!r} is not a valid name of a group; choose another `group_id`"
            )
        case ErrorCode.FENCED_INSTANCE_ID | ErrorCode.UNRELEASED_INSTANCE_ID:
            text = (
                f"{group}: another consumer has `group_instance_id`={settings.group_instance_id!r}"
                "; give each its own, and close this consumer"
            )
        case ErrorCode.UNSUPPORTED_VERSION:
            text = (
                f"{group}: the broker does not support this protocol: its version is too old for "
                '`group_protocol`="consumer" (4.0 has it), or for `group_instance_id` (2.3)'
            )
        case ErrorCode.UNSUPPORTED_ASSIGNOR:
            text = (
                f"{group}: the broker has no assignor {settings.remote_assignor!r}; see its "
                "group.consumer.assignors"
            )
        case ErrorCode.INVALID_REGULAR_EXPRESSION:
            text = f"{group}: the broker cannot parse the pattern as RE2"
        case _:
            text = f"{group}: the coordinator responded with {code.name}"
    return error_of(code, f"{text} ({broker_message})" if broker_message else text)


def not_a_member_message(settings: MemberSettings) -> str:
    return (
        f"the offsets are not committed: group {settings.group_id} has rebalanced and assigned the "
        "partitions to other members. Either poll was not called for longer than "
        f"`max_poll_interval_ms`={settings.max_poll_interval_ms}: raise it, or lower "
        "`max_poll_records`; or no heartbeat was received within the session timeout. The records "
        "since the last commit are read again by other members"
    )


def rebalance_error() -> RebalanceInProgressError:
    return RebalanceInProgressError(
        "the offsets are not committed, since the group is being rebalanced",
        remedy="call poll to complete the rebalance, then commit again",
    )
