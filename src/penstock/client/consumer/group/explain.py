"""Errors of groups, in words that say what to do (E1)."""

from penstock.client.consumer.group.actions import MemberSettings
from penstock.client.errors import ClientError, RebalanceInProgressError, error_of
from penstock.core.errors import ErrorCode


def code_of(number: int) -> ErrorCode:
    """Codes that this client does not know are UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def explained(code: ErrorCode, settings: MemberSettings, said: str | None = None) -> ClientError:
    """The error for a code with which the coordinator turned this member down."""
    group = f"group {settings.group_id}"
    match code:
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            text = f"this client may not read with {group}: its user needs the ACL READ for it"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            text = f"{group}: this client may not see a topic that it subscribes to"
        case ErrorCode.GROUP_MAX_SIZE_REACHED:
            text = f"{group} is full: its broker's group.max.size says how many members it takes"
        case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            text = (
                f"the members of {group} have no assignor in common with this one, or are no "
                "consumers: give all of them one partition_assignment_strategy in common"
            )
        case ErrorCode.INVALID_SESSION_TIMEOUT:
            text = (
                f"{group}: session_timeout_ms={settings.session_timeout_ms} is outside of what the "
                "broker allows (group.min.session.timeout.ms to group.max.session.timeout.ms)"
            )
        case ErrorCode.INVALID_GROUP_ID:
            text = f"{settings.group_id!r} cannot be the name of a group: choose another group_id"
        case ErrorCode.FENCED_INSTANCE_ID | ErrorCode.UNRELEASED_INSTANCE_ID:
            text = (
                f"{group}: another consumer has group_instance_id={settings.group_instance_id!r}. "
                "Give each its own, and close this consumer"
            )
        case ErrorCode.UNSUPPORTED_VERSION:
            text = (
                f"{group}: the broker does not know this protocol. Its version is too old for "
                'group_protocol="consumer" (4.0 has it), or for group_instance_id (2.3)'
            )
        case ErrorCode.UNSUPPORTED_ASSIGNOR:
            text = (
                f"{group}: the broker has no assignor {settings.remote_assignor!r}; see its "
                "group.consumer.assignors"
            )
        case ErrorCode.INVALID_REGULAR_EXPRESSION:
            text = f"{group}: the broker cannot read the pattern as RE2"
        case _:
            text = f"{group}: the coordinator answered {code.name}"
    return error_of(code, f"{text} ({said})" if said else text)


def not_a_member(settings: MemberSettings) -> str:
    return (
        f"these offsets are not committed: group {settings.group_id} has rebalanced meanwhile and "
        "given the partitions to others. Either poll was not called for longer than "
        f"max_poll_interval_ms={settings.max_poll_interval_ms}: raise it, or lower "
        "max_poll_records; or the consumer was silent for longer than its session timeout. What "
        "was read since the last commit is read again by others"
    )


def rebalancing() -> RebalanceInProgressError:
    return RebalanceInProgressError(
        "these offsets are not committed yet, as the group is being rebalanced: call poll to take "
        "part in it, then commit again"
    )
