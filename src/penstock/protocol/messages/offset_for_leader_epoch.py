"""OffsetForLeaderEpoch (23): where a leader epoch ended, for those who must truncate.

Versions 0 to 4, flexible from 4; Kafka 4 starts at 2.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response, wire


class OffsetForLeaderPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, wire("2+", ignorable=True)] = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(Message):
    INFO = request(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+")

    replica_id: Annotated[Int32, wire("3+", ignorable=True)] = -2
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderEpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Annotated[Int32, wire("1+", ignorable=True)] = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: str = ""
    partitions: list[OffsetForLeaderEpochEndOffset] = []


class OffsetForLeaderEpochResponse(Message):
    INFO = response(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("2+", ignorable=True)] = 0
    topics: list[OffsetForLeaderTopicResult] = []
