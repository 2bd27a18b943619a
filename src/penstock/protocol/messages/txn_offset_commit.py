"""TxnOffsetCommit (28): offsets of a group, stored inside a transaction.

Versions 0 to 6, flexible from 3.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    request,
    response,
    wire,
)


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, wire("2+", ignorable=True)] = -1
    committed_metadata: str | None = ""


class TxnOffsetCommitRequestTopic(Struct):
    name: Annotated[str, wire("0-5", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("6+", ignorable=True)] = ZERO_UUID
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(Message):
    INFO = request(ApiKey.TXN_OFFSET_COMMIT, versions="0-6", flexible="3+")

    transactional_id: str = ""
    group_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id_or_member_epoch: Annotated[Int32, wire("3+")] = -1
    member_id: Annotated[str, wire("3+")] = ""
    group_instance_id: Annotated[str | None, wire("3+")] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: Annotated[str, wire("0-5", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("6+", ignorable=True)] = ZERO_UUID
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(Message):
    INFO = response(ApiKey.TXN_OFFSET_COMMIT, versions="0-6", flexible="3+")

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
