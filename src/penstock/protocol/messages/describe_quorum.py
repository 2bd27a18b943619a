"""DescribeQuorum (55): state of the KRaft quorum: leader, voters, observers.

Versions 0 to 2, flexible.
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
    UInt16,
    request,
    response,
    wire,
)


class DescribeQuorumRequestPartitionData(Struct):
    partition_index: Int32 = 0


class DescribeQuorumRequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[DescribeQuorumRequestPartitionData] = []


class DescribeQuorumRequest(Message):
    INFO = request(ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")

    topics: list[DescribeQuorumRequestTopicData] = []


class DescribeQuorumReplicaState(Struct):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[UUID, wire("2+")] = ZERO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, wire("1+", ignorable=True)] = -1
    last_caught_up_timestamp: Annotated[Int64, wire("1+", ignorable=True)] = -1


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, wire("2+", ignorable=True)] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[DescribeQuorumReplicaState] = []
    observers: list[DescribeQuorumReplicaState] = []


class DescribeQuorumResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[DescribeQuorumResponsePartitionData] = []


class DescribeQuorumListener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class Node(Struct):
    node_id: Int32 = 0
    listeners: list[DescribeQuorumListener] = []


class DescribeQuorumResponse(Message):
    INFO = response(ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")

    error_code: Int16 = 0
    error_message: Annotated[str | None, wire("2+", ignorable=True)] = ""
    topics: list[DescribeQuorumResponseTopicData] = []
    nodes: Annotated[list[Node], wire("2+")] = []
