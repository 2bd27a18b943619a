"""ListOffsets (2): the offset that belongs to a timestamp, or the first or last one.

Versions 0 to 11, flexible from 6; Kafka 4 starts at 1.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
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


class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, wire("4+", ignorable=True)] = -1
    timestamp: Int64 = 0
    max_num_offsets: Annotated[Int32, wire("0")] = 1


class ListOffsetsTopic(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(Message):
    INFO = request(ApiKey.LIST_OFFSETS, versions="0-11", flexible="6+")

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, wire("2+")] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, wire("10+", ignorable=True)] = 0


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    old_style_offsets: Annotated[list[Int64], wire("0")] = []
    timestamp: Annotated[Int64, wire("1+")] = -1
    offset: Annotated[Int64, wire("1+")] = -1
    leader_epoch: Annotated[Int32, wire("4+")] = -1


class ListOffsetsTopicResponse(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(Message):
    INFO = response(ApiKey.LIST_OFFSETS, versions="0-11", flexible="6+")

    throttle_time_ms: Annotated[Int32, wire("2+", ignorable=True)] = 0
    topics: list[ListOffsetsTopicResponse] = []
