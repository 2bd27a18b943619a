"""The exceptions of the clients. Every one is a `KafkaError`: `code` is Kafka's error code,
`message` says what failed and what to do.

`except AuthorizationError` catches one kind, `except KafkaError` all of them; `retriable` says
whether the same call may succeed later.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Unpack

from penstock.core.errors import ErrorCode, ErrorDetails, KafkaError
from penstock.core.ids import TopicPartition
from penstock.net.client import errors as connection_errors
from penstock.net.client.errors import (
    ERROR_TYPES,
    AuthenticationError,
    AuthorizationError,
    ClientError,
    ConfigError,
    DisconnectError,
    IllegalStateError,
    KafkaTimeoutError,
    UnknownTopicError,
    error_code_of,
)

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
    "error_code_of",
    "error_of",
]


class BufferExhaustedError(KafkaTimeoutError):
    """`buffer_memory` was exhausted for `max_block_ms`."""


class RecordTooLargeError(ClientError):
    """A record is larger than `max_request_size`, `buffer_memory` or the topic's limit."""

    default_code = ErrorCode.MESSAGE_TOO_LARGE


class ProducerFencedError(ClientError):
    """A newer producer with the same `transactional_id` has replaced this one: close it."""

    default_code = ErrorCode.PRODUCER_FENCED


class OutOfOrderSequenceError(ClientError):
    """The broker has not stored the records before these: some were lost, and none may follow."""

    default_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class TransactionAbortedError(ClientError):
    """The record was not sent because its transaction was aborted."""

    default_code = ErrorCode.TRANSACTION_ABORTABLE


class SerializationError(ClientError):
    """A key or value could not be serialized or deserialized."""

    default_code = ErrorCode.INVALID_RECORD


class CommitFailedError(ClientError):
    """The offsets were not committed: the group has assigned the partitions to other members."""

    default_code = ErrorCode.UNKNOWN_MEMBER_ID


class RebalanceInProgressError(ClientError):
    """The group is rebalancing: poll, then commit again."""

    default_code = ErrorCode.REBALANCE_IN_PROGRESS


class FencedInstanceError(ClientError):
    """A newer member with the same `group_instance_id` has replaced this one. Retrying does not
    help."""

    default_code = ErrorCode.FENCED_INSTANCE_ID


class NoOffsetForPartitionError(ClientError):
    """Partitions have no committed offset, and `auto_offset_reset="none"`: seek, or change it."""

    default_code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(
        self,
        cause: str,
        partitions: Iterable[TopicPartition] = (),
        **details: Unpack[ErrorDetails],
    ) -> None:
        super().__init__(cause, **details)
        self.partitions = tuple(partitions)


class WakeupError(ClientError):
    """`wakeup` was called."""


class ConcurrentUseError(IllegalStateError):
    """Two threads use the same consumer at the same time."""


_TYPES: Final[Mapping[ErrorCode, type[ClientError]]] = {
    **ERROR_TYPES,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLargeError,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordTooLargeError,
    ErrorCode.PRODUCER_FENCED: ProducerFencedError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequenceError,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgressError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceError,
}


def error_of(code: ErrorCode | int, cause: str, **details: Unpack[ErrorDetails]) -> ClientError:
    """Returns the exception for an error code of a response.

    A code that this version does not know becomes UNKNOWN_SERVER_ERROR, with the number in the
    cause.
    """
    return connection_errors.error_of(code, cause, _TYPES, **details)
