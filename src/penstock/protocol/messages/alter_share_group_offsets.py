"""AlterShareGroupOffsets (91): start offsets of a share group are changed.

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


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


class AlterShareGroupOffsetsRequest(Message):
    INFO = request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")

    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = ""
    topic_id: UUID = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


class AlterShareGroupOffsetsResponse(Message):
    INFO = response(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []
