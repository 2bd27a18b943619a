"""DescribeShareGroupOffsets (90): start offsets and lag of share groups.

Versions 0 to 1, flexible.
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


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = ""
    partitions: list[Int32] = []


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = []


class DescribeShareGroupOffsetsRequest(Message):
    INFO = request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")

    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, wire("1+", ignorable=True)] = -1
    error_code: Int16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = ""
    topic_id: UUID = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: Int16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponse(Message):
    INFO = response(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")

    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []
