"""ListConfigResources (74): resources that have a configuration of their own.

Versions 0 to 1, flexible.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response, wire


class ListConfigResourcesRequest(Message):
    INFO = request(ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")

    resource_types: Annotated[list[Int8], wire("1+")] = []


class ConfigResource(Struct):
    resource_name: str = ""
    resource_type: Annotated[Int8, wire("1+", ignorable=True)] = 16


class ListConfigResourcesResponse(Message):
    INFO = response(ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []
