"""InitializeShareGroupState (83): the share state of partitions begins.

Version 0, flexible.
"""

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
)


class InitializeShareGroupStatePartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[InitializeShareGroupStatePartitionData] = []


class InitializeShareGroupStateRequest(Message):
    INFO = request(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+")

    group_id: str = ""
    topics: list[InitializeStateData] = []


class InitializeShareGroupStatePartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None


class InitializeStateResult(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[InitializeShareGroupStatePartitionResult] = []


class InitializeShareGroupStateResponse(Message):
    INFO = response(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+")

    results: list[InitializeStateResult] = []
