"""SyncGroup (14): the leader of a classic group hands in the assignment, the others fetch theirs.

Versions 0 to 5, flexible from 4.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response, wire


class SyncGroupRequestAssignment(Struct):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupRequest(Message):
    INFO = request(ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")

    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, wire("3+")] = None
    protocol_type: Annotated[str | None, wire("5+", ignorable=True)] = None
    protocol_name: Annotated[str | None, wire("5+", ignorable=True)] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message):
    INFO = response(ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, wire("5+", ignorable=True)] = None
    protocol_name: Annotated[str | None, wire("5+", ignorable=True)] = None
    assignment: bytes = b""
