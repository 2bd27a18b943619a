"""CreatePartitions (37): topics get more partitions.

Versions 0 to 3, flexible from 2.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Struct):
    name: str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(Message):
    INFO = request(ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(Struct):
    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None


class CreatePartitionsResponse(Message):
    INFO = response(ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []
