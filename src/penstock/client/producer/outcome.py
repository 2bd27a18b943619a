"""What a Produce request came to for a batch, and what its user is told about it."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.client.errors import error_of
from penstock.client.producer.txn_request import known
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.produce import PartitionProduceResponse

_TOO_FEW_REPLICAS: Final = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


class Outcome(NamedTuple):
    """What became of a batch in one attempt."""

    code: ErrorCode
    message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Mapping[int, str | None] | None = None


def outcome_of(answer: PartitionProduceResponse) -> Outcome:
    if not answer.error_code:
        return Outcome(ErrorCode.NONE, None, answer.base_offset, answer.log_append_time_ms)
    return Outcome(
        known(answer.error_code),
        answer.error_message,
        answer.base_offset,
        answer.log_append_time_ms,
        answer.log_start_offset,
        {each.batch_index: each.batch_index_error_message for each in answer.record_errors},
    )


def said(outcome: Outcome) -> str:
    text = f"{outcome.code.name} ({outcome.message})" if outcome.message else outcome.code.name
    if outcome.code in _TOO_FEW_REPLICAS:
        text += (
            ": fewer replicas are in sync than min.insync.replicas asks for; bring brokers back, "
            "or lower it"
        )
    return text


def failure(partition: TopicPartition, outcome: Outcome) -> KafkaError:
    match outcome.code:
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
                "the same transactional_id has taken over, and this one is to be closed"
            )
        case _:
            message = f"records for {partition} were not stored: {said(outcome)}"
            return error_of(outcome.code, message)
    if outcome.message:
        message = f"{message} ({outcome.message})"
    return error_of(outcome.code, message)
