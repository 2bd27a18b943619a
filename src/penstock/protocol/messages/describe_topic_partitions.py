"""DescribeTopicPartitions (75): partitions of topics, page by page.

Version 0, flexible.
"""

from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import ZERO_UUID, Int16, Int32, Message, Struct, request, response


class DescribeTopicPartitionsTopicRequest(Struct):
    name: str = ""


class DescribeTopicPartitionsRequestCursor(Struct):
    topic_name: str = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message):
    INFO = request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")

    topics: list[DescribeTopicPartitionsTopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: DescribeTopicPartitionsRequestCursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = []


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = 0
    name: str | None = ""
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponseCursor(Struct):
    topic_name: str = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsResponse(Message):
    INFO = response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None
