"""CreateAcls (30): new access rules.

Versions 0 to 3, flexible from 2; Kafka 4 starts at 1.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response, wire


class AclCreation(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Annotated[Int8, wire("1+")] = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Message):
    INFO = request(ApiKey.CREATE_ACLS, versions="0-3", flexible="2+")

    creations: list[AclCreation] = []


class AclCreationResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""


class CreateAclsResponse(Message):
    INFO = response(ApiKey.CREATE_ACLS, versions="0-3", flexible="2+")

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []
