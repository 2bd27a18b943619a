"""Records of `__transaction_state`: where each transactional id stands (type 0)."""

from typing import Annotated

from penstock.protocol.fields import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    record_key,
    record_value,
    wire,
)


class TransactionLogKey(Message):
    INFO = record_key(0)

    transactional_id: str = ""


class PartitionsSchema(Struct):
    topic: str = ""
    partition_ids: list[Int32] = []


class TransactionLogValue(Message):
    INFO = record_value(0, versions="0-1", flexible="1+")

    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, wire("1+", tag=0)] = -1
    next_producer_id: Annotated[Int64, wire("1+", tag=1)] = -1
    producer_epoch: Int16 = 0
    next_producer_epoch: Annotated[Int16, wire("1+", tag=3)] = -1
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, wire("1+", tag=2)] = 0
