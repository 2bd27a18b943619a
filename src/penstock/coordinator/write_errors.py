"""Errors of a coordinator that does not lead its partition, still loads it, or cannot write to
it."""

from collections.abc import Mapping

from penstock.core.errors import ErrorCode

_CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

WRITE_ERROR_MESSAGES: Mapping[ErrorCode, str] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading its log: retry",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator cannot write to its log now: retry",
    ErrorCode.NOT_COORDINATOR: (
        "this broker does not coordinate the group: look for its coordinator again"
    ),
    ErrorCode.UNKNOWN_SERVER_ERROR: (
        "the coordinator could not write this to its log: see the broker's own log"
    ),
}
"""The message beside the code, in responses that have a field for it."""


def client_error(error: ErrorCode) -> ErrorCode:
    """Returns the error of an append as the error that clients of a coordinator handle."""
    return _CLIENT_ERRORS.get(error, error)
