"""DescribeCluster (60): cluster id, brokers and controller.

Versions 0 to 2, flexible.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int8, Int16, Int32, Message, Struct, request, response, wire


class DescribeClusterRequest(Message):
    INFO = request(ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")

    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[Int8, wire("1+")] = 1
    include_fenced_brokers: Annotated[bool, wire("2+")] = False


class DescribeClusterBroker(Struct):
    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
    is_fenced: Annotated[bool, wire("2+")] = False


class DescribeClusterResponse(Message):
    INFO = response(ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, wire("1+")] = 1
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648
