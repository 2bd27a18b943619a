"""What a client raises. Every one is a `KafkaError`: `code` says what, `message` what to do.

`except AuthorizationError` catches a kind, `except KafkaError` all of them; `retriable` tells
whether the same call may work later.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BufferExhaustedError",
    "ClientError",
    "CommitFailedError",
    "ConcurrentUseError",
    "ConfigError",
    "DisconnectError",
    "FencedInstanceError",
    "IllegalStateError",
    "KafkaError",
    "KafkaTimeoutError",
    "NoOffsetForPartitionError",
    "OutOfOrderSequenceError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RecordTooLargeError",
    "SerializationError",
    "TransactionAbortedError",
    "UnknownTopicError",
    "WakeupError",
    "error_of",
]


class ClientError(KafkaError):
    """A failure of the client itself, or one that a broker answered with."""

    default_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(self.default_code if code is None else code, message)

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed when it is made again."""
        return self.code.retriable


class KafkaTimeoutError(ClientError):
    """The time for a call ran out. It may have had its effect all the same."""

    default_code = ErrorCode.REQUEST_TIMED_OUT


class BufferExhaustedError(KafkaTimeoutError):
    """`buffer_memory` stayed full for `max_block_ms`."""


class DisconnectError(ClientError):
    """A connection could not be made, or was lost before the answer came."""

    default_code = ErrorCode.NETWORK_EXCEPTION


class AuthenticationError(ClientError):
    """The broker does not believe who this client says it is, or the other way round. Final."""

    default_code = ErrorCode.SASL_AUTHENTICATION_FAILED


class AuthorizationError(ClientError):
    """This client may not do that: `code` says with a topic, a group, the cluster or an id."""

    default_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class UnknownTopicError(ClientError):
    """There is no such topic or partition."""

    default_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class RecordTooLargeError(ClientError):
    """A record is larger than `max_request_size`, `buffer_memory` or the topic's limit."""

    default_code = ErrorCode.MESSAGE_TOO_LARGE


class ProducerFencedError(ClientError):
    """Another producer with the same `transactional_id` has taken over: close this one."""

    default_code = ErrorCode.PRODUCER_FENCED


class OutOfOrderSequenceError(ClientError):
    """The broker misses records before these: something was lost, and nothing may follow it."""

    default_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class TransactionAbortedError(ClientError):
    """The record was not sent because its transaction is aborted."""

    default_code = ErrorCode.TRANSACTION_ABORTABLE


class SerializationError(ClientError):
    """A key or value could not be turned into bytes, or back."""

    default_code = ErrorCode.INVALID_RECORD


class CommitFailedError(ClientError):
    """The group has given the partitions to others meanwhile: these offsets are not committed."""

    default_code = ErrorCode.UNKNOWN_MEMBER_ID


class RebalanceInProgressError(ClientError):
    """The group is being rebalanced: poll, then commit again."""

    default_code = ErrorCode.REBALANCE_IN_PROGRESS


class FencedInstanceError(ClientError):
    """Another member has the same `group_instance_id`. Final."""

    default_code = ErrorCode.FENCED_INSTANCE_ID


class NoOffsetForPartitionError(ClientError):
    """There is no committed offset, and `auto_offset_reset="none"`: seek, or choose another."""

    default_code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, message: str, partitions: Iterable[TopicPartition] = ()) -> None:
        super().__init__(message)
        self.partitions = tuple(partitions)


class WakeupError(ClientError):
    """`wakeup` was called."""


class ConfigError(ClientError):
    """A setting that does not exist, does not fit, or does not go with another."""

    default_code = ErrorCode.INVALID_CONFIG


class IllegalStateError(ClientError):
    """The call does not make sense now: closed, not subscribed, no transaction begun."""


class ConcurrentUseError(IllegalStateError):
    """A consumer is used by two threads at once."""


_KINDS: Final[Mapping[ErrorCode, type[ClientError]]] = {
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
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLargeError,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordTooLargeError,
    ErrorCode.PRODUCER_FENCED: ProducerFencedError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequenceError,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgressError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceError,
    ErrorCode.INVALID_CONFIG: ConfigError,
}


def error_of(code: ErrorCode | int, message: str) -> ClientError:
    """The exception for an error code that a broker answered with.

    A code that this client does not know is UNKNOWN_SERVER_ERROR, with the number in the message.
    """
    try:
        known = ErrorCode(code)
    except ValueError:
        known = ErrorCode.UNKNOWN_SERVER_ERROR
        message = f"{message} (error code {int(code)}, which is newer than this client)"
    return _KINDS.get(known, ClientError)(message, known)
