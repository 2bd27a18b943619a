"""ShareAcknowledge (79): a share group member acknowledges records one by one.

Versions 1 to 2, flexible.
"""

from typing import Annotated
from uuid import UUID

from msgspec import field

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


class ShareAcknowledgeAcknowledgementBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class AcknowledgePartition(Struct):
    partition_index: Int32 = 0
    acknowledgement_batches: list[ShareAcknowledgeAcknowledgementBatch] = []


class AcknowledgeTopic(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[AcknowledgePartition] = []


class ShareAcknowledgeRequest(Message):
    INFO = request(ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+")

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: Annotated[bool, wire("2+")] = False
    topics: list[AcknowledgeTopic] = []


class ShareAcknowledgeLeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class ShareAcknowledgePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    current_leader: ShareAcknowledgeLeaderIdAndEpoch = field(
        default_factory=ShareAcknowledgeLeaderIdAndEpoch
    )


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[ShareAcknowledgePartitionData] = []


class ShareAcknowledgeNodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class ShareAcknowledgeResponse(Message):
    INFO = response(ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, wire("2+", ignorable=True)] = 0
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[ShareAcknowledgeNodeEndpoint] = []
