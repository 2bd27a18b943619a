"""WriteShareGroupState (85): the share state of partitions is changed.

Versions 0 to 1, flexible.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    request,
    response,
    wire,
)


class WriteShareGroupStateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class WriteShareGroupStatePartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, wire("1+", ignorable=True)] = -1
    state_batches: list[WriteShareGroupStateBatch] = []


class WriteStateData(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[WriteShareGroupStatePartitionData] = []


class WriteShareGroupStateRequest(Message):
    INFO = request(ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+")

    group_id: str = ""
    topics: list[WriteStateData] = []


class WriteShareGroupStatePartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None


class WriteStateResult(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[WriteShareGroupStatePartitionResult] = []


class WriteShareGroupStateResponse(Message):
    INFO = response(ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+")

    results: list[WriteStateResult] = []
