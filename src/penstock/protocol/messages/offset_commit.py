"""OffsetCommit (8): a group member stores how far it has read.

Versions 0 to 10, flexible from 8; Kafka 4 starts at 2.
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


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, wire("6+", ignorable=True)] = -1
    commit_timestamp: Annotated[Int64, wire("1")] = -1
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(Struct):
    name: Annotated[str, wire("0-9", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("10+", ignorable=True)] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(Message):
    INFO = request(ApiKey.OFFSET_COMMIT, versions="0-10", flexible="8+")

    group_id: str = ""
    generation_id_or_member_epoch: Annotated[Int32, wire("1+", ignorable=True)] = -1
    member_id: Annotated[str, wire("1+", ignorable=True)] = ""
    group_instance_id: Annotated[str | None, wire("7+")] = None
    retention_time_ms: Annotated[Int64, wire("2-4", ignorable=True)] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: Annotated[str, wire("0-9", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("10+", ignorable=True)] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Message):
    INFO = response(ApiKey.OFFSET_COMMIT, versions="0-10", flexible="8+")

    throttle_time_ms: Annotated[Int32, wire("3+", ignorable=True)] = 0
    topics: list[OffsetCommitResponseTopic] = []
