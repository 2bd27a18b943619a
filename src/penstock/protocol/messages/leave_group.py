"""LeaveGroup (13): members leave a classic group without waiting for their session to end.

Versions 0 to 5, flexible from 4.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response, wire


class MemberIdentity(Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: Annotated[str | None, wire("5+", ignorable=True)] = None


class LeaveGroupRequest(Message):
    INFO = request(ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")

    group_id: str = ""
    member_id: Annotated[str, wire("0-2")] = ""
    members: Annotated[list[MemberIdentity], wire("3+")] = []


class MemberResponse(Struct):
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Message):
    INFO = response(ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], wire("3+")] = []
