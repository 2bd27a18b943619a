"""Produce (0): a producer hands record batches to the leaders of their partitions.

Versions 0 to 13, flexible from 9; Kafka 4 starts at 3.
"""

from typing import Annotated
from uuid import UUID

from msgspec import field

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    Struct,
    request,
    response,
    wire,
)


class PartitionProduceData(Struct):
    index: Int32 = 0
    records: Records | None = None


class TopicProduceData(Struct):
    name: Annotated[str, wire("0-12", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(Message):
    INFO = request(ApiKey.PRODUCE, versions="0-13", flexible="9+")

    transactional_id: Annotated[str | None, wire("3+")] = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


class ProduceLeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Annotated[Int64, wire("2+", ignorable=True)] = -1
    log_start_offset: Annotated[Int64, wire("5+", ignorable=True)] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], wire("8+", ignorable=True)] = []
    error_message: Annotated[str | None, wire("8+", ignorable=True)] = None
    current_leader: Annotated[ProduceLeaderIdAndEpoch, wire("10+", tag=0)] = field(
        default_factory=ProduceLeaderIdAndEpoch
    )


class TopicProduceResponse(Struct):
    name: Annotated[str, wire("0-12", ignorable=True)] = ""
    topic_id: Annotated[UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = []


class ProduceNodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class ProduceResponse(Message):
    INFO = response(ApiKey.PRODUCE, versions="0-13", flexible="9+")

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    node_endpoints: Annotated[list[ProduceNodeEndpoint], wire("10+", tag=0)] = []
