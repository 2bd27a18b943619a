"""AlterPartitionReassignments (45): partitions move to other replicas.

Versions 0 to 1, flexible.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response, wire


class ReassignablePartition(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] | None = None


class ReassignableTopic(Struct):
    name: str = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(Message):
    INFO = request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[bool, wire("1+")] = True
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""


class ReassignableTopicResponse(Struct):
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(Message):
    INFO = response(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[bool, wire("1+", ignorable=True)] = True
    error_code: Int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = []
