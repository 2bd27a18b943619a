"""ListPartitionReassignments (46): reassignments that are under way.

Version 0, flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response


class ListPartitionReassignmentsTopics(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(Message):
    INFO = request(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Struct):
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(Message):
    INFO = response(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = []
