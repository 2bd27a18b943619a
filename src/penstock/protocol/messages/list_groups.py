"""ListGroups (16): the groups that a broker coordinates.

Versions 0 to 5, flexible from 3.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response, wire


class ListGroupsRequest(Message):
    INFO = request(ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")

    states_filter: Annotated[list[str], wire("4+")] = []
    types_filter: Annotated[list[str], wire("5+")] = []


class ListedGroup(Struct):
    group_id: str = ""
    protocol_type: str = ""
    group_state: Annotated[str, wire("4+", ignorable=True)] = ""
    group_type: Annotated[str, wire("5+", ignorable=True)] = ""


class ListGroupsResponse(Message):
    INFO = response(ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []
