"""DeleteRecords (21): partitions forget everything before an offset.

Versions 0 to 2, flexible from 2.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(Message):
    INFO = request(ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(Message):
    INFO = response(ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
