"""ReadShareGroupStateSummary (87): where the share state of partitions starts.

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


class ReadShareGroupStateSummaryPartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[ReadShareGroupStateSummaryPartitionData] = []


class ReadShareGroupStateSummaryRequest(Message):
    INFO = request(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+")

    group_id: str = ""
    topics: list[ReadStateSummaryData] = []


class ReadShareGroupStateSummaryPartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, wire("1+", ignorable=True)] = -1


class ReadStateSummaryResult(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[ReadShareGroupStateSummaryPartitionResult] = []


class ReadShareGroupStateSummaryResponse(Message):
    INFO = response(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+")

    results: list[ReadStateSummaryResult] = []
