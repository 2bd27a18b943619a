"""OffsetFetch (9): how far groups have read, as last stored.

Versions 0 to 10, flexible from 6; Kafka 4 starts at 1.
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


class OffsetFetchRequestTopic(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestTopics(Struct):
    name: Annotated[str, wire("8-9", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("10+", ignorable=True)] = ZERO_UUID
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Struct):
    group_id: str = ""
    member_id: Annotated[str | None, wire("9+", ignorable=True)] = None
    member_epoch: Annotated[Int32, wire("9+", ignorable=True)] = -1
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequest(Message):
    INFO = request(ApiKey.OFFSET_FETCH, versions="0-10", flexible="6+")

    group_id: Annotated[str, wire("0-7")] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, wire("0-7", nullable="2+")] = []
    groups: Annotated[list[OffsetFetchRequestGroup], wire("8+")] = []
    require_stable: Annotated[bool, wire("7+")] = False


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, wire("5+", ignorable=True)] = -1
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: Annotated[str, wire("8-9", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("10+", ignorable=True)] = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(Struct):
    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponse(Message):
    INFO = response(ApiKey.OFFSET_FETCH, versions="0-10", flexible="6+")

    throttle_time_ms: Annotated[Int32, wire("3+", ignorable=True)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], wire("0-7")] = []
    error_code: Annotated[Int16, wire("2-7", ignorable=True)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], wire("8+")] = []
