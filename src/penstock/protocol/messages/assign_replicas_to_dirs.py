"""AssignReplicasToDirs (73): a broker reports which log directory holds which replica.

Version 0, flexible.
"""

from uuid import UUID

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    request,
    response,
)


class AssignReplicasToDirsRequestPartitionData(Struct):
    partition_index: Int32 = 0


class AssignReplicasToDirsRequestTopicData(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[AssignReplicasToDirsRequestPartitionData] = []


class AssignReplicasToDirsRequestDirectoryData(Struct):
    id: UUID = ZERO_UUID
    topics: list[AssignReplicasToDirsRequestTopicData] = []


class AssignReplicasToDirsRequest(Message):
    INFO = request(ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+")

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    directories: list[AssignReplicasToDirsRequestDirectoryData] = []


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: UUID = ZERO_UUID
    partitions: list[AssignReplicasToDirsResponsePartitionData] = []


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: UUID = ZERO_UUID
    topics: list[AssignReplicasToDirsResponseTopicData] = []


class AssignReplicasToDirsResponse(Message):
    INFO = response(ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+")

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[AssignReplicasToDirsResponseDirectoryData] = []
