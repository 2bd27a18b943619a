"""ShareFetch (78): a share group member acquires records, and acknowledges earlier ones.

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
    RecordsOrRange,
    Struct,
    request,
    response,
    wire,
)


class ShareFetchAcknowledgementBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class ShareFetchPartition(Struct):
    partition_index: Int32 = 0
    acknowledgement_batches: list[ShareFetchAcknowledgementBatch] = []


class ShareFetchTopic(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[ShareFetchPartition] = []


class ShareFetchForgottenTopic(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[Int32] = []


class ShareFetchRequest(Message):
    INFO = request(ApiKey.SHARE_FETCH, versions="1-2", flexible="0+")

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Annotated[Int8, wire("2+", ignorable=True)] = 0
    is_renew_ack: Annotated[bool, wire("2+")] = False
    topics: list[ShareFetchTopic] = []
    forgotten_topics_data: list[ShareFetchForgottenTopic] = []


class ShareFetchLeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class ShareFetchPartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: ShareFetchLeaderIdAndEpoch = field(default_factory=ShareFetchLeaderIdAndEpoch)
    records: RecordsOrRange = b""
    acquired_records: list[AcquiredRecords] = []


class ShareFetchableTopicResponse(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[ShareFetchPartitionData] = []


class ShareFetchNodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class ShareFetchResponse(Message):
    INFO = response(ApiKey.SHARE_FETCH, versions="1-2", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[ShareFetchNodeEndpoint] = []
