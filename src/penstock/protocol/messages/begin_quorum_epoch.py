"""BeginQuorumEpoch (53): a new KRaft leader announces itself.

Versions 0 to 1, flexible from 1.
"""

from typing import Annotated
from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    Struct,
    UInt16,
    request,
    response,
    wire,
)


class BeginQuorumEpochRequestPartitionData(Struct):
    partition_index: Int32 = 0
    voter_directory_id: Annotated[UUID, wire("1+", ignorable=True)] = ZERO_UUID
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class BeginQuorumEpochRequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[BeginQuorumEpochRequestPartitionData] = []


class BeginQuorumEpochLeaderEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class BeginQuorumEpochRequest(Message):
    INFO = request(ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+")

    cluster_id: str | None = None
    voter_id: Annotated[Int32, wire("1+", ignorable=True)] = -1
    topics: list[BeginQuorumEpochRequestTopicData] = []
    leader_endpoints: Annotated[
        list[BeginQuorumEpochLeaderEndpoint], wire("1+", ignorable=True)
    ] = []


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[BeginQuorumEpochResponsePartitionData] = []


class BeginQuorumEpochNodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0


class BeginQuorumEpochResponse(Message):
    INFO = response(ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+")

    error_code: Int16 = 0
    topics: list[BeginQuorumEpochResponseTopicData] = []
    node_endpoints: Annotated[list[BeginQuorumEpochNodeEndpoint], wire("1+", tag=0)] = []
