"""Fetch (1): consumers and followers read record batches, from where they say they are.

Versions 0 to 18, flexible from 12; Kafka 4 starts at 4.
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


class FetchReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, wire("9+", ignorable=True)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, wire("12+")] = -1
    log_start_offset: Annotated[Int64, wire("5+", ignorable=True)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[UUID, wire("17+", tag=0, ignorable=True)] = ZERO_UUID
    high_watermark: Annotated[Int64, wire("18+", tag=1, ignorable=True)] = 9223372036854775807


class FetchTopic(Struct):
    topic: Annotated[str, wire("0-12", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partitions: list[FetchPartition] = []


class FetchForgottenTopic(Struct):
    topic: Annotated[str, wire("7-12", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partitions: list[Int32] = []


class FetchRequest(Message):
    INFO = request(ApiKey.FETCH, versions="0-18", flexible="12+")

    cluster_id: Annotated[str | None, wire("12+", tag=0, ignorable=True)] = None
    replica_id: Annotated[Int32, wire("0-14")] = -1
    replica_state: Annotated[FetchReplicaState, wire("15+", tag=1)] = field(
        default_factory=FetchReplicaState
    )
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Annotated[Int32, wire("3+", ignorable=True)] = 2147483647
    isolation_level: Annotated[Int8, wire("4+", ignorable=True)] = 0
    session_id: Annotated[Int32, wire("7+", ignorable=True)] = 0
    session_epoch: Annotated[Int32, wire("7+", ignorable=True)] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[FetchForgottenTopic], wire("7+")] = []
    rack_id: Annotated[str, wire("11+", ignorable=True)] = ""


class FetchEpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class FetchLeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class FetchSnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class FetchPartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Annotated[Int64, wire("4+", ignorable=True)] = -1
    log_start_offset: Annotated[Int64, wire("5+", ignorable=True)] = -1
    diverging_epoch: Annotated[FetchEpochEndOffset, wire("12+", tag=0)] = field(
        default_factory=FetchEpochEndOffset
    )
    current_leader: Annotated[FetchLeaderIdAndEpoch, wire("12+", tag=1)] = field(
        default_factory=FetchLeaderIdAndEpoch
    )
    snapshot_id: Annotated[FetchSnapshotId, wire("12+", tag=2)] = field(
        default_factory=FetchSnapshotId
    )
    aborted_transactions: Annotated[
        list[AbortedTransaction] | None, wire("4+", ignorable=True)
    ] = []
    preferred_read_replica: Annotated[Int32, wire("11+")] = -1
    records: RecordsOrRange | None = None


class FetchableTopicResponse(Struct):
    topic: Annotated[str, wire("0-12", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partitions: list[FetchPartitionData] = []


class FetchNodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class FetchResponse(Message):
    INFO = response(ApiKey.FETCH, versions="0-18", flexible="12+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, wire("7+", ignorable=True)] = 0
    session_id: Annotated[Int32, wire("7+")] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[FetchNodeEndpoint], wire("16+", tag=0)] = []
