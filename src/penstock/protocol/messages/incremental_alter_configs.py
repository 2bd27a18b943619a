"""IncrementalAlterConfigs (44): single configuration values are set, deleted or extended.

Versions 0 to 1, flexible from 1.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response


class IncrementalAlterConfigsAlterableConfig(Struct):
    name: str = ""
    config_operation: Int8 = 0
    value: str | None = ""


class IncrementalAlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[IncrementalAlterConfigsAlterableConfig] = []


class IncrementalAlterConfigsRequest(Message):
    INFO = request(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")

    resources: list[IncrementalAlterConfigsResource] = []
    validate_only: bool = False


class IncrementalAlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""


class IncrementalAlterConfigsResponse(Message):
    INFO = response(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")

    throttle_time_ms: Int32 = 0
    responses: list[IncrementalAlterConfigsResourceResponse] = []
