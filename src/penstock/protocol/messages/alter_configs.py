"""AlterConfigs (33): the whole configuration of a resource is replaced.

Versions 0 to 2, flexible from 2.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response


class AlterConfigsAlterableConfig(Struct):
    name: str = ""
    value: str | None = ""


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterConfigsAlterableConfig] = []


class AlterConfigsRequest(Message):
    INFO = request(ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""


class AlterConfigsResponse(Message):
    INFO = response(ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+")

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
