"""DeleteGroups (42): empty groups are deleted.

Versions 0 to 3, flexible from 2.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response, wire


class DeleteGroupsRequest(Message):
    INFO = request(ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+")

    groups_names: list[str] = []


class DeletableGroupResult(Struct):
    group_id: str = ""
    error_code: Int16 = 0
    error_message: Annotated[str | None, wire("3+", ignorable=True)] = None


class DeleteGroupsResponse(Message):
    INFO = response(ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+")

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
