"""DescribeConfigs (32): configuration of resources, and where each value comes from.

Versions 0 to 4, flexible from 4; Kafka 4 starts at 1.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response, wire


class DescribeConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = []


class DescribeConfigsRequest(Message):
    INFO = request(ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+")

    resources: list[DescribeConfigsResource] = []
    include_synonyms: Annotated[bool, wire("1+")] = False
    include_documentation: Annotated[bool, wire("3+")] = False


class DescribeConfigsSynonym(Struct):
    name: str = ""
    value: str | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    is_default: Annotated[bool, wire("0")] = False
    config_source: Annotated[Int8, wire("1+", ignorable=True)] = -1
    is_sensitive: bool = False
    synonyms: Annotated[list[DescribeConfigsSynonym], wire("1+", ignorable=True)] = []
    config_type: Annotated[Int8, wire("3+", ignorable=True)] = 0
    documentation: Annotated[str | None, wire("3+", ignorable=True)] = ""


class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Message):
    INFO = response(ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+")

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []
