"""Vote (52): a KRaft candidate asks for votes.

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


class VoteRequestPartitionData(Struct):
    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: Annotated[UUID, wire("1+", ignorable=True)] = ZERO_UUID
    voter_directory_id: Annotated[UUID, wire("1+", ignorable=True)] = ZERO_UUID
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: Annotated[bool, wire("2+")] = False


class VoteRequestTopicData(Struct):
    topic_name: str = ""
    partitions: list[VoteRequestPartitionData] = []


class VoteRequest(Message):
    INFO = request(ApiKey.VOTE, versions="0-2", flexible="0+")

    cluster_id: str | None = None
    voter_id: Annotated[Int32, wire("1+", ignorable=True)] = -1
    topics: list[VoteRequestTopicData] = []


class VoteResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: bool = False


class VoteResponseTopicData(Struct):
    topic_name: str = ""
    partitions: list[VoteResponsePartitionData] = []


class VoteNodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0


class VoteResponse(Message):
    INFO = response(ApiKey.VOTE, versions="0-2", flexible="0+")

    error_code: Int16 = 0
    topics: list[VoteResponseTopicData] = []
    node_endpoints: Annotated[list[VoteNodeEndpoint], wire("1+", tag=0)] = []
