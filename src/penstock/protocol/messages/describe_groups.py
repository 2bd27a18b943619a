"""DescribeGroups (15): state and members of classic groups.

Versions 0 to 6, flexible from 5.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response, wire


class DescribeGroupsRequest(Message):
    INFO = request(ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")

    groups: list[str] = []
    include_authorized_operations: Annotated[bool, wire("3+")] = False


class DescribedGroupMember(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, wire("4+", ignorable=True)] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribeGroupsDescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: Annotated[str | None, wire("6+")] = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, wire("3+")] = -2147483648


class DescribeGroupsResponse(Message):
    INFO = response(ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    groups: list[DescribeGroupsDescribedGroup] = []
