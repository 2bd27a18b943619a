"""The exceptions of connections and requests to brokers. Every one is a `KafkaError`.

`penstock.client.errors` has all of them, together with those of the producer and the consumer.
"""

from collections.abc import Mapping
from typing import Final, Unpack

from penstock.core.errors import ErrorCode, ErrorDetails, KafkaError


class ClientError(KafkaError):
    """A failure of the client itself, or an error that a broker responded with."""

    names_in_cause = True
    default_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(
        self, cause: str, code: ErrorCode | None = None, **details: Unpack[ErrorDetails]
    ) -> None:
        super().__init__(self.default_code if code is None else code, cause, **details)

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed when it is repeated."""
        return self.code.retriable


class KafkaTimeoutError(ClientError):
    """The time for a call ran out. The call may have taken effect nevertheless."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class DisconnectError(ClientError):
    """A connection could not be established, or was lost before the response arrived."""

    default_code = ErrorCode.NETWORK_EXCEPTION


class AuthenticationError(ClientError):
    """The broker rejected this client's login or certificate, or the client the broker's.

    Retrying does not help.
    """

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED


class AuthorizationError(ClientError):
    """An ACL is missing. `code` says whether for a topic, a group, the cluster or an id."""

    default_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class UnknownTopicError(ClientError):
    """The topic or partition does not exist."""

    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ConfigError(ClientError):
    """A setting does not exist, has an invalid value, or contradicts another setting."""

    default_code = ErrorCode.INVALID_CONFIG


class IllegalStateError(ClientError):
    """The call is not allowed now: the client is closed, not subscribed, not in a transaction."""


ERROR_TYPES: Final[Mapping[ErrorCode, type[ClientError]]] = {
    ErrorCode.REQUEST_TIMED_OUT: KafkaTimeoutError,
    ErrorCode.NETWORK_EXCEPTION: DisconnectError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicError,
    ErrorCode.INVALID_CONFIG: ConfigError,
}


def error_of(
    code: ErrorCode | int,
    cause: str,
    types: Mapping[ErrorCode, type[ClientError]] = ERROR_TYPES,
    **details: Unpack[ErrorDetails],
) -> ClientError:
    """Returns the exception for an error code of a response.

    A code that this version does not know becomes UNKNOWN_SERVER_ERROR, with the number in the
    cause.
    """
    error_code = error_code_of(code)
    if error_code != code:
        cause = f"{cause} (error code {int(code)}, which is newer than this client)"
    return types.get(error_code, ClientError)(cause, error_code, **details)


def error_code_of(code: int, unknown: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> ErrorCode:
    """Returns the error code of a response, or `unknown` for one that this version lacks."""
    try:
        return ErrorCode(code)
    except ValueError:
        return unknown
