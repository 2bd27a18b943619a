"""The result of one attempt to send a batch, and the error for the user."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.client.errors import error_code_of, error_of
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.produce import PartitionProduceResponse

_TOO_FEW_REPLICAS: Final = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


class ProduceResult(NamedTuple):
    """The result of one attempt to send a batch."""

    code: ErrorCode
    message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Mapping[int, str | None] | None = None


def result_of(response: PartitionProduceResponse) -> ProduceResult:
    if not response.error_code:
        return ProduceResult(
            ErrorCode.NONE, None, response.base_offset, response.log_append_time_ms
        )
    return ProduceResult(
        error_code_of(response.error_code),
        response.error_message,
        response.base_offset,
        response.log_append_time_ms,
        response.log_start_offset,
        {error.batch_index: error.batch_index_error_message for error in response.record_errors},
    )


def describe(result: ProduceResult) -> str:
    """Returns the error for a log line or a message."""
    text = f"{result.code.name} ({result.message})" if result.message else result.code.name
    if result.code in _TOO_FEW_REPLICAS:
        text += (
            ": fewer replicas are in sync than min.insync.replicas demands; restart brokers, or "
            "lower it"
        )
    return text


def batch_error(partition: TopicPartition, result: ProduceResult) -> KafkaError:
    """Returns the error that the futures of the batch raise."""
    match result.code:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            message = (
                f"not authorized to write to topic {partition.topic}: allow this user WRITE on it"
            )
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            message = "not authorized to produce idempotently: allow IDEMPOTENT_WRITE"
        case ErrorCode.MESSAGE_TOO_LARGE:
            message = (
                f"the record is larger than topic {partition.topic} allows: raise its "
                "max.message.bytes (or message.max.bytes of the broker), or send less at a time"
            )
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            message = (
                f"records for {partition} were not stored, because this producer's epoch is old: "
                "abort the transaction; if that raises ProducerFencedError, another producer with "
                "the same `transactional_id` has replaced this one, which must be closed"
            )
        case _:
            message = f"records for {partition} were not stored: {describe(result)}"
            return error_of(result.code, message)
    if result.message:
        message = f"{message} ({result.message})"
    return error_of(result.code, message)
