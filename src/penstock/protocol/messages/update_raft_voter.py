"""UpdateRaftVoter (82): a KRaft voter says how it is reached and what it speaks.

Version 0, flexible.
"""

from typing import Annotated
from uuid import UUID

from msgspec import field

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


class UpdateRaftVoterListener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class UpdateRaftVoterKRaftVersionFeature(Struct):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class UpdateRaftVoterRequest(Message):
    INFO = request(ApiKey.UPDATE_RAFT_VOTER, versions="0", flexible="0+")

    cluster_id: str | None = ""
    current_leader_epoch: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: UUID = ZERO_UUID
    listeners: list[UpdateRaftVoterListener] = []
    kraft_version_feature: UpdateRaftVoterKRaftVersionFeature = field(
        default_factory=UpdateRaftVoterKRaftVersionFeature
    )


class CurrentLeader(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: str = ""
    port: Int32 = 0


class UpdateRaftVoterResponse(Message):
    INFO = response(ApiKey.UPDATE_RAFT_VOTER, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: Annotated[CurrentLeader, wire(tag=0)] = field(default_factory=CurrentLeader)
