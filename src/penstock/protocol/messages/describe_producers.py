"""DescribeProducers (61): the producers that are active in partitions.

Version 0, flexible.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response


class DescribeProducersTopicRequest(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class DescribeProducersRequest(Message):
    INFO = request(ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")

    topics: list[DescribeProducersTopicRequest] = []


class ProducerState(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class TopicResponse(Struct):
    name: str = ""
    partitions: list[PartitionResponse] = []


class DescribeProducersResponse(Message):
    INFO = response(ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []
