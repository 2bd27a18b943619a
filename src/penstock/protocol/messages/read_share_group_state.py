"""ReadShareGroupState (84): the share state of partitions, batch by batch.

Version 0, flexible.
"""

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
)


class ReadShareGroupStatePartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateData(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[ReadShareGroupStatePartitionData] = []


class ReadShareGroupStateRequest(Message):
    INFO = request(ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+")

    group_id: str = ""
    topics: list[ReadStateData] = []


class ReadShareGroupStateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ReadShareGroupStatePartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[ReadShareGroupStateBatch] = []


class ReadStateResult(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[ReadShareGroupStatePartitionResult] = []


class ReadShareGroupStateResponse(Message):
    INFO = response(ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+")

    results: list[ReadStateResult] = []
