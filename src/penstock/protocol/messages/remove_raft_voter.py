"""RemoveRaftVoter (81): a voter leaves the KRaft quorum.

Version 0, flexible.
"""

from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Int16, Int32, Message, request, response


class RemoveRaftVoterRequest(Message):
    INFO = request(ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+")

    cluster_id: str | None = ""
    voter_id: Int32 = 0
    voter_directory_id: UUID = ZERO_UUID


class RemoveRaftVoterResponse(Message):
    INFO = response(ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
