"""AddRaftVoter (80): a voter joins the KRaft quorum.

Versions 0 to 1, flexible.
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


class AddRaftVoterListener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class AddRaftVoterRequest(Message):
    INFO = request(ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+")

    cluster_id: str | None = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: UUID = ZERO_UUID
    listeners: list[AddRaftVoterListener] = []
    ack_when_committed: Annotated[bool, wire("1+")] = True


class AddRaftVoterResponse(Message):
    INFO = response(ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
