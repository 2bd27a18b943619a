"""DeleteAcls (31): access rules that a filter matches are deleted.

Versions 0 to 3, flexible from 2; Kafka 4 starts at 1.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response, wire


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Annotated[Int8, wire("1+")] = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(Message):
    INFO = request(ApiKey.DELETE_ACLS, versions="0-3", flexible="2+")

    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Annotated[Int8, wire("1+")] = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsResponse(Message):
    INFO = response(ApiKey.DELETE_ACLS, versions="0-3", flexible="2+")

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []
