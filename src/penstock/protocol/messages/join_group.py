"""JoinGroup (11): a member joins a classic group and waits for the generation to form.

Versions 0 to 9, flexible from 6.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response, wire


class JoinGroupRequestProtocol(Struct):
    name: str = ""
    metadata: bytes = b""


class JoinGroupRequest(Message):
    INFO = request(ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")

    group_id: str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, wire("1+", ignorable=True)] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, wire("5+")] = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[str | None, wire("8+", ignorable=True)] = None


class JoinGroupResponseMember(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, wire("5+", ignorable=True)] = None
    metadata: bytes = b""


class JoinGroupResponse(Message):
    INFO = response(ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")

    throttle_time_ms: Annotated[Int32, wire("2+", ignorable=True)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, wire("7+", ignorable=True)] = None
    protocol_name: Annotated[str | None, wire(nullable="7+")] = ""
    leader: str = ""
    skip_assignment: Annotated[bool, wire("9+")] = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []
