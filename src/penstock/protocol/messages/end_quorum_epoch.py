"""EndQuorumEpoch (54): a KRaft leader steps down.

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


class ReplicaInfo(Struct):
    candidate_id: Int32 = 0
    candidate_directory_id: UUID = ZERO_UUID


class EndQuorumEpochRequestPartitionData(Struct):
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    preferred_successors: Annotated[list[Int32], wire("0", ignorable=True)] = []
    preferred_candidates: Annotated[list[ReplicaInfo], wire("1+", ignorable=True)] = []


class EndQuorumEpochRequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[EndQuorumEpochRequestPartitionData] = []


class EndQuorumEpochLeaderEndpoint(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class EndQuorumEpochRequest(Message):
    INFO = request(ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+")

    cluster_id: str | None = None
    topics: list[EndQuorumEpochRequestTopicData] = []
    leader_endpoints: Annotated[list[EndQuorumEpochLeaderEndpoint], wire("1+", ignorable=True)] = []


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[EndQuorumEpochResponsePartitionData] = []


class EndQuorumEpochNodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0


class EndQuorumEpochResponse(Message):
    INFO = response(ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+")

    error_code: Int16 = 0
    topics: list[EndQuorumEpochResponseTopicData] = []
    node_endpoints: Annotated[list[EndQuorumEpochNodeEndpoint], wire("1+", tag=0)] = []
